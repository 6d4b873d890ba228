/*
 * The commands of this sandbox, as the init sees them: one reaper and one channel each.
 *
 * The init keeps every command's channel open without reading it. It is used only if there is no reaper,
 * or it is killed: the init then reports how the command ended (lone.c).
 */
#include "command.h"
#include "../process_tree/process_tree.h"
#include "../notify/notify.h"

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

struct command *command_new(bool lone)
{
    struct command *command = command_count < COMMANDS_MAX ? calloc(1, sizeof *command) : NULL;
    if (command == NULL)
        return NULL;
    command->lone = lone;
    command->start_state = lone ? &command->own_state
                                : mmap(NULL, sizeof *command->start_state, PROT_READ | PROT_WRITE,
                                       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (command->start_state == MAP_FAILED) {
        free(command);
        return NULL;
    }
    command->start_state->stage = EXEC_STAGE_FORK;
    command_count++;
    return command;
}

void command_free(struct command *command)
{
    command_count--;
    if (command->start_state != &command->own_state)
        munmap(command->start_state, sizeof *command->start_state);
    free(command->attempts);
    free(command);
}

static void command_add(struct command *command, const struct exec_request *request)
{
    command->channel = request->channel;
    command->flags = request->flags;
    limits_begin(&command->watch, &request->limits);
    stopped_start_watch(command);
    for (struct command *other = commands; other != NULL; other = other->next)
        other->start_state->shared = command->start_state->shared = true;
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
    bool lone = lone_fits(request), started;
    /* A sandbox that stays gets another command. */
    if (request->flags & EXEC_KEEP_BACKGROUND)
        prefork_soon();
    struct command *command = lone ? NULL : prefork_use(request, payload, length);
    if (command != NULL) {
        command_add(command, request);
        close_passed(request);
        return;
    }
    command = command_new(lone);
    if (command == NULL) {
        send_exec_failed(request->channel, EXEC_STAGE_FORK, EAGAIN, "", false);
        close(request->channel);
        close_passed(request);
        return;
    }
    command_add(command, request);
    if (lone)
        started = lone_start(command, request);
    else if ((command->reaper = fork()) == 0) {
        if (!reaper_subreaper(init))
            _exit(REAPER_UNUSED);
        reaper_run(request, command->start_state, signals, init);
    } else
        started = command->reaper > 0;
    int error = errno;
    close_passed(request);
    if (started)
        return;
    send_exec_failed(command->channel, EXEC_STAGE_FORK, error, "", false);
    command_drop(command);
}

static struct command *kept_by(pid_t pid)
{
    for (struct command *command = commands; command != NULL; command = command->next)
        if (!command->lone && command->reaper == pid)
            return command;
    return NULL;
}

/* A stopped reaper can neither kill nor report, and only a command would stop it. */
static const char *on_reaper(struct command *command, int status, const struct usage *usage)
{
    if (WIFSTOPPED(status))
        kill(command->reaper, SIGKILL);
    else if (WIFEXITED(status) && WEXITSTATUS(status) == REAPER_DONE)
        command_drop(command);
    else if (WIFEXITED(status) && WEXITSTATUS(status) == REAPER_PROTOCOL_ERROR)
        return "malformed message on a command's channel";
    else
        lone_take(command, usage);
    return NULL;
}

/* The prefork ended, or a command stopped it. */
static void on_prefork(const struct command *prefork, int status)
{
    if (WIFSTOPPED(status))
        kill(prefork->reaper, SIGKILL);
    else {
        prefork_lost();
        prefork_soon();
    }
}

const char *commands_reap(bool *hole, bool *unreaped)
{
    int status;
    struct rusage rusage;
    *unreaped = true;
    for (int count = 0; count < REAPED_AT_ONCE; count++) {
        pid_t pid = wait4(-1, &status, WNOHANG | WUNTRACED | __WALL, &rusage);
        *unreaped = pid > 0;
        if (pid <= 0)
            break;
        struct command *command = kept_by(pid);
        struct usage usage = usage_of(&rusage);
        const char *wrong = NULL;
        const struct command *prefork = prefork_waiting();
        if (prefork != NULL && prefork->reaper == pid)
            on_prefork(prefork, status);
        else if (command != NULL && WIFEXITED(status) && WEXITSTATUS(status) == REAPER_LOST)
            *hole = true;
        else if (command != NULL)
            wrong = on_reaper(command, status, &usage);
        else if (!WIFSTOPPED(status) && !proxied_connect_reaped(pid))
            lone_reaped(pid, status, &usage);
        if (wrong != NULL)
            return wrong;
    }
    return NULL;
}
