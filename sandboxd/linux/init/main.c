/*
 * The init of a sandbox: it starts commands for the daemon, and ends the sandbox with the daemon.
 *
 * Usually PID 1 of a pid namespace (`bwrap --as-pid-1`); where there is none it is an ordinary
 * process, and kills its tree itself before it exits. The control socket is the descriptor named by
 * argv[1], else 3, or comes from `--connect PATH`, `--carried FOLDER` or `--remote FOLDER`; when the
 * daemon closes it, or dies, the sandbox dies. With `--template` it makes inits instead;
 * with `--devices` it starts bwrap (devices.c), with `--traced` a command in explain mode (command/child.c).
 */
#include "init.h"
#include "command/command.h"
#include "process_tree/process_tree.h"
#include "notify/notify.h"

#include <errno.h>
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

#define KILL_PAUSE_US 5000
/* The kernel reports no event for a mount point that is renamed. */
#define MOUNT_CHECK_MS 500
#define GIVE_BACK_MS 1000

struct init {
    int control;
    int signals;
    int mountinfo;
    int listener;
    bool is_clone;
    bool in_container;
    bool ready;
    pid_t parent;
    uint64_t next_check_ms;
    bool unreaped;
};

static struct init self;

void kill_everything(void)
{
    if (getpid() == 1) {
        /* Where nobody is left it is spared: it looks at every process of the machine. */
        siginfo_t info;
        if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT | __WALL) == 0 || errno != ECHILD)
            kill(-1, SIGKILL);
        return;
    }
    for (;;) {
        tree_kill(NULL);
        while (waitpid(-1, NULL, WNOHANG | __WALL) > 0)
            continue;
        if (waitpid(-1, NULL, WNOHANG | __WALL) < 0 && errno == ECHILD)
            return;
        usleep(KILL_PAUSE_US);
    }
}

static void stop_everything(void)
{
    struct pid_list all = {0};
    if (getpid() == 1)
        kill(-1, SIGSTOP);
    else
        tree_freeze(&all, NULL);
    free(all.at);
}

/* Stop all processes before the report to the daemon, and report before the channels close. */
static noreturn void end(const struct init *init, uint8_t type, const char *text, int code)
{
    struct writer writer;
    writer.length = 0;
    put_text(&writer, text);
    stop_everything();
    wire_send(init->control, type, writer.bytes, writer.length, -1, false);
    kill_everything();
    _exit(code);
}

static noreturn void protocol_error(const struct init *init, const char *text)
{
    end(init, MESSAGE_PROTOCOL_ERROR, text, INIT_PROTOCOL_ERROR);
}

static noreturn void setup_failed(const struct init *init, const struct setup_failure *failure)
{
    struct writer writer;
    writer.length = 0;
    put_u32(&writer, failure->stage);
    put_u32(&writer, (uint32_t)failure->error);
    put_text(&writer, failure->detail);
    wire_send(init->control, MESSAGE_SETUP_FAILED, writer.bytes, writer.length, -1, false);
    _exit(INIT_SETUP_FAILED);
}

static noreturn void isolation_lost(const char *what)
{
    end(&self, MESSAGE_ISOLATION_LOST, what, INIT_LOST);
}

/* First, so that every later change is noticed. */
static void watch_mounts(struct init *init, uint32_t check_count)
{
    init->mountinfo = mounts_open();
    if (init->mountinfo >= 0 &&
        mount_check_begin(init->mountinfo, check_count, init->is_clone, isolation_lost))
        return;
    struct setup_failure failure = {SETUP_STAGE_MOUNTS, errno, "/proc/self/mountinfo"};
    setup_failed(init, &failure);
}

/* After the init's own setup. For evidence alone, a kernel without support is no failure. */
static void listen_for_calls(struct init *init, const struct setup_request *request)
{
    bool evidence = request->flags & SETUP_NOTIFY, peers = request->flags & SETUP_UNIX_PEERS;
    bool shared = request->flags & SETUP_SHARED_NETWORK, set_gid = request->flags & SETUP_SET_GID;
    struct notify_wish wish = {
        .evidence = evidence, .gated = peers && !shared && !evidence, .peers = peers,
        .set_gid = set_gid, .no_inet = request->flags & SETUP_NO_INET,
        .no_unix = request->flags & SETUP_NO_UNIX, .space = shm_is_limited(),
        .sockets = evidence && init->is_clone,
    };
    if (!evidence && !peers && !set_gid && !wish.no_inet && !wish.no_unix)
        return;
    if (unix_peers_set_up(request->sockets, request->socket_count, shared) &&
        notify_listen(&wish, &init->listener))
        return;
    struct setup_failure failure = {SETUP_STAGE_UNIX_PEERS, errno, "seccomp"};
    setup_failed(init, &failure);
}

static void send_ready(const struct init *init)
{
    struct writer writer;
    writer.length = 0;
    put_u32(&writer, WIRE_VERSION);
    put_u32(&writer, (uint32_t)getpid());
    wire_send(init->control, MESSAGE_READY, writer.bytes, writer.length, -1, true);
}

