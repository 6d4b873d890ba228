/*
 * The next command's reaper and child, forked before the command arrives.
 *
 * The reaper waits for the channel and the limits, the child for the request. So starting a command
 * costs no fork, and no load of a filter. In a pid namespace the child of the first command is the
 * init's own, and there is no reaper: the sandbox may not stay (lone.c). A command of the same uid can kill or stop a prefork; the next command then starts
 * without one.
 */
#include "command.h"
#include "../process_tree/process_tree.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* A short command has ended by then, so the forks do not slow it. */
#define AFTER_MS 5

/* Requests that a prefork cannot serve: with a terminal or a tracer. */
#define NOT_FOR_SPARES (EXEC_PTY | EXEC_EXPLAIN)

/* After so many preforks that ended unused, none is made until the next command. */
#define LOST_MAX 8

static struct command *prefork;
static bool permitted;
static bool stays;
static unsigned lost_in_a_row;
static int expected = -1;
static dev_t expected_device;
static ino_t expected_inode;
static int to_other = -1, to_child = -1;
static uint64_t due_ms;

struct command *prefork_waiting(void)
{
    return prefork;
}

static noreturn void child_wait(struct start_state *start_state, int report, int hand, pid_t reaper)
{
    struct message message;
    struct exec_request request;
    /* A stopped orphan would never read that its reaper is gone. */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) != 0 || getppid() != reaper)
        _exit(127);
    if (expected >= 0 && !child_load_ahead(expected, start_state))
        _exit(127);
    int keep[] = {report, hand};
    close_all_but(keep, 2);
    struct pollfd given = {.fd = hand, .events = POLLIN};
    enum receipt receipt;
    do {
        if (poll(&given, 1, -1) < 0 && errno != EINTR)
            _exit(127);
        receipt = wire_receive(hand, &message);
    } while (receipt == RECEIPT_NOTHING);
    if (receipt != RECEIPT_MESSAGE || decode_exec(&message, &request) != NULL)
        _exit(127);
    /* From here on the reaper reports its end, or the init if the reaper is dead. */
    prctl(PR_SET_PDEATHSIG, 0, 0, 0, 0);
    child_run(&request, start_state, -1, report, -1);
}

/* True with the handover; false when there will be none. The reaper's message is sent before the
 * child's: a child that died without one here had not started. */
static bool handed_over(int hand, int signals, pid_t child, pid_t init, struct message *message)
{
    for (;;) {
        struct pollfd fds[2] = {{.fd = hand, .events = POLLIN}, {.fd = signals, .events = POLLIN}};
        if (poll(fds, 2, -1) < 0) {
            if (errno != EINTR)
                return false;
            continue;
        }
        enum receipt receipt = wire_receive(hand, message);
        if (receipt != RECEIPT_NOTHING)
            return receipt == RECEIPT_MESSAGE;
        struct signalfd_siginfo infos[4];
        ssize_t ignored = read(signals, infos, sizeof infos);
        (void)ignored;
        siginfo_t info = {0};
        if (getppid() != init ||
            (waitid(P_PID, (id_t)child, &info, WEXITED | WSTOPPED | WNOHANG | WNOWAIT) == 0 &&
             info.si_pid != 0))
            return false;
    }
}

static noreturn void reaper_wait(struct start_state *start_state, int signals, pid_t init, const int hands[2])
{
    static struct exec_request request = {.filter = -1, .cgroup = -1, .terminal = -1,
                                          .stdio = {-1, -1, -1}};
    struct message message;
    int report[2];
    if (!reaper_subreaper(init) || pipe2(report, O_CLOEXEC) != 0)
        _exit(REAPER_UNUSED);
    pid_t reaper = getpid(), child = fork();
    if (child == 0)
        child_wait(start_state, report[1], hands[1], reaper);
    start_state->fork_refused = child < 0;
    int keep[] = {hands[0], signals, report[0]};
    close_all_but(keep, 3);
    if (child < 0 || !handed_over(hands[0], signals, child, init, &message) ||
        message.length != sizeof request.flags + sizeof request.limits || message.fd_count != 1) {
        if (child > 0)
            kill(child, SIGKILL);
        _exit(REAPER_UNUSED);
    }
    close(hands[0]);
    memcpy(&request.flags, message.payload, sizeof request.flags);
    memcpy(&request.limits, message.payload + sizeof request.flags, sizeof request.limits);
    request.channel = message.fds[0];
    reaper_go_on(&request, start_state, signals, init, child, report[0]);
}

