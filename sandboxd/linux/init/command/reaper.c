/*
 * The reaper of one command: subreaper of its tree, and the other end of its channel.
 *
 * Every process that the command forks stays below the reaper, also if it detaches. So the tree can be
 * counted, limited, signalled and killed as one, and GONE is sent only when no process is left. The
 * reaper sleeps in poll, and wakes without an event only to check limits.
 */
#include "command.h"
#include "../process_tree/process_tree.h"
#include "../evidence/evidence.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define KILL_PAUSE_MS 5
/* The daemon closes the channel some milliseconds after GONE. */
#define LINGER_MS 10

struct reaper {
    const struct exec_request *request;
    struct start_state *start_state;
    struct limit_watch watch;
    uint32_t unsent_limit; /* that was exceeded while the channel was full */
    uint32_t full_before;
    pid_t init;
    pid_t main_pid;
    int channel;
    int signals;
    int report;
    int master;
    uint64_t start_due_ms; /* STARTED is sent then, unless it has ended */
    bool started;
    bool main_ended;
    bool verified;
    bool unreaped;
    struct left left;
};

static noreturn void fail(const struct reaper *reaper, uint32_t stage, int error, const char *path)
{
    send_exec_failed(reaper->channel, stage, error, path, true);
    _exit(REAPER_DONE);
}

static noreturn void finish(const struct reaper *reaper)
{
    struct rusage rusage;
    getrusage(RUSAGE_CHILDREN, &rusage);
    struct usage usage = usage_of(&rusage);
    refusals_flush(reaper->channel);
    if (!reaper->verified)
        mount_check_demand();
    if (reaper->left.count > 0)
        send_left(reaper->channel, &reaper->left, true);
    send_gone(reaper->channel, &usage, true);
    /* The daemon often wakes up on this CPU, and the end of a process takes longer than its answer. */
    struct pollfd closed = {.fd = reaper->channel};
    poll(&closed, 1, LINGER_MS);
    _exit(REAPER_DONE);
}

/* The start_state is marked before the message is sent, here and below. If the command kills the
 * reaper in between, that message is lost. Marked after, it would often be sent twice: sending wakes
 * the daemon, and the reaper may not run again before it is killed. */
static void report_start(struct reaper *reaper)
{
    if (reaper->start_state->started)
        return;
    reaper->start_state->started = true;
    send_started(reaper->channel, reaper->main_pid, reaper->master, true);
    if (reaper->master >= 0)
        close(reaper->master);
    reaper->master = -1;
}

/* The report pipe has data: a failure; or it is closed: the command was executed, or it died. */
static void learn_start(struct reaper *reaper)
{
    struct exec_report failure;
    memset(&failure, 0, sizeof failure);
    ssize_t size = read(reaper->report, &failure, sizeof failure - 1);
    if (size < 0 && errno == EINTR)
        return;
    close(reaper->report);
    reaper->report = -1;
    bool failed = size >= (ssize_t)offsetof(struct exec_report, path);
    if (failed || reaper->start_state->stage != EXEC_STAGE_EXEC)
        waitpid(reaper->main_pid, NULL, __WALL);
    if (failed)
        fail(reaper, failure.stage, failure.error, failure.path);
    /* Killed between fork and exec: there was no command. */
    if (reaper->start_state->stage != EXEC_STAGE_EXEC)
        fail(reaper, reaper->start_state->stage, EINTR, "");
    reaper->started = reaper->start_state->executed = true;
}

/* The daemon is woken once: what takes time is done before the first message. */
static void report_exit(struct reaper *reaper, int status, const struct rusage *rusage)
{
    struct usage usage = usage_of(rusage);
    while (!reaper->started)
        learn_start(reaper);
    limits_no_deadline(&reaper->watch);
    mount_check_demand();
    reaper->verified = true;
    report_start(reaper);
    refusals_flush(reaper->channel);
    if (reaper->unsent_limit != 0)
        send_limit(reaper->channel, reaper->unsent_limit, true);
    report_full(reaper->channel, reaper->full_before, status, true);
    reaper->main_ended = reaper->start_state->exit_reported = true;
    send_exited(reaper->channel, status, &usage, true);
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

/* True when there was something to reap. By its pid, so that the status of the main process is noted
 * before it is reaped: if the command kills the reaper after that, the init can still report it. */
static bool reap_one(struct reaper *reaper, int *status, struct rusage *rusage, pid_t *pid)
{
    siginfo_t info;
    memset(&info, 0, sizeof info);
    if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT | __WALL) != 0) {
        *pid = -1;
        return false;
    }
    if (info.si_pid == reaper->main_pid && !reaper->main_ended && ended(&info)) {
        reaper->start_state->main_status = raw_status(&info);
        reaper->start_state->status_known = true;
    }
    /* The kernel hangs up a terminal when its command ends. */
    if (reaper->request->flags & EXEC_PTY && info.si_pid != 0 && info.si_pid != reaper->main_pid &&
        info.si_code == CLD_KILLED && info.si_status == SIGHUP)
        left_add(&reaper->left, info.si_pid);
    *pid = info.si_pid == 0 ? 0 : wait4(info.si_pid, status, WNOHANG | __WALL, rusage);
    return *pid > 0;
}

