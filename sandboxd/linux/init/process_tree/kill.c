/*
 * Signals to a whole tree.
 *
 * A tree that forks while it is being killed cannot escape: all processes are stopped first, in repeated
 * walks until one finds no new process. A stopped process does not fork, and an orphan stays below its
 * subreaper.
 */
#include "process_tree.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#define FREEZE_WALKS 64

/* The kernel locks its list of processes while it delivers, and a pending signal makes a concurrent
 * fork fail: no process is missed. */
bool namespace_stop(void)
{
    return procs_have_namespace() && kill(-1, SIGSTOP) == 0;
}

static int by_pid(const void *a, const void *b)
{
    return *(const pid_t *)a - *(const pid_t *)b;
}

static bool same_pids(const struct pid_list *a, const struct pid_list *b)
{
    return a->count == b->count && memcmp(a->at, b->at, a->count * sizeof *a->at) == 0;
}

void tree_freeze(struct pid_list *list, const struct pid_list *except)
{
    struct pid_list before = {0};
    for (int walks = 0; walks < FREEZE_WALKS; walks++) {
        procs_stop_below(list, except);
        if (list->count == 0)
            break;
        qsort(list->at, list->count, sizeof *list->at, by_pid);
        if (same_pids(list, &before))
            break;
        before.count = 0;
        for (size_t i = 0; i < list->count; i++)
            pid_list_add(&before, list->at[i]);
    }
    free(before.at);
}

void tree_kill(const struct pid_list *except)
{
    struct pid_list list = {0};
    tree_freeze(&list, except);
    for (size_t i = 0; i < list.count; i++)
        signal_listed(&list, list.at[i], SIGKILL);
    free(list.at);
}

static void signal_each(int number, pid_t group, const struct pid_list *except)
{
    struct pid_list list = {0};
    struct process_stat stat;
    procs_below(&list, except);
    for (size_t i = 0; i < list.count; i++)
        if (group == 0 || (procstat_read(list.at[i], &stat) && stat.group == group))
            signal_listed(&list, list.at[i], number);
    free(list.at);
}

static void signal_main(int number, pid_t main_pid, bool pty)
{
    struct process_stat stat;
    pid_t foreground = 0;
    if (main_pid <= 0) /* killed before it was forked; 0 would be the group of this process */
        return;
    if (pty && procstat_read(main_pid, &stat) && stat.foreground_group > 1)
        foreground = stat.foreground_group;
    kill(-main_pid, number);
    if (foreground > 0 && foreground != main_pid)
        kill(-foreground, number);
}

void tree_signal(const struct signal_request *request, pid_t main_pid, bool main_ended, bool pty,
                 const struct pid_list *except)
{
    if (request->scope == SCOPE_TREE)
        signal_each(request->number, 0, except);
    else if (main_ended)
        /* Its pid may have been reused: signal only members of the old group that are descendants. */
        signal_each(request->number, main_pid, except);
    else
        signal_main(request->number, main_pid, pty);
}
