/*
 * Processes that a command leaves when it ends, and that are killed with it.
 *
 * Many end by themselves then, because their input was a pipe of the main process (tee, the service of a compiler,
 * workers): all get a moment for it. What is alive after that would have gone on without a sandbox.
 */
#include "process_tree.h"

#include <stdlib.h>
#include <string.h>

void left_add(struct left *left, pid_t pid)
{
    char name[LEFT_NAME_MAX + 1];
    ssize_t length = procstat_text(pid, "comm", name, sizeof name);
    left->count++;
    if (length > 0 && name[length - 1] == '\n')
        name[length - 1] = 0;
    if (length <= 0 || name[0] == 0 || left->name_count == LEFT_NAMES_MAX)
        return;
    for (uint32_t i = 0; i < left->name_count; i++)
        if (strcmp(left->names[i], name) == 0)
            return;
    strcpy(left->names[left->name_count++], name);
}

void left_look(struct left *left, const struct pid_list *except)
{
    struct pid_list list = {0};
    struct process_stat stat;
    procs_below(&list, except);
    for (size_t i = 0; i < list.count; i++)
        if (procstat_read(list.at[i], &stat) && stat.state != 'Z' && stat.state != 'X')
            left_add(left, list.at[i]);
    free(list.at);
}
