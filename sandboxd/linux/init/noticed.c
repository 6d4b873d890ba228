/*
 * What was noticed about a command's connections, told to the daemon once each.
 *
 * Bounded: a scan of the whole Internet ends in the first few addresses. The socket buffer of a
 * channel holds all that can be told, so a daemon that does not read never blocks the init.
 */
#include "init.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define PARENTS_MAX 256

/* The command below whose keeper, or (its keeper being dead) main process, the caller lives. */
struct command *command_of(pid_t pid)
{
    struct process_stat stat;
    for (int i = 0; i < PARENTS_MAX && pid > 1; i++) {
        for (struct command *c = commands_first(); c != NULL; c = c->next)
            if (pid == (c->adopted ? c->slot->main_pid : c->keeper))
                return c;
        if (!procstat_read(pid, &stat))
            return NULL;
        pid = stat.parent;
    }
    /* An orphan of an adopted command. With several of them nobody can tell whose. */
    struct command *first = commands_first();
    return first != NULL && first->next == NULL ? first : NULL;
}

static struct noticed *noticed_of(struct command *command)
{
    if (command->noticed == NULL)
        command->noticed = calloc(1, sizeof *command->noticed);
    return command->noticed;
}

void command_notified(struct command *command, const struct endpoint *end)
{
    struct noticed *noticed = noticed_of(command);
    if (noticed == NULL || noticed->end_count == NOTICED_MAX)
        return;
    for (unsigned i = 0; i < noticed->end_count; i++)
        if (memcmp(&noticed->ends[i], end, sizeof *end) == 0)
            return;
    noticed->ends[noticed->end_count++] = *end;
    send_notified(command->channel, end);
}

/* The same name, or the same with a search domain after it, which nobody asked for. */
static bool known_name(const char *known, const char *name)
{
    size_t length = strlen(known);
    return strncasecmp(known, name, length) == 0 && (name[length] == 0 || name[length] == '.');
}

void command_looked_up(struct command *command, const char *name)
{
    struct noticed *noticed = noticed_of(command);
    if (noticed == NULL || noticed->name_count == NOTICED_MAX)
        return;
    for (unsigned i = 0; i < noticed->name_count; i++)
        if (known_name(noticed->names[i], name))
            return;
    memcpy(noticed->names[noticed->name_count++], name, strlen(name) + 1);
    send_looked_up(command->channel, name);
}
