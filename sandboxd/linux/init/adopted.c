/*
 * Commands whose keeper was killed, which a command can do (`kill -9 -1`: same uid).
 *
 * Their processes are children of the init now. The init reports the end of the main process as
 * exactly as the keeper would have, keeps the limits, and answers the channel. It can no longer tell
 * the orphans of one such command from those of another: when one ends, all orphans end, except
 * what lies below another's main process.
 */
#include "init.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define KILL_PAUSE_MS 20

static bool kept(const struct command *command)
{
    return !command->adopted;
}

/* What is not this command's: the trees of living keepers, and of other living main processes. */
static struct pid_list others_than(const struct command *mine)
{
    struct pid_list others = {0};
    for (struct command *other = commands_first(); other != NULL; other = other->next) {
        if (kept(other))
            pid_list_add(&others, other->keeper);
        else if (other != mine && !other->main_ended)
            pid_list_add(&others, other->slot->main_pid);
    }
    if (spare_waiting() != NULL)
        pid_list_add(&others, spare_waiting()->keeper);
    return others;
}

static void report_exit(struct command *command)
{
    if (!command->slot->exit_reported)
        send_exited(command->channel, command->main_status, &command->main_usage, false);
    command->slot->exit_reported = true;
    command->ending = true;
}

/* Before the daemon was told that it started: no terminal to hand over, or no process at all. */
static void give_up_start(struct command *command)
{
    uint32_t stage = command->flags & EXEC_PTY ? EXEC_STAGE_PTY : EXEC_STAGE_FORK;
    send_exec_failed(command->channel, stage, EINTR, "", false);
    command->failed = true;
    command->ending = true;
}

void adopted_take(struct command *command, const struct usage *keeper_usage)
{
    pid_t main_pid = command->slot->main_pid;
    command->adopted = true;
    usage_add(&command->tree_usage, keeper_usage);
    command->watch.next_check_ms = now_ms();
    if (!command->slot->started) {
        bool executed = main_pid > 0 && command->slot->stage == EXEC_STAGE_EXEC;
        if (!executed || (command->flags & EXEC_PTY)) {
            give_up_start(command);
            return;
        }
        send_started(command->channel, main_pid, -1, false);
        command->slot->started = true;
    }
    if (command->slot->exit_reported)
        command->main_ended = true;
    if (command->main_ended)
        report_exit(command);
    /* Reaped by the keeper, which was killed before it could say so: the status is lost. */
    else if (kill(main_pid, 0) != 0 && errno == ESRCH)
        command->main_ended = command->ending = true;
}

/* May come before the news that the keeper is dead: children are reaped in no special order. */
void adopted_orphan_reaped(pid_t pid, int status, const struct usage *usage)
{
    for (struct command *command = commands_first(); command != NULL; command = command->next) {
        if (command->adopted)
            usage_add(&command->tree_usage, usage);
        if (command->slot->main_pid != pid || command->main_ended)
            continue;
        if (!command->adopted)
            usage_add(&command->tree_usage, usage);
        command->main_ended = true;
        command->main_status = status;
        command->main_usage = *usage;
        if (command->adopted && !command->failed)
            report_exit(command);
    }
}

const char *adopted_receive(struct command *command)
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
        tree_signal(&request, command->slot->main_pid, command->main_ended,
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
    else if (!command->failed)
        send_gone(command->channel, &command->tree_usage, false);
    return gone;
}

void adopted_advance(void)
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

int adopted_timeout_ms(void)
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