/* True when no process is left. The exit of the main process is reported when it is known whether
 * another process follows it: most often none does, and GONE can be sent with it. One that forks fast
 * must not keep the reaper from its other work: `unreaped` then. */
static bool reap(struct reaper *reaper)
{
    int status = 0, main_status = 0, error = 0;
    struct rusage rusage, main_rusage;
    bool main_reaped = false;
    pid_t pid;
    /* Processes that outlive the main process may use a mount that is lost after its exit. */
    reaper->verified = false;
    reaper->unreaped = true;
    for (int count = 0; count < REAPED_AT_ONCE && reaper->unreaped; count++) {
        reaper->unreaped = reap_one(reaper, &status, &rusage, &pid);
        error = errno;
        if (main_reaped && !reaper->main_ended)
            report_exit(reaper, main_status, &main_rusage);
        if (!reaper->unreaped)
            return pid < 0 && error == ECHILD;
        if (WIFSTOPPED(status)) {
            trace_stopped(reaper->channel, pid, status);
            continue;
        }
        trace_forget(pid);
        if (pid == reaper->main_pid && !reaper->main_ended) {
            main_reaped = true;
            main_status = status;
            main_rusage = rusage;
        }
    }
    if (main_reaped && !reaper->main_ended)
        report_exit(reaper, main_status, &main_rusage);
    return false;
}

static void drain_signals(const struct reaper *reaper)
{
    struct signalfd_siginfo infos[4];
    ssize_t ignored = read(reaper->signals, infos, sizeof infos);
    (void)ignored;
}

static noreturn void kill_all(struct reaper *reaper)
{
    while (!reap(reaper)) {
        tree_kill(NULL);
        if (reap(reaper))
            break;
        struct pollfd deaths = {.fd = reaper->signals, .events = POLLIN};
        if (poll(&deaths, 1, KILL_PAUSE_MS) > 0)
            drain_signals(reaper);
    }
    finish(reaper);
}

/* What the main process left has a moment to end by itself, unless the daemon has something to say. */
static void look_for_left(struct reaper *reaper)
{
    uint64_t until = now_ms() + LEFT_GRACE_MS;
    for (uint64_t now; (now = now_ms()) < until;) {
        struct pollfd fds[2] = {
            {.fd = reaper->signals, .events = POLLIN},
            {.fd = reaper->channel, .events = POLLIN},
        };
        int ready = poll(fds, 2, reaper->unreaped ? 0 : (int)(until - now));
        if (ready > 0 && fds[1].revents != 0)
            return;
        drain_signals(reaper);
        if (reap(reaper))
            finish(reaper);
    }
    left_look(&reaper->left, NULL);
}

static void receive(struct reaper *reaper)
{
    struct message message;
    struct signal_request request;
    switch (wire_receive(reaper->channel, &message)) {
    case RECEIPT_NOTHING:
        return;
    case RECEIPT_END:
        kill_all(reaper);
    case RECEIPT_MALFORMED:
        _exit(REAPER_PROTOCOL_ERROR);
    case RECEIPT_MESSAGE:
        break;
    }
    if (message.type == MESSAGE_KILL && message.length == 0)
        kill_all(reaper);
    if (message.type != MESSAGE_SIGNAL || decode_signal(&message, &request) != NULL)
        _exit(REAPER_PROTOCOL_ERROR);
    wire_release(&message);
    tree_signal(&request, reaper->main_pid, reaper->main_ended, reaper->request->flags & EXEC_PTY,
                NULL);
}

static void on_signals(struct reaper *reaper)
{
    drain_signals(reaper);
    if (reap(reaper))
        finish(reaper);
    if (reaper->main_ended && (reaper->request->flags & EXEC_KEEP_BACKGROUND) == 0) {
        look_for_left(reaper);
        kill_all(reaper);
    }
    /* The init is gone, and with it the sandbox. */
    if (getppid() != reaper->init)
        kill_all(reaper);
}

/* Stop the tree first: one that forks fast would outrun the next steps. */
static void stop_forks(const struct reaper *reaper)
{
    struct pid_list list = {0};
    bool alone = (reaper->request->flags & EXEC_KEEP_BACKGROUND) == 0 && !reaper->start_state->shared;
    if (!alone || !namespace_stop())
        tree_freeze(&list, NULL);
    free(list.at);
}

static void check_limits(struct reaper *reaper)
{
    struct rusage rusage;
    if (limits_timeout_ms(&reaper->watch) != 0)
        return;
    /* A traced child needs the reaper to reach its exec. */
    if ((reaper->request->flags & EXEC_EXPLAIN) && !reaper->started) {
        limits_postpone(&reaper->watch);
        return;
    }
    getrusage(RUSAGE_CHILDREN, &rusage);
    struct usage usage = usage_of(&rusage);
    uint32_t exceeded = limits_check(&reaper->watch, usage.user_us + usage.system_us, NULL);
    if (exceeded == 0)
        return;
    /* LIMIT is sent after STARTED, never before. */
    while (!reaper->started)
        learn_start(reaper);
    report_start(reaper);
    if (exceeded == LIMIT_PROCESSES)
        stop_forks(reaper);
    /* A daemon that does not read must not give it more time. */
    if (!send_limit(reaper->channel, exceeded, false))
        reaper->unsent_limit = exceeded;
    kill_all(reaper);
}

