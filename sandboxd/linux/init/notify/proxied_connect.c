/*
 * connect() of a command, made by the init on a copy of the command's own socket.
 *
 * The command could replace the address, the descriptor or the file at any moment. So the kernel looks
 * nothing up a second time: the address is read once, the socket is copied once, a socket file is opened
 * once, checked, and connected to through that descriptor. The command's own call never continues.
 *
 * connect() can block (a full backlog, a host that does not answer). The init tries for a moment only,
 * and then forks a worker process for the call.
 */
#include "../command/command.h"
#include "../process_tree/process_tree.h"
#include "notify.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#define PIDFD_THREAD O_EXCL

#define WORKERS_MAX 64
#define MOMENT_US 2000

struct attempt {
    struct asked_call call;
    int socket;
    int domain;
    int target;
    socklen_t length;
    union {
        struct sockaddr any;
        struct sockaddr_un local;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
        struct sockaddr_storage room;
    } address;
};

static struct {
    pid_t pid;
    struct asked_call call;
} workers[WORKERS_MAX];

static void on_alarm(int number)
{
    (void)number;
}

static bool closed_network;

bool proxied_connect_set_up(bool network_is_closed)
{
    closed_network = network_is_closed;
    struct sigaction action = {.sa_handler = on_alarm};
    return sigaction(SIGALRM, &action, NULL) == 0;
}

/* The process of a thread, for kernels where a thread has no pidfd. */
static pid_t process_of(pid_t thread)
{
    char text[32];
    return caller_status(thread, "Tgid", text, sizeof text) ? (pid_t)atoi(text) : -1;
}

/* A copy of the caller's descriptor, or -1 with errno. */
static int copy_socket(pid_t caller, int number)
{
    int pidfd = (int)syscall(SYS_pidfd_open, caller, PIDFD_THREAD);
    if (pidfd < 0 && errno == EINVAL)
        pidfd = (int)syscall(SYS_pidfd_open, process_of(caller), 0);
    if (pidfd < 0)
        return -1;
    int fd = (int)syscall(SYS_pidfd_getfd, pidfd, number, 0);
    int error = errno;
    close(pidfd);
    errno = error;
    return fd;
}

/* "/proc/self" and "/dev/fd" as the caller means them. */
static void as_seen_by(pid_t caller, const char *path, char *into, size_t size)
{
    if (strncmp(path, "/proc/self/", 11) == 0)
        snprintf(into, size, "/proc/%d/%s", (int)caller, path + 11);
    else if (strncmp(path, "/proc/thread-self/", 18) == 0)
        snprintf(into, size, "/proc/%d/%s", (int)caller, path + 18);
    else if (strncmp(path, "/dev/fd/", 8) == 0)
        snprintf(into, size, "/proc/%d/fd/%s", (int)caller, path + 8);
    else
        snprintf(into, size, "%s", path);
}

static size_t name_length(const struct attempt *attempt)
{
    return attempt->length - offsetof(struct sockaddr_un, sun_path);
}

/* The file that the address names, as the caller sees it; -1 with errno. */
static int open_target(const struct attempt *attempt)
{
    char path[sizeof attempt->address.local.sun_path + 1] = "", seen[160], place[64];
    memcpy(path, attempt->address.local.sun_path, name_length(attempt));
    as_seen_by(attempt->call.pid, path, seen, sizeof seen);
    if (!caller_has_our_root(attempt->call.pid)) {
        errno = EACCES;
        return -1;
    }
    proc_path(place, attempt->call.pid, "cwd", -1);
    int cwd = open(place, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (cwd < 0)
        return -1;
    int fd = openat(cwd, seen, O_PATH | O_CLOEXEC);
    int error = errno;
    close(cwd);
    errno = error;
    return fd;
}

static bool names_something(const struct attempt *attempt)
{
    return attempt->address.any.sa_family == AF_UNIX &&
           attempt->length > offsetof(struct sockaddr_un, sun_path) &&
           attempt->length <= sizeof(struct sockaddr_un);
}

/* A name without a file. */
static bool is_abstract(const struct attempt *attempt)
{
    return names_something(attempt) && attempt->address.local.sun_path[0] == 0;
}

/* 0, or the error to answer. The address of a file is replaced by one of the checked file. */
static int judge_target(struct attempt *attempt)
{
    /* The same answer as where nothing has the name. */
    if (is_abstract(attempt))
        return unix_name_allowed(attempt->address.local.sun_path, name_length(attempt))
                   ? 0
                   : ECONNREFUSED;
    attempt->target = open_target(attempt);
    if (attempt->target < 0)
        return errno;
    if (!caller_still_asks(&attempt->call))
        return EINTR;
    if (!unix_peer_allowed(attempt->target)) {
        struct command *command = command_of(attempt->call.pid);
        if (command != NULL)
            command_refused_peer(command, attempt->target);
        return EACCES;
    }
    int length = snprintf(attempt->address.local.sun_path, sizeof attempt->address.local.sun_path,
                          "/proc/self/fd/%d", attempt->target);
    attempt->length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + (size_t)length + 1);
    return 0;
}

/* Where the network is closed a resolver stops at connect(), and the name that it would ask for is
 * not seen. So it is connected to the sandbox's own loopback, which refuses the question itself. */
