/*
 * Commands without a reaper: the init looks after them itself.
 *
 * In a pid namespace a command that is alone needs none: all its processes are below the init, which no
 * command can kill. And a command can kill its reaper (`kill -9 -1`: same uid); its processes are then
 * children of the init. Either way the init reports the start and the exact end of the main process,
 * enforces the limits, and answers the channel. It cannot distinguish the processes of one such command
 * from those of another: when one ends, all are killed, except those below another command's main
 * process.
 */
#include "command.h"
#include "../notify/notify.h"
#include "../process_tree/process_tree.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define KILL_PAUSE_MS 20

static bool kept(const struct command *command)
{
    return !command->lone;
}

bool lone_fits(const struct exec_request *request)
{
    return getpid() == 1 && commands_first() == NULL &&
           (request->flags & (EXEC_PTY | EXEC_EXPLAIN | EXEC_KEEP_BACKGROUND | EXEC_FILES)) == 0;
}

/* False with errno. */
bool lone_start(struct command *command, const struct exec_request *request)
{
    const struct exec_report *failure;
    pid_t child = child_vfork(request, command->start_state, -1, &failure);
    if (child < 0)
        return false;
    command->start_due_ms = now_ms() + START_AFTER_MS;
    if (failure != NULL) {
        send_exec_failed(command->channel, failure->stage, failure->error, failure->path, false);
        command->failed = command->ending = true;
    }
    return true;
}

/* Excluded: the trees of living reapers, and of other living main processes. */
static struct pid_list others_than(const struct command *mine)
{
    struct pid_list others = {0};
    for (struct command *other = commands_first(); other != NULL; other = other->next) {
        if (kept(other))
            pid_list_add(&others, other->reaper);
        else if (other != mine && !other->main_ended)
            pid_list_add(&others, other->start_state->main_pid);
    }
    if (prefork_waiting() != NULL)
        pid_list_add(&others, prefork_waiting()->reaper);
    proxied_connect_list(&others);
    return others;
}

static void report_start(struct command *command)
{
    if (command->start_state->started)
        return;
    command->start_state->started = true;
    send_started(command->channel, command->start_state->main_pid, -1, false);
}

static bool no_child_left(void)
{
    siginfo_t info;
    return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT | __WALL) != 0 && errno == ECHILD;
}

/* The daemon is woken once: what takes time is done before the first message. */
static void report_exit(struct command *command)
{
    if (!command->start_state->exit_reported) {
        mount_check_demand();
        command->verified = true;
        command->gone_reported = no_child_left();
        report_start(command);
        report_full(command->channel, 0, command->main_status, false);
        send_exited(command->channel, command->main_status, &command->main_usage, false);
        if (command->gone_reported)
            send_gone(command->channel, &command->tree_usage, false);
        else if (!command->ending && (command->flags & EXEC_KEEP_BACKGROUND) == 0)
            command->left_until_ms = now_ms() + LEFT_GRACE_MS;
    }
    command->start_state->exit_reported = true;
    command->ending = true;
}

/* Before STARTED was sent: there is no terminal to hand over, or no process at all. */
static void give_up_start(struct command *command)
{
    bool forked = command->start_state->main_pid > 0;
    uint32_t stage = forked && command->flags & EXEC_PTY ? EXEC_STAGE_PTY : EXEC_STAGE_FORK;
    send_exec_failed(command->channel, stage, EINTR, "", false);
    command->failed = true;
    command->ending = true;
}

void lone_take(struct command *command, const struct usage *reaper_usage)
{
    pid_t main_pid = command->start_state->main_pid;
    command->lone = true;
    usage_add(&command->tree_usage, reaper_usage);
    if (!command->start_state->started) {
        bool executed = main_pid > 0 && command->start_state->stage == EXEC_STAGE_EXEC;
        if (!executed || (command->flags & EXEC_PTY)) {
            give_up_start(command);
            return;
        }
        report_start(command);
    }
    if (command->start_state->exit_reported)
        command->main_ended = true;
    /* The reaper had reaped it and was killed before it reported. */
    else if (!command->main_ended && kill(main_pid, 0) != 0 && errno == ESRCH) {
        command->main_ended = command->ending = true;
        if (!command->start_state->status_known)
            return;
        command->main_status = command->start_state->main_status;
    }
    if (command->main_ended)
        report_exit(command);
}

