/*
 * The keeper of one command: subreaper of its tree, and the other end of its channel.
 *
 * Whatever the command forks, however it detaches, stays below the keeper; so the tree can be
 * counted, limited, signalled and killed as one, and the daemon hears GONE only when nobody is left.
 * The keeper sleeps in poll; it wakes on its own only to check limits.
 */
#include "init.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define KILL_PAUSE_MS 5

struct keeper {
    const struct exec_request *request;
    struct slot *slot;
    struct limit_watch watch;
    pid_t init;
    pid_t main_pid;
    int channel;
    int signals;
    int report;
    int master;
    bool started;
    bool main_ended;
};

static noreturn void fail(const struct keeper *keeper, uint32_t stage, int error, const char *path)
{
    send_exec_failed(keeper->channel, stage, error, path, true);
    _exit(KEEPER_DONE);
}

static noreturn void finish(const struct keeper *keeper)
{
    struct rusage rusage;
    getrusage(RUSAGE_CHILDREN, &rusage);
    struct usage usage = usage_of(&rusage);
    refusals_flush(keeper->channel);
    send_gone(keeper->channel, &usage, true);
    _exit(KEEPER_DONE);
}

/* The slot is marked before the message is sent, here and below. Should the command kill the
 * keeper in between, that message is lost; marked after, it would often be sent twice: sending
 * wakes the daemon, and the keeper may not run again before it is killed. */

/* The report pipe has data: a failure; or it is closed: the command was executed, or it died. */
static void learn_start(struct keeper *keeper)
{
    struct exec_report failure;
    memset(&failure, 0, sizeof failure);
    ssize_t size = read(keeper->report, &failure, sizeof failure - 1);
    if (size < 0 && errno == EINTR)
        return;
    close(keeper->report);
    keeper->report = -1;
    bool failed = size >= (ssize_t)offsetof(struct exec_report, path);
    if (failed || keeper->slot->stage != EXEC_STAGE_EXEC)
        waitpid(keeper->main_pid, NULL, __WALL);
    if (failed)
        fail(keeper, failure.stage, failure.error, failure.path);
    /* Killed before it got there: there was no command. */
    if (keeper->slot->stage != EXEC_STAGE_EXEC)
        fail(keeper, keeper->slot->stage, EINTR, "");
    keeper->started = keeper->slot->started = true;
    send_started(keeper->channel, keeper->main_pid, keeper->master, true);
    if (keeper->master >= 0)
        close(keeper->master);
    keeper->master = -1;
}

static void report_exit(struct keeper *keeper, int status, const struct rusage *rusage)
{
    struct usage usage = usage_of(rusage);
    while (!keeper->started)
        learn_start(keeper);
    refusals_flush(keeper->channel);
    keeper->main_ended = keeper->slot->exit_reported = true;
    send_exited(keeper->channel, status, &usage, true);
}

static int raw_status(const siginfo_t *info)
{
    if (info->si_code == CLD_EXITED)
        return (info->si_status & 0xff) << 8;
    return info->si_status | (info->si_code == CLD_DUMPED ? 0x80 : 0);
}

/* The stops of a traced process are reported too, asked for or not. */
static bool ended(const siginfo_t *info)
{
    return info->si_code == CLD_EXITED || info->si_code == CLD_KILLED || info->si_code == CLD_DUMPED;
}

/* Main stays a zombie until its exit is on the wire: should the command kill the keeper in
 * between, the init inherits the zombie and can still tell. */
static void look_at_main(struct keeper *keeper)
{
    siginfo_t info;
    struct rusage rusage;
    memset(&info, 0, sizeof info);
    if (syscall(SYS_waitid, P_PID, keeper->main_pid, &info, WEXITED | WNOHANG | WNOWAIT | __WALL,
                &rusage) == 0 &&
        info.si_pid == keeper->main_pid && ended(&info))
        report_exit(keeper, raw_status(&info), &rusage);
}

/* True when nobody is left. */
static bool reap(struct keeper *keeper)
{
    int status;
    struct rusage rusage;
    if (!keeper->main_ended)
        look_at_main(keeper);
    for (;;) {
        pid_t pid = wait4(-1, &status, WNOHANG | __WALL, &rusage);
        if (pid == 0)
            return false;
        if (pid < 0)
            return errno == ECHILD;
        if (WIFSTOPPED(status)) {
            trace_stopped(keeper->channel, pid, status);
            continue;
        }
        trace_forget(pid);
        if (pid == keeper->main_pid && !keeper->main_ended)
            report_exit(keeper, status, &rusage);
    }
}

static void drain_signals(const struct keeper *keeper)
{
    struct signalfd_siginfo infos[4];
    ssize_t ignored = read(keeper->signals, infos, sizeof infos);
    (void)ignored;
}

static noreturn void kill_all(struct keeper *keeper)
{
    while (!reap(keeper)) {
        tree_kill(NULL);
        if (reap(keeper))
            break;
        struct pollfd deaths = {.fd = keeper->signals, .events = POLLIN};
        if (poll(&deaths, 1, KILL_PAUSE_MS) > 0)
            drain_signals(keeper);
    }
    finish(keeper);
}