static void on_setup(struct init *init, struct message *message)
{
    struct setup_request request;
    struct setup_failure failure;
    const char *wrong = init->ready ? "second SETUP" : decode_setup(message, &request);
    if (wrong != NULL)
        protocol_error(init, wrong);
    /* First, so that every later fork is counted. */
    if (request.cgroup >= 0) {
        if (write(request.cgroup, "0", 1) != 1) {
            failure = (struct setup_failure){SETUP_STAGE_CGROUP, errno, ""};
            setup_failed(init, &failure);
        }
        close(request.cgroup);
    }
    /* Before the Landlock domain is applied: the watchdog stays outside it. */
    if (request.flags & SETUP_GUARD) {
        if (!guard_stay_behind(init->control, init->signals)) {
            failure = (struct setup_failure){SETUP_STAGE_GUARD, errno, ""};
            setup_failed(init, &failure);
        }
        init->parent = getppid();
    }
    /* Opened before the Landlock domain is applied. */
    if (request.flags & SETUP_WATCH_MOUNTS)
        watch_mounts(init, request.check_count);
    if (!setup_apply(&request, &failure))
        setup_failed(init, &failure);
    if (request.ruleset >= 0)
        close(request.ruleset);
    listen_for_calls(init, &request);
    if (request.flags & SETUP_PREFORK)
        prefork_permit();
    free_setup(&request);
    init->ready = true;
    send_ready(init);
    mount_check_settle();
}

static void on_exec(struct init *init, struct message *message)
{
    struct exec_request request;
    /* Decoding writes into the message, and a prefork needs the original. */
    uint8_t *copy = prefork_waiting() != NULL && message->owned == NULL ? malloc(message->length + 1)
                                                                      : NULL;
    if (copy != NULL)
        memcpy(copy, message->payload, message->length);
    const char *wrong = init->ready ? decode_exec(message, &request) : "EXEC before SETUP";
    if (wrong != NULL)
        protocol_error(init, wrong);
    const char *hole = mount_check_hole();
    if (hole != NULL)
        isolation_lost(hole);
    init->next_check_ms = now_ms() + MOUNT_CHECK_MS;
    commands_start(&request, copy, message->length, init->signals);
    free_exec(&request);
    free(copy);
}

static void on_control(struct init *init)
{
    struct message message;
    switch (wire_receive(init->control, &message)) {
    case RECEIPT_NOTHING:
        return;
    case RECEIPT_END:
        if (notify_network_untouched())
            networks_return();
        kill_everything();
        _exit(INIT_DONE);
    case RECEIPT_MALFORMED:
        protocol_error(init, "malformed message");
    case RECEIPT_MESSAGE:
        break;
    }
    if (message.type == MESSAGE_SETUP)
        on_setup(init, &message);
    else if (message.type == MESSAGE_EXEC)
        on_exec(init, &message);
    else
        protocol_error(init, "unknown message type");
    wire_release(&message);
}

/* SIGTERM ends the sandbox if the engine of a container sent it, or the kernel when the watchdog died. From
 * outside the pid namespace the sender shows as 0. So it does where a command has filled the queue of signals,
 * and the kernel has no room for the sender: elsewhere nobody outside sends it, and it is ignored. */
static void on_signals(struct init *init)
{
    struct signalfd_siginfo infos[8];
    ssize_t size = read(init->signals, infos, sizeof infos);
    for (ssize_t i = 0; i < size / (ssize_t)sizeof infos[0]; i++) {
        pid_t sender = (pid_t)infos[i].ssi_pid;
        bool is_ours = sender == 0 ? init->in_container : sender == init->parent;
        bool is_told = infos[i].ssi_code == SI_USER && is_ours;
        if (infos[i].ssi_signo == SIGTERM && is_told) {
            kill_everything();
            _exit(INIT_DONE);
        }
    }
    bool hole = false;
    const char *wrong = commands_reap(&hole, &init->unreaped);
    if (hole) {
        const char *what = mount_check_hole();
        isolation_lost(what != NULL ? what : "a mount point");
    }
    if (wrong != NULL)
        protocol_error(init, wrong);
}

static void on_mounts(const struct init *init)
{
    const char *what = mount_check_event(init->mountinfo);
    if (what != NULL)
        isolation_lost(what);
}

/* While a command runs; an idle sandbox is checked when it gets one. */
static int mount_check_timeout_ms(const struct init *init)
{
    if (init->mountinfo < 0 || commands_first() == NULL)
        return -1;
    uint64_t now = now_ms();
    return init->next_check_ms > now ? (int)(init->next_check_ms - now) : 0;
}

static void check_mounts(struct init *init)
{
    if (mount_check_timeout_ms(init) != 0)
        return;
    const char *hole = mount_check_hole();
    if (hole != NULL)
        isolation_lost(hole);
    init->next_check_ms = now_ms() + MOUNT_CHECK_MS;
}

