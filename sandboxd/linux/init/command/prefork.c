/*
 * The next command's reaper, forked before the command arrives: starting it then takes no fork that copies
 * memory. In a pid namespace there is none before a command has said that the sandbox stays: the first one
 * needs no reaper (lone.c). A command of the same uid can kill or stop a prefork, or take its CPU time; the
 * next command then starts without one.
 */
#include "command.h"
#include "../process_tree/process_tree.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

/* A short command has ended by then, so the fork does not slow it. */
#define AFTER_MS 5

/* After so many preforks that ended unused, none is made until the next command. */
#define LOST_MAX 8

static struct command *prefork;
static bool permitted;
static unsigned lost_in_a_row;
static int hand = -1;
static int used = -1; /* the one of the last command */
static uint64_t due_ms;

struct command *prefork_waiting(void)
{
    return prefork;
}

/* The init's end of the socket closes with it. */
static noreturn void reaper_wait(struct start_state *start_state, int signals, pid_t init, int given)
{
    static struct exec_request request;
    struct message message;
    enum receipt receipt;
    int keep[] = {given, signals};
    close_all_but(keep, 2);
    if (!reaper_subreaper(init))
        _exit(REAPER_UNUSED);
    do {
        struct pollfd readable = {.fd = given, .events = POLLIN};
        if (poll(&readable, 1, -1) < 0 && errno != EINTR)
            _exit(REAPER_UNUSED);
        receipt = wire_receive(given, &message);
    } while (receipt == RECEIPT_NOTHING);
    if (receipt != RECEIPT_MESSAGE || decode_exec(&message, &request) != NULL)
        _exit(REAPER_UNUSED);
    close(given);
    reaper_run(&request, start_state, signals, init);
}

/* The C library's would write to five pages of the child. It does so for threads, which the init has not. */
static pid_t bare_fork(void)
{
    return (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
}

/* Closing a socket through which descriptors are on their way wakes the kernel's collector, so it is closed
 * when its reaper has long received them. */
static void close_used(void)
{
    if (used >= 0)
        close(used);
    used = -1;
}

void prefork_make(int signals)
{
    pid_t init = getpid();
    int ends[2];
    due_ms = 0;
    close_used();
    if (!permitted || prefork != NULL || lost_in_a_row == LOST_MAX ||
        socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
        return;
    hand = ends[0];
    prefork = command_new(false);
    if (prefork != NULL && (prefork->reaper = bare_fork()) == 0)
        reaper_wait(prefork->start_state, signals, init, ends[1]);
    close(ends[1]);
    if (prefork == NULL || prefork->reaper < 0)
        prefork_lost();
}

void prefork_permit(void)
{
    permitted = true;
    due_ms = getpid() == 1 ? 0 : 1; /* after READY */
}

/* Closing the socket makes the reaper end. */
void prefork_lost(void)
{
    lost_in_a_row++;
    close(hand);
    hand = -1;
    if (prefork != NULL)
        command_free(prefork);
    prefork = NULL;
}

/* In the order in which they came. */
static unsigned passed_on(const struct exec_request *request, int fds[WIRE_FDS_MAX])
{
    const int all[] = {request->channel,  request->filter,   request->cgroup,  request->terminal,
                       request->stdio[0], request->stdio[1], request->stdio[2]};
    unsigned count = 0;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (all[i] >= 0)
            fds[count++] = all[i];
    return count;
}

/* What a process passes on to those that it forks, and others of its user can set. */
struct scheduling {
    uint8_t attributes[128], cpus[1024];
    long io;
};

static bool read_scheduling(pid_t pid, struct scheduling *found)
{
    enum { OF_A_PROCESS = 1 };
    memset(found, 0, sizeof *found);
    found->io = syscall(SYS_ioprio_get, OF_A_PROCESS, pid);
    return syscall(SYS_sched_getattr, pid, found->attributes, sizeof found->attributes, 0) == 0 &&
           syscall(SYS_sched_getaffinity, pid, sizeof found->cpus, found->cpus) > 0;
}

/* An earlier command may have changed it, and the next one would inherit that. */
static bool is_as_forked(pid_t reaper)
{
    struct scheduling ours, its;
    return read_scheduling(getpid(), &ours) && read_scheduling(reaper, &its) &&
           memcmp(&ours, &its, sizeof ours) == 0;
}

struct command *prefork_use(const struct exec_request *request, const uint8_t *payload,
                          uint32_t length)
{
    struct command *command = prefork;
    int fds[WIRE_FDS_MAX];
    lost_in_a_row = 0;
    if (command == NULL || payload == NULL)
        return NULL;
    unsigned count = passed_on(request, fds);
    if (!is_as_forked(command->reaper) ||
        !wire_send_fds(hand, MESSAGE_EXEC, payload, length, fds, count, false)) {
        kill(command->reaper, SIGKILL);
        prefork_lost();
        return NULL;
    }
    close_used();
    used = hand;
    hand = -1;
    prefork = NULL;
    return command;
}

void prefork_soon(void)
{
    due_ms = now_ms() + AFTER_MS;
}

int prefork_timeout_ms(void)
{
    if (due_ms == 0)
        return -1;
    uint64_t now = now_ms();
    return due_ms > now ? (int)(due_ms - now) : 0;
}
