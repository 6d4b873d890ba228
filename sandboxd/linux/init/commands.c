/*
 * The commands of this sandbox, as the init sees them: one keeper and one channel each.
 *
 * The init keeps every command's channel open without reading it. It is used only if the keeper
 * comes to a violent end: then the daemon still hears how the command ended (adopted.c).
 */
#include "init.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>


static struct command *commands;
static unsigned command_count;

struct command *commands_first(void)
{
    return commands;
}

static struct command *command_new(const struct exec_request *request)
{
    struct command *command = command_count < COMMANDS_MAX ? calloc(1, sizeof *command) : NULL;
    if (command == NULL)
        return NULL;
    command->slot = mmap(NULL, sizeof *command->slot, PROT_READ | PROT_WRITE,
                         MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (command->slot == MAP_FAILED) {
        free(command);
        return NULL;
    }
    command->slot->stage = EXEC_STAGE_FORK;
    command->channel = request->channel;
    command->flags = request->flags;
    command->watch.limits = request->limits;
    command->next = commands;
    commands = command;
    command_count++;
    return command;
}

void command_drop(struct command *command)
{
    struct command **link = &commands;
    while (*link != command)
        link = &(*link)->next;
    *link = command->next;
    command_count--;
    close(command->channel);
    munmap(command->slot, sizeof *command->slot);
    free(command->noticed);
    free(command);
}

static void close_passed(const struct exec_request *request)
{
    if (request->filter >= 0)
        close(request->filter);
    if (request->cgroup >= 0)
        close(request->cgroup);
    if (request->terminal >= 0)
        close(request->terminal);
    for (int i = 0; i < 3; i++)
        if (request->stdio[i] >= 0)
            close(request->stdio[i]);
}

void commands_start(const struct exec_request *request, int signals)
{
    pid_t init = getpid();
    struct command *command = command_new(request);
    if (command == NULL) {
        send_exec_failed(request->channel, EXEC_STAGE_FORK, EAGAIN, "", false);
        close(request->channel);
        close_passed(request);
        return;
    }
    command->keeper = fork();
    if (command->keeper == 0)
        keeper_run(request, command->slot, signals, init);
    int error = errno;
    close_passed(request);
    if (command->keeper > 0)
        return;
    send_exec_failed(command->channel, EXEC_STAGE_FORK, error, "", false);
    command_drop(command);
}

static struct command *kept_by(pid_t pid)
{
    for (struct command *command = commands; command != NULL; command = command->next)
        if (!command->adopted && command->keeper == pid)
            return command;
    return NULL;
}

/* A keeper that is stopped could neither kill nor report: only its own command would stop it. */
static const char *on_keeper(struct command *command, int status, const struct usage *usage)
{
    if (WIFSTOPPED(status))
        kill(command->keeper, SIGKILL);
    else if (WIFEXITED(status) && WEXITSTATUS(status) == KEEPER_DONE)
        command_drop(command);
    else if (WIFEXITED(status) && WEXITSTATUS(status) == KEEPER_PROTOCOL_ERROR)
        return "malformed message on a command's channel";
    else
        adopted_take(command, usage);
    return NULL;
}

const char *commands_reap(void)
{
    int status;
    struct rusage rusage;
    pid_t pid;
    while ((pid = wait4(-1, &status, WNOHANG | WUNTRACED | __WALL, &rusage)) > 0) {
        struct command *command = kept_by(pid);
        struct usage usage = usage_of(&rusage);
        const char *wrong = NULL;
        if (command != NULL)
            wrong = on_keeper(command, status, &usage);
        else if (!WIFSTOPPED(status))
            adopted_orphan_reaped(pid, status, &usage);
        if (wrong != NULL)
            return wrong;
    }
    return NULL;
}