static void on_lone(const struct init *init, const struct pollfd *fds, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct command *command = commands_first();
        while (command != NULL && (!command->lone || command->channel != fds[i].fd))
            command = command->next;
        const char *wrong = fds[i].revents != 0 && command != NULL ? lone_receive(command) : NULL;
        if (wrong != NULL)
            protocol_error(init, wrong);
    }
    lone_advance();
}

/* When it has waited for a while. */
static void give_back(void)
{
    wire_forget();
    copies_forget();
    memory_give_back();
}

static void serve(struct init *init)
{
    nfds_t count = 4, room = 4;
    for (struct command *command = commands_first(); command != NULL; command = command->next)
        room++;
    struct pollfd fds[room];
    fds[0] = (struct pollfd){.fd = init->control, .events = POLLIN};
    fds[1] = (struct pollfd){.fd = init->signals, .events = POLLIN};
    fds[2] = (struct pollfd){.fd = init->mountinfo, .events = POLLPRI};
    fds[3] = (struct pollfd){.fd = init->listener, .events = POLLIN};
    for (struct command *command = commands_first(); command != NULL; command = command->next)
        if (lone_polled(command))
            fds[count++] = (struct pollfd){.fd = command->channel, .events = POLLIN};
    int timeout = sooner(lone_timeout_ms(), prefork_timeout_ms());
    timeout = sooner(timeout, stopped_starts_timeout_ms());
    timeout = init->unreaped ? 0 : sooner(timeout, mount_check_timeout_ms(init));
    int ready = poll(fds, count, timeout < 0 ? GIVE_BACK_MS : timeout);
    if (ready == 0 && timeout < 0) {
        give_back();
        ready = poll(fds, count, -1);
    }
    if (ready < 0) {
        if (errno == EINTR)
            return;
        /* A command lowered the init's rlimits: nothing could be received any more. */
        kill_everything();
        _exit(INIT_LOST);
    }
    if (fds[2].revents != 0)
        on_mounts(init);
    if (fds[1].revents != 0 || init->unreaped)
        on_signals(init);
    if (fds[3].revents != 0)
        notify_serve(init->listener);
    if (fds[0].revents != 0)
        on_control(init);
    on_lone(init, fds + 4, count - 4);
    stopped_starts_end();
    check_mounts(init);
    if (prefork_timeout_ms() == 0)
        prefork_make(init->signals);
}

/* Dispositions as a fresh process has them, whatever the daemon ignores: commands inherit them.
 * The raw call, because the C library keeps two signals to itself. */
static void default_dispositions(void)
{
    unsigned long action[8] = {0};
    for (int number = 1; number <= 64; number++)
        syscall(SYS_rt_sigaction, number, action, NULL, 8);
}

/* Every signal is blocked, and the needed ones are read from a signalfd: no handler ever runs. */
static int open_signals(void)
{
    sigset_t signals;
    sigfillset(&signals);
    sigprocmask(SIG_SETMASK, &signals, NULL);
    sigemptyset(&signals);
    sigaddset(&signals, SIGCHLD);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGHUP);
    return signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* A closed descriptor (the next open would get its number) or one of another type is a mistake of the
 * program that started the init: without the daemon's end nothing would end the sandbox. */
static bool is_control_socket(int fd)
{
    int type = 0;
    socklen_t size = sizeof type;
    return fd > 2 && getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0 &&
           type == SOCK_SEQPACKET;
}

void let_go_of_caller(int control)
{
    setsid();
    int keep[] = {control};
    close_all_but(keep, 1);
    stdio_to_null();
    prctl(PR_SET_NAME, "sandboxd-init", 0, 0, 0);
}

int main(int argc, char **argv)
{
    if (argc > 2 && strcmp(argv[1], "--devices") == 0)
        devices_run(argv + 2);
    if (argc > 2 && strcmp(argv[1], TRACED_OPTION) == 0)
        child_traced(argv + 2);
    /* First: from now on no process of this uid can take the socket or read the memory. */
    if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0)
        return INIT_SETUP_FAILED;
    default_dispositions();
    bool is_template = argc > 2 && strcmp(argv[1], "--template") == 0;
    int control = is_template ? template_serve(argc, argv) : control_open(argc, argv);
    /* What bwrap or the daemon starts gets its socket as a descriptor. */
    bool in_container = !is_template && argc > 2;
    self = (struct init){.control = control, .mountinfo = -1, .listener = -1,
                         .is_clone = is_template, .in_container = in_container};
    if (!is_control_socket(self.control))
        return INIT_SETUP_FAILED;
    if (!is_template)
        let_go_of_caller(self.control);
    self.parent = getppid();
    self.signals = open_signals();
    if (self.signals < 0)
        return INIT_SETUP_FAILED;
    if (getpid() == 1)
        procs_prefer_scan();
    for (;;)
        serve(&self);
}