static void receive(struct keeper *keeper)
{
    struct message message;
    struct signal_request request;
    switch (wire_receive(keeper->channel, &message)) {
    case RECEIPT_NOTHING:
        return;
    case RECEIPT_END:
        kill_all(keeper);
    case RECEIPT_MALFORMED:
        _exit(KEEPER_PROTOCOL_ERROR);
    case RECEIPT_MESSAGE:
        break;
    }
    if (message.type == MESSAGE_KILL && message.length == 0)
        kill_all(keeper);
    if (message.type != MESSAGE_SIGNAL || decode_signal(&message, &request) != NULL)
        _exit(KEEPER_PROTOCOL_ERROR);
    wire_release(&message);
    tree_signal(&request, keeper->main_pid, keeper->main_ended, keeper->request->flags & EXEC_PTY,
                NULL);
}

static void on_signals(struct keeper *keeper)
{
    drain_signals(keeper);
    if (reap(keeper))
        finish(keeper);
    if (keeper->main_ended && (keeper->request->flags & EXEC_KEEP_BACKGROUND) == 0)
        kill_all(keeper);
    /* The init is gone, and with it the sandbox. */
    if (getppid() != keeper->init)
        kill_all(keeper);
}

static void check_limits(struct keeper *keeper)
{
    struct rusage rusage;
    if (limits_timeout_ms(&keeper->watch) != 0)
        return;
    /* A traced child needs us to get as far as its start. */
    if ((keeper->request->flags & EXEC_EXPLAIN) && !keeper->started) {
        keeper->watch.next_check_ms = now_ms() + LIMITS_PERIOD_MS;
        return;
    }
    getrusage(RUSAGE_CHILDREN, &rusage);
    struct usage usage = usage_of(&rusage);
    uint32_t exceeded = limits_check(&keeper->watch, usage.user_us + usage.system_us, NULL);
    if (exceeded == 0)
        return;
    /* The daemon hears LIMIT after STARTED, never before. */
    while (!keeper->started)
        learn_start(keeper);
    send_limit(keeper->channel, exceeded, true);
    kill_all(keeper);
}

static noreturn void serve(struct keeper *keeper)
{
    for (;;) {
        struct pollfd fds[3] = {
            {.fd = keeper->channel, .events = POLLIN},
            {.fd = keeper->signals, .events = POLLIN},
            {.fd = keeper->report, .events = POLLIN},
        };
        if (poll(fds, 3, sooner(limits_timeout_ms(&keeper->watch), refusals_timeout_ms())) < 0) {
            if (errno != EINTR)
                kill_all(keeper);
            continue;
        }
        if (refusals_timeout_ms() == 0 && keeper->started)
            refusals_flush(keeper->channel);
        if (fds[2].revents != 0)
            learn_start(keeper);
        if (fds[1].revents != 0)
            on_signals(keeper);
        if (fds[0].revents != 0)
            receive(keeper);
        if (limits_any(&keeper->watch.limits))
            check_limits(keeper);
    }
}

/* SIGHUP when the init ends, for where it is not PID 1 and its end does not end everything. */
bool keeper_subreaper(pid_t init)
{
    if (prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_PDEATHSIG, SIGHUP, 0, 0, 0) != 0)
        return false;
    errno = ESRCH;
    return getppid() == init;
}

noreturn void keeper_run(const struct exec_request *request, struct slot *slot, int signals,
                         pid_t init)
{
    struct keeper keeper = {
        .request = request,
        .slot = slot,
        .watch = {.limits = request->limits},
        .init = init,
        .channel = request->channel,
        .signals = signals,
        .master = -1,
    };
    int report[2], link[2] = {-1, -1}, terminal = request->terminal;
    if (!keeper_subreaper(init))
        fail(&keeper, EXEC_STAGE_FORK, errno, "");
    if ((request->flags & EXEC_PTY) && terminal < 0 &&
        !pty_open(request->rows, request->columns, &keeper.master, &terminal))
        fail(&keeper, EXEC_STAGE_PTY, errno, "/dev/ptmx");
    if (pipe2(report, O_CLOEXEC) != 0)
        fail(&keeper, EXEC_STAGE_FORK, errno, "");
    if ((request->flags & EXEC_EXPLAIN) &&
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, link) != 0)
        fail(&keeper, EXEC_STAGE_TRACE, errno, "");
    keeper.main_pid = fork();
    if (keeper.main_pid < 0)
        fail(&keeper, EXEC_STAGE_FORK, errno, "");
    if (keeper.main_pid == 0)
        child_run(request, slot, terminal, report[1], link[1]);
    keeper.report = report[0];
    if (request->flags & EXEC_EXPLAIN) {
        close(link[1]);
        trace_seize(keeper.main_pid, link[0]);
    }
    /* Not the command's stdio, or its reader would never see the end of it. */
    int keep[] = {keeper.channel, keeper.signals, keeper.report, keeper.master};
    close_all_but(keep, sizeof keep / sizeof keep[0]);
    keeper.watch.next_check_ms = limits_any(&request->limits) ? now_ms() + LIMITS_PERIOD_MS : 0;
    serve(&keeper);
}

noreturn void keeper_go_on(const struct exec_request *request, struct slot *slot, int signals,
                           pid_t init, pid_t child, int report)
{
    struct keeper keeper = {
        .request = request,
        .slot = slot,
        .watch = {.limits = request->limits},
        .init = init,
        .main_pid = child,
        .channel = request->channel,
        .signals = signals,
        .report = report,
        .master = -1,
    };
    keeper.watch.next_check_ms = limits_any(&request->limits) ? now_ms() + LIMITS_PERIOD_MS : 0;
    /* What happened while it waited was drained from the signals. */
    if (getppid() != init)
        kill_all(&keeper);
    serve(&keeper);
}
