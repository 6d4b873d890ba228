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

struct command *command_new(void)
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
    command_count++;
    return command;
}

void command_free(struct command *command)
{
    command_count--;
    munmap(command->slot, sizeof *command->slot);
    free(command->noticed);
    free(command);
}

static void command_add(struct command *command, const struct exec_request *request)
{
    command->channel = request->channel;
    command->flags = request->flags;
    command->watch.limits = request->limits;
    command->next = commands;
    commands = command;
}

void command_drop(struct command *command)
{
    struct command **link = &commands;
    while (*link != command)
        link = &(*link)->next;
    *link = command->next;
    close(command->channel);
    command_free(command);
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

void commands_start(const struct exec_request *request, const uint8_t *payload, uint32_t length,
                    int signals)
{
    pid_t init = getpid();
    /* A sandbox that stays gets another command. */
    if (request->flags & EXEC_KEEP_BACKGROUND)
        spare_soon();
    struct command *command = spare_use(request, payload, length);
    if (command != NULL) {
        command_add(command, request);
        close_passed(request);
        return;
    }
    command = command_new();
    if (command == NULL) {
        send_exec_failed(request->channel, EXEC_STAGE_FORK, EAGAIN, "", false);
        close(request->channel);
        close_passed(request);
        return;
    }
    command_add(command, request);
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

/* The spare: it is gone, or a command stopped it. */
static void on_spare(const struct command *spare, int status)
{
    if (WIFSTOPPED(status))
        kill(spare->keeper, SIGKILL);
    else {
        spare_lost();
        spare_soon();
    }
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
        const struct command *spare = spare_waiting();
        if (spare != NULL && spare->keeper == pid)
            on_spare(spare, status);
        else if (command != NULL)
            wrong = on_keeper(command, status, &usage);
        else if (!WIFSTOPPED(status))
            adopted_orphan_reaped(pid, status, &usage);
        if (wrong != NULL)
            return wrong;
    }
    return NULL;
}
