/*
 * Commands that another command of the sandbox has stopped between their fork and their exec.
 *
 * After a vfork the reaper waits in the kernel until the child has executed its program or has died. A child that
 * is stopped meanwhile (same uid) does neither, so its reaper could not obey a KILL, and the daemon would have to end
 * the sandbox. The init waits for no child: it kills the stopped one. The reaper then reports that there was no
 * command, and nothing else in the sandbox is harmed.
 *
 * Not by time alone: a child may wait for a slow file system.
 */
#include "command.h"
#include "../process_tree/process_tree.h"

#include <signal.h>
#include <stdlib.h>

#define LOOK_MS 50

/* For a child that is traced, or serves files, the reaper does not wait. */
static bool is_starting(const struct command *command)
{
    return !command->lone && !command->start_state->executed &&
           (command->flags & (EXEC_EXPLAIN | EXEC_FILES)) == 0;
}

void stopped_start_watch(struct command *command)
{
    command->look_due_ms = now_ms() + LOOK_MS;
}

/* In this order: the kernel wakes the reaper before the program could stop itself. */
static bool is_stopped_start(pid_t pid, pid_t reaper)
{
    struct process_stat child, parent;
    return procstat_read(pid, &child) && child.parent == reaper && child.state == 'T' &&
           procstat_read(reaper, &parent) && parent.state == 'D';
}

/* By its parent: it may have been stopped before it told its pid. */
static void kill_stopped_child(const struct command *command)
{
    struct pid_list all = {0};
    procs_below(&all, NULL);
    for (size_t i = 0; i < all.count; i++)
        if (is_stopped_start(all.at[i], command->reaper))
            signal_listed(&all, all.at[i], SIGKILL);
    free(all.at);
}

void stopped_starts_end(void)
{
    uint64_t now = now_ms();
    for (struct command *command = commands_first(); command != NULL; command = command->next) {
        if (!is_starting(command) || now < command->look_due_ms)
            continue;
        kill_stopped_child(command);
        stopped_start_watch(command);
    }
}

int stopped_starts_timeout_ms(void)
{
    int soonest = -1;
    uint64_t now = now_ms();
    for (struct command *command = commands_first(); command != NULL; command = command->next)
        if (is_starting(command))
            soonest = sooner(soonest, command->look_due_ms > now ? (int)(command->look_due_ms - now) : 0);
    return soonest;
}