/* The C library's would write to five pages of the child. It does so for threads, which the init has not. */
static pid_t bare_fork(void)
{
    return (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
}

void prefork_make(int signals)
{
    pid_t init = getpid();
    /* The second pair is to the reaper, or else the report of a child without one. */
    int child[2], other[2];
    bool lone = init == 1 && !stays;
    due_ms = 0;
    if (!permitted || prefork != NULL || lost_in_a_row == LOST_MAX ||
        socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, child) != 0)
        return;
    if ((lone ? pipe2(other, O_CLOEXEC)
              : socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, other)) != 0) {
        close(child[0]);
        close(child[1]);
        return;
    }
    to_other = other[0];
    to_child = child[0];
    prefork = command_new();
    if (prefork != NULL)
        prefork->lone = lone;
    if (prefork != NULL && (prefork->reaper = bare_fork()) == 0) {
        if (lone)
            child_wait(prefork->start_state, other[1], child[1], init);
        reaper_wait(prefork->start_state, signals, init, (int[]){other[1], child[1]});
    }
    close(other[1]);
    close(child[1]);
    if (prefork == NULL || prefork->reaper < 0)
        prefork_lost();
}

/* Takes the descriptor. */
static void expect(int filter)
{
    struct stat file;
    expected = filter;
    if (filter >= 0 && fstat(filter, &file) == 0) {
        expected_device = file.st_dev;
        expected_inode = file.st_ino;
    } else if (filter >= 0) {
        close(filter);
        expected = -1;
    }
}

void prefork_permit(int filter)
{
    permitted = true;
    due_ms = 1; /* after READY */
    expect(filter);
}

/* A filter cannot be removed: the one that was loaded must be the command's. */
static bool filter_fits(const struct exec_request *request)
{
    struct stat file;
    if (expected < 0 || request->filter < 0)
        return expected < 0;
    return fstat(request->filter, &file) == 0 && file.st_dev == expected_device &&
           file.st_ino == expected_inode;
}

/* Closing the socket makes the child end. */
void prefork_lost(void)
{
    lost_in_a_row++;
    close(to_other);
    close(to_child);
    to_other = to_child = -1;
    if (prefork != NULL)
        command_free(prefork);
    prefork = NULL;
}

/* The next preforks load this command's filter, if it may be loaded before the exec. */
static void expect_like(const struct exec_request *request)
{
    if ((request->flags & EXEC_FILTER_AHEAD) == 0)
        return;
    if (expected >= 0)
        close(expected);
    expect(request->filter >= 0 ? fcntl(request->filter, F_DUPFD_CLOEXEC, 3) : -1);
    if (prefork == NULL)
        return;
    kill(prefork->reaper, SIGKILL);
    prefork_lost();
}

/* In the order in which they came. */
static unsigned passed_on(const struct exec_request *request, int fds[WIRE_FDS_MAX])
{
    unsigned count = 0;
    fds[count++] = request->channel;
    if (request->filter >= 0)
        fds[count++] = request->filter;
    if (request->cgroup >= 0)
        fds[count++] = request->cgroup;
    for (int i = 0; i < 3; i++)
        fds[count++] = request->stdio[i];
    return count;
}

struct command *prefork_use(const struct exec_request *request, const uint8_t *payload,
                          uint32_t length)
{
    struct command *command = prefork;
    uint8_t handover[sizeof request->flags + sizeof request->limits];
    lost_in_a_row = 0;
    if (!filter_fits(request)) {
        expect_like(request);
        return NULL;
    }
    if (command == NULL || payload == NULL || (request->flags & NOT_FOR_SPARES))
        return NULL;
    memcpy(handover, &request->flags, sizeof request->flags);
    memcpy(handover + sizeof request->flags, &request->limits, sizeof request->limits);
    bool usable = command->lone ? lone_fits(request)
                                : wire_send(to_other, MESSAGE_EXEC, handover, sizeof handover,
                                            request->channel, false);
    if (!usable) {
        kill(command->reaper, SIGKILL);
        prefork_lost();
        return NULL;
    }
    int fds[WIRE_FDS_MAX];
    unsigned count = passed_on(request, fds);
    if (!wire_send_fds(to_child, MESSAGE_EXEC, payload, length, fds, count, false) &&
        errno != EPIPE && errno != ECONNRESET) {
        kill(command->reaper, SIGKILL);
        prefork_lost();
        return NULL;
    }
    /* The reaper, or the init in its place, reports a dead child. */
    if (command->lone)
        lone_begin(command, command->reaper, to_other);
    else
        close(to_other);
    close(to_child);
    to_other = to_child = -1;
    prefork = NULL;
    return command;
}

void prefork_soon(bool sandbox_stays)
{
    stays = stays || sandbox_stays;
    due_ms = now_ms() + AFTER_MS;
}

int prefork_timeout_ms(void)
{
    if (due_ms == 0)
        return -1;
    uint64_t now = now_ms();
    return due_ms > now ? (int)(due_ms - now) : 0;
}