static void turn_to_loopback(struct attempt *attempt)
{
    int kind = 0;
    socklen_t size = sizeof kind;
    struct sockaddr_in *v4 = &attempt->address.v4;
    struct sockaddr_in6 *v6 = &attempt->address.v6;
    if (getsockopt(attempt->socket, SOL_SOCKET, SO_TYPE, &kind, &size) != 0 || kind != SOCK_DGRAM)
        return;
    if (v4->sin_family == AF_INET && attempt->length >= sizeof *v4 && v4->sin_port == htons(DNS_PORT))
        v4->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (v6->sin6_family == AF_INET6 && attempt->length >= sizeof *v6 &&
        v6->sin6_port == htons(DNS_PORT)) {
        v6->sin6_addr = (struct in6_addr)IN6ADDR_LOOPBACK_INIT;
        v6->sin6_scope_id = 0;
    }
}

static int connect_now(const struct attempt *attempt)
{
    if (notify_connect(attempt->socket, &attempt->address, attempt->length) != 0)
        return errno;
    /* Since it was judged, the name may have passed to a program outside. */
    if (attempt->domain == AF_UNIX && is_abstract(attempt) && !unix_peer_is_inside(attempt->socket)) {
        shutdown(attempt->socket, SHUT_RDWR);
        return ECONNREFUSED;
    }
    return 0;
}

/* EINTR when it takes longer. The alarm is repeated: the first may come before connect(). */
static int connect_for_a_moment(const struct attempt *attempt)
{
    struct itimerval moment = {{0, MOMENT_US}, {0, MOMENT_US}}, none = {{0, 0}, {0, 0}};
    sigset_t alarm_only;
    sigemptyset(&alarm_only);
    sigaddset(&alarm_only, SIGALRM);
    if (setitimer(ITIMER_REAL, &moment, NULL) != 0)
        return errno;
    sigprocmask(SIG_UNBLOCK, &alarm_only, NULL);
    int error = connect_now(attempt);
    sigprocmask(SIG_BLOCK, &alarm_only, NULL);
    setitimer(ITIMER_REAL, &none, NULL);
    return error;
}

static noreturn void work(const struct attempt *attempt)
{
    int keep[] = {attempt->call.listener, attempt->socket, attempt->target};
    close_all_but(keep, sizeof keep / sizeof keep[0]);
    caller_answer(&attempt->call, connect_now(attempt));
    _exit(0);
}

/* False: no worker could be forked. */
static bool leave_to_worker(const struct attempt *attempt)
{
    for (size_t i = 0; i < WORKERS_MAX; i++) {
        if (workers[i].pid != 0)
            continue;
        pid_t pid = fork();
        if (pid == 0)
            work(attempt);
        if (pid < 0)
            return false;
        workers[i].pid = pid;
        workers[i].call = attempt->call;
        return true;
    }
    return false;
}

/* A killed worker has not answered. If it has, this second answer is ignored. */
bool proxied_connect_reaped(pid_t pid)
{
    for (size_t i = 0; i < WORKERS_MAX; i++) {
        if (workers[i].pid != pid)
            continue;
        caller_answer(&workers[i].call, ECONNABORTED);
        workers[i].pid = 0;
        return true;
    }
    return false;
}

void proxied_connect_list(struct pid_list *pids)
{
    for (size_t i = 0; i < WORKERS_MAX; i++)
        if (workers[i].pid > 0)
            pid_list_add(pids, workers[i].pid);
}

static int read_address(struct attempt *attempt, const uint64_t *args)
{
    int length = (int)args[2];
    if (length < 0 || (size_t)length > sizeof attempt->address)
        return EINVAL;
    attempt->length = (socklen_t)length;
    if (length > 0 &&
        tracee_read(attempt->call.pid, args[1], &attempt->address, (size_t)length) != (size_t)length)
        return EFAULT;
    return 0;
}

/* True when a worker will answer. */
static bool attempt_connect(struct attempt *attempt, const uint64_t *args, int *error)
{
    socklen_t size = sizeof attempt->domain;
    attempt->socket = copy_socket(attempt->call.pid, (int)args[0]);
    *error = attempt->socket < 0 ? errno : 0;
    if (*error == 0 &&
        getsockopt(attempt->socket, SOL_SOCKET, SO_DOMAIN, &attempt->domain, &size) != 0)
        *error = errno;
    if (*error == 0)
        *error = read_address(attempt, args);
    if (*error == 0 && !caller_still_asks(&attempt->call))
        *error = EINTR;
    if (*error == 0 && attempt->domain == AF_UNIX && names_something(attempt))
        *error = judge_target(attempt);
    if (*error != 0)
        return false;
    if (attempt->domain == AF_UNIX)
        notify_network_touched(); /* a descriptor can be passed out */
    if (closed_network)
        turn_to_loopback(attempt);
    *error = connect_for_a_moment(attempt);
    if (*error != EINTR)
        return false;
    if (leave_to_worker(attempt))
        return true;
    *error = EAGAIN;
    return false;
}

void proxied_connect(int listener, uint64_t id, pid_t caller, const uint64_t *args)
{
    struct attempt attempt = {
        .call = {listener, id, caller}, .socket = -1, .target = -1};
    int error;
    if (!attempt_connect(&attempt, args, &error))
        caller_answer(&attempt.call, error);
    if (attempt.socket >= 0)
        close(attempt.socket);
    if (attempt.target >= 0)
        close(attempt.target);
}