/* May arrive before the death of the reaper: children are reaped in no special order. */
void lone_reaped(pid_t pid, int status, const struct usage *usage)
{
    for (struct command *command = commands_first(); command != NULL; command = command->next) {
        if (command->lone)
            usage_add(&command->tree_usage, usage);
        if (command->start_state->main_pid != pid || command->main_ended)
            continue;
        if (!command->lone)
            usage_add(&command->tree_usage, usage);
        command->main_ended = true;
        command->main_status = status;
        command->main_usage = *usage;
        if (command->lone && !command->failed)
            report_exit(command);
    }
}

bool lone_polled(const struct command *command)
{
    return command->lone && !command->channel_ended;
}

const char *lone_receive(struct command *command)
{
    struct message message;
    struct signal_request request;
    switch (wire_receive(command->channel, &message)) {
    case RECEIPT_NOTHING:
        return NULL;
    case RECEIPT_END:
        command->channel_ended = command->ending = true;
        command->left_until_ms = 0;
        return NULL;
    case RECEIPT_MALFORMED:
        return "malformed message on a command's channel";
    case RECEIPT_MESSAGE:
        break;
    }
    const char *wrong = NULL;
    if (message.type == MESSAGE_KILL && message.length == 0) {
        command->ending = true;
        command->left_until_ms = 0;
    } else if (message.type != MESSAGE_SIGNAL)
        wrong = "unexpected message on a command's channel";
    else if ((wrong = decode_signal(&message, &request)) == NULL) {
        struct pid_list others = others_than(command);
        tree_signal(&request, command->start_state->main_pid, command->main_ended,
                    command->flags & EXEC_PTY, &others);
        free(others.at);
    }
    wire_release(&message);
    return wrong;
}

static void check_limits(struct command *command, const struct pid_list *others)
{
    uint64_t reaped_us = command->tree_usage.user_us + command->tree_usage.system_us;
    uint32_t exceeded = limits_check(&command->watch, reaped_us, others);
    struct pid_list list = {0};
    if (exceeded == 0)
        return;
    /* Stop the tree first: one that forks fast would outrun the next steps. */
    if (exceeded == LIMIT_PROCESSES && (command->start_state->shared || !namespace_stop()))
        tree_freeze(&list, others);
    free(list.at);
    /* LIMIT is sent after STARTED, never before. */
    report_start(command);
    send_limit(command->channel, exceeded, false);
    command->ending = true;
}

static bool nothing_below(const struct pid_list *others)
{
    struct pid_list left = {0};
    if (no_child_left())
        return true;
    procs_below(&left, others);
    free(left.at);
    return left.count == 0;
}

/* What it left has had its moment to end by itself. */
static void report_left(struct command *command, const struct pid_list *others)
{
    struct left left = {0};
    command->left_until_ms = 0;
    left_look(&left, others);
    if (left.count > 0)
        send_left(command->channel, &left, false);
}

/* True when nothing of it is left and the daemon has been told. */
static bool end(struct command *command, const struct pid_list *others)
{
    bool gone = (command->main_ended || command->failed) && nothing_below(others);
    if (!gone && now_ms() < command->left_until_ms)
        return false;
    if (!gone) {
        if (command->left_until_ms != 0)
            report_left(command, others);
        tree_kill(others);
        /* What outlived the main process may have used a mount that was lost after its exit. */
        command->verified = false;
    } else if (!command->failed && !command->gone_reported) {
        if (!command->verified)
            mount_check_demand();
        send_gone(command->channel, &command->tree_usage, false);
    }
    return gone;
}

void lone_advance(void)
{
    for (struct command *command = commands_first(), *next; command != NULL; command = next) {
        next = command->next;
        if (kept(command))
            continue;
        if (!command->failed && now_ms() >= command->start_due_ms)
            report_start(command);
        struct pid_list others = others_than(command);
        if (!command->ending && limits_timeout_ms(&command->watch) == 0)
            check_limits(command, &others);
        if (command->ending && end(command, &others))
            command_drop(command);
        free(others.at);
    }
}

int lone_timeout_ms(void)
{
    int soonest = -1;
    for (struct command *command = commands_first(); command != NULL; command = command->next) {
        if (kept(command))
            continue;
        uint64_t now = now_ms();
        int timeout = command->ending ? KILL_PAUSE_MS : limits_timeout_ms(&command->watch);
        if (command->left_until_ms > now)
            timeout = (int)(command->left_until_ms - now);
        if (!command->start_state->started && now < command->start_due_ms)
            timeout = sooner(timeout, (int)(command->start_due_ms - now));
        soonest = sooner(soonest, timeout);
    }
    return soonest;
}
