/*
 * Commands whose reaper was killed, which a command can do (`kill -9 -1`: same uid).
 *
 * Their processes are then children of the init. The init reports the end of the main process as
 * exactly as the reaper would have, enforces the limits, and answers the channel. It cannot distinguish
 * the orphans of one such command from those of another: when one command ends, all orphans are killed,
 * except those below another command's main process.
 */
#include "command.h"
#include "../process_tree/process_tree.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define KILL_PAUSE_MS 20

static bool kept(const struct command *command)
{
    return !command->orphaned;
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
    return others;
}

static void report_exit(struct command *command)
{
    if (!command->start_state->exit_reported) {
        mount_check_demand();
        send_exited(command->channel, command->main_status, &command->main_usage, false);
    }
    command->start_state->exit_reported = true;
    command->ending = true;
}

/* Before STARTED was sent: there is no terminal to hand over, or no process at all. The reaper of a
 * prefork whose child could not be forked (too many processes) ends without a message; otherwise one
 * of them was killed. */
static void give_up_start(struct command *command)
{
    bool forked = command->start_state->main_pid > 0;
    uint32_t stage = forked && command->flags & EXEC_PTY ? EXEC_STAGE_PTY : EXEC_STAGE_FORK;
    int error = command->start_state->fork_refused ? EAGAIN : EINTR;
    send_exec_failed(command->channel, stage, error, "", false);
    command->failed = true;
    command->ending = true;
}

void orphans_take(struct command *command, const struct usage *reaper_usage)
{
    pid_t main_pid = command->start_state->main_pid;
    command->orphaned = true;
    usage_add(&command->tree_usage, reaper_usage);
    if (!command->start_state->started) {
        bool executed = main_pid > 0 && command->start_state->stage == EXEC_STAGE_EXEC;
        if (!executed || (command->flags & EXEC_PTY)) {
            give_up_start(command);
            return;
        }
        send_started(command->channel, main_pid, -1, false);
        command->start_state->started = true;
    }
    if (command->start_state->exit_reported)
        command->main_ended = true;
    if (command->main_ended)
        report_exit(command);
    /* The reaper had reaped it and was killed before it reported: the status is lost. */
    else if (kill(main_pid, 0) != 0 && errno == ESRCH)
        command->main_ended = command->ending = true;
}

/* May arrive before the death of the reaper: children are reaped in no special order. */
void orphans_reaped(pid_t pid, int status, const struct usage *usage)
{
    for (struct command *command = commands_first(); command != NULL; command = command->next) {
        if (command->orphaned)
            usage_add(&command->tree_usage, usage);
        if (command->start_state->main_pid != pid || command->main_ended)
            continue;
        if (!command->orphaned)
            usage_add(&command->tree_usage, usage);
        command->main_ended = true;
        command->main_status = status;
        command->main_usage = *usage;
        if (command->orphaned && !command->failed)
            report_exit(command);
    }
}

const char *orphans_receive(struct command *command)
{
    struct message message;
    struct signal_request request;
    switch (wire_receive(command->channel, &message)) {
    case RECEIPT_NOTHING:
        return NULL;
    case RECEIPT_END:
        command->channel_ended = command->ending = true;
        return NULL;
    case RECEIPT_MALFORMED:
        return "malformed message on a command's channel";
    case RECEIPT_MESSAGE:
        break;
    }
    const char *wrong = NULL;
    if (message.type == MESSAGE_KILL && message.length == 0)
        command->ending = true;
    else if (message.type != MESSAGE_SIGNAL)
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
    if (exceeded == 0)
        return;
    send_limit(command->channel, exceeded, false);
    command->ending = true;
}

/* True when nothing of it is left and the daemon has been told. */
static bool end(struct command *command, const struct pid_list *others)
{
    struct pid_list left = {0};
    procs_below(&left, others);
    bool gone = left.count == 0 && (command->main_ended || command->failed);
    free(left.at);
    if (!gone)
        tree_kill(others);
    else if (!command->failed) {
        mount_check_demand();
        send_gone(command->channel, &command->tree_usage, false);
    }
    return gone;
}

void orphans_advance(void)
{
    for (struct command *command = commands_first(), *next; command != NULL; command = next) {
        next = command->next;
        if (kept(command))
            continue;
        struct pid_list others = others_than(command);
        if (!command->ending && limits_timeout_ms(&command->watch) == 0)
            check_limits(command, &others);
        if (command->ending && end(command, &others))
            command_drop(command);
        free(others.at);
    }
}

int orphans_timeout_ms(void)
{
    int soonest = -1;
    for (struct command *command = commands_first(); command != NULL; command = command->next) {
        if (kept(command))
            continue;
        int timeout = command->ending ? KILL_PAUSE_MS : limits_timeout_ms(&command->watch);
        if (timeout >= 0 && (soonest < 0 || timeout < soonest))
            soonest = timeout;
    }
    return soonest;
}