static int start_timeout_ms(const struct reaper *reaper)
{
    if (!reaper->started || reaper->start_state->started)
        return -1;
    uint64_t now = now_ms();
    return reaper->start_due_ms > now ? (int)(reaper->start_due_ms - now) : 0;
}

static noreturn void serve(struct reaper *reaper)
{
    for (;;) {
        struct pollfd fds[3] = {
            {.fd = reaper->channel, .events = POLLIN},
            {.fd = reaper->signals, .events = POLLIN},
            {.fd = reaper->report, .events = POLLIN},
        };
        int timeout = sooner(limits_timeout_ms(&reaper->watch), refusals_timeout_ms());
        timeout = sooner(timeout, start_timeout_ms(reaper));
        if (poll(fds, 3, reaper->unreaped ? 0 : timeout) < 0) {
            if (errno != EINTR)
                kill_all(reaper);
            continue;
        }
        if (refusals_timeout_ms() == 0 && reaper->started)
            refusals_flush(reaper->channel);
        if (fds[2].revents != 0)
            learn_start(reaper);
        if (start_timeout_ms(reaper) == 0)
            report_start(reaper);
        if (fds[1].revents != 0 || reaper->unreaped)
            on_signals(reaper);
        if (fds[0].revents != 0)
            receive(reaper);
        check_limits(reaper);
    }
}

/* SIGHUP when the init ends, for where it is not PID 1 and its end does not end everything. */
bool reaper_subreaper(pid_t init)
{
    if (prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_PDEATHSIG, SIGHUP, 0, 0, 0) != 0)
        return false;
    errno = ESRCH;
    return getppid() == init;
}

/* The terminal of the command; -1 without one. */
static int open_terminal(struct reaper *reaper)
{
    const struct exec_request *request = reaper->request;
    int terminal = request->terminal;
    if ((request->flags & EXEC_PTY) && terminal < 0 &&
        !pty_open(request->rows, request->columns, (request->flags & EXEC_NO_ECHO) == 0,
                  &reaper->master, &terminal))
        fail(reaper, EXEC_STAGE_PTY, errno, "/dev/ptmx");
    return terminal;
}

static void start(struct reaper *reaper, int terminal)
{
    const struct exec_report *failure;
    reaper->main_pid = child_vfork(reaper->request, reaper->start_state, terminal, &failure);
    if (reaper->main_pid < 0)
        fail(reaper, EXEC_STAGE_FORK, errno, "");
    if (failure != NULL) {
        waitpid(reaper->main_pid, NULL, __WALL);
        fail(reaper, failure->stage, failure->error, failure->path);
    }
    reaper->started = reaper->start_state->executed = true;
}

/* A child that needs its reaper before the exec, or has none: it reports through a pipe. */
static void start_beside(struct reaper *reaper, int terminal)
{
    int report[2], link[2] = {-1, -1};
    bool traced = reaper->request->flags & EXEC_EXPLAIN;
    if (pipe2(report, O_CLOEXEC) != 0)
        fail(reaper, EXEC_STAGE_FORK, errno, "");
    if (traced && socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, link) != 0)
        fail(reaper, EXEC_STAGE_TRACE, errno, "");
    reaper->main_pid = fork();
    if (reaper->main_pid < 0)
        fail(reaper, EXEC_STAGE_FORK, errno, "");
    if (reaper->main_pid == 0)
        child_run(reaper->request, reaper->start_state, terminal, report[1], link[1]);
    reaper->report = report[0];
    if (traced) {
        close(link[1]);
        /* It does not share this page any more. */
        if (trace_seize(reaper->main_pid, link[0]))
            reaper->start_state->stage = EXEC_STAGE_EXEC;
    }
}

noreturn void reaper_run(const struct exec_request *request, struct start_state *start_state, int signals,
                         pid_t init)
{
    struct reaper reaper = {
        .request = request,
        .start_state = start_state,
        .init = init,
        .channel = request->channel,
        .signals = signals,
        .report = -1,
        .master = -1,
    };
    if (request->flags & EXEC_KEEP_BACKGROUND)
        reaper.full_before = shm_full();
    int terminal = open_terminal(&reaper);
    bool beside = request->flags & (EXEC_EXPLAIN | EXEC_FILES);
    (beside ? start_beside : start)(&reaper, terminal);
    /* With a terminal, the daemon waits for its other side. */
    reaper.start_due_ms = reaper.master >= 0 ? 0 : now_ms() + START_AFTER_MS;
    /* Without the command's stdio, or its reader would never see the end. */
    int keep[] = {reaper.channel, reaper.signals, reaper.report, reaper.master};
    close_all_but(keep, sizeof keep / sizeof keep[0]);
    limits_begin(&reaper.watch, &request->limits);
    serve(&reaper);
}
