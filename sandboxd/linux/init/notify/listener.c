/*
 * The calls that the init answers: connect, chmod with the set-group-ID bit, and where the network is
 * closed sendto with an address and sendmmsg, or socket.
 *
 * Evidence: where the network is closed the init records the address. sendto and sendmmsg then continue. Where
 * hosts are allowed the daemon's gate sees refused IPv4 connections; the init records those of IPv6.
 *
 * Enforcement (SETUP_UNIX_PEERS): a command connects to socket files of its own sandbox only. The
 * init makes each connection itself (proxied_connect.c). Calls that bypass it are refused: Unix
 * datagram sockets, which send to any file by sendmsg, where the address is behind a pointer and
 * which programs call all the time; io_uring; socket calls of another architecture. A kernel that
 * cannot ask, or does not let the init copy a descriptor, refuses every Unix socket but pairs.
 *
 * Enforcement (SETUP_NO_INET, SETUP_NO_UNIX): where there is no network namespace, no Internet socket and
 * no Unix socket can be made. The init refuses each one and reports it. Without a listener the filter
 * itself refuses them.
 *
 * Enforcement (SETUP_SET_GID): only folders get the set-group-ID bit. The init sets it (set_gid_chmod.c).
 * Without a listener nothing gets it.
 *
 * fallocate undoes what it has allocated when the space runs out, so that a file system is not full afterwards. Where
 * the sandbox has file systems of its own, the init looks before it continues.
 *
 * Where the network namespace may be used again (template_networks.c), two kinds of calls are noted, and
 * continue: socket() for all but Unix sockets, and listen(). So is each connect() of a Unix socket.
 *
 * There is one listener for the whole sandbox. The init holds it, because no command can kill the init:
 * if it were closed, connect would fail with ENOSYS.
 */
#include "../command/command.h"
#include "notify.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/seccomp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static union {
    struct seccomp_notif notice;
    uint8_t room[1024];
} asked;

static union {
    struct seccomp_notif_resp answer;
    uint8_t room[256];
} told;

static bool sizes_fit(void)
{
    struct seccomp_notif_sizes sizes;
    return syscall(SYS_seccomp, SECCOMP_GET_NOTIF_SIZES, 0, &sizes) == 0 &&
           sizes.seccomp_notif <= sizeof asked && sizes.seccomp_notif_resp <= sizeof told;
}

/* The host's scope of ptrace. Where it grows later, each copy is refused. */
static bool scope_permits_copies(void)
{
    char text[16] = "";
    int file = open("/proc/sys/kernel/yama/ptrace_scope", O_RDONLY | O_CLOEXEC);
    bool permits = file < 0 || read(file, text, sizeof text - 1) <= 0 || atoi(text) <= 1;
    if (file >= 0)
        close(file);
    return permits;
}

static bool may_copy_descriptors(void)
{
    int pidfd = (int)syscall(SYS_pidfd_open, getpid(), 0);
    int copy = pidfd < 0 ? -1 : (int)syscall(SYS_pidfd_getfd, pidfd, pidfd, 0);
    close(copy);
    close(pidfd);
    return copy >= 0;
}

static bool looked, can_ask, can_copy;

void notify_look_ahead(void)
{
    if (looked)
        return;
    looked = true;
    can_ask = sizes_fit();
    can_copy = scope_permits_copies() && may_copy_descriptors();
}

static bool proxied, takes_evidence, gated, sees_sockets, touched;

bool notify_listen(const struct notify_wish *wish, int *listener)
{
    struct notify_wish asked_for = *wish;
    notify_look_ahead();
    bool keyed = filter_make_key() && can_ask;
    *listener = -1;
    takes_evidence = wish->evidence;
    gated = wish->gated;
    proxied = wish->peers && keyed && can_copy && proxied_connect_set_up(wish->evidence);
    asked_for.peers = proxied;
    bool asks = keyed && (wish->evidence || proxied || wish->set_gid || wish->no_inet ||
                          wish->no_unix);
    if (asks)
        asks = filter_listen(&asked_for, listener);
    proxied = proxied && asks;
    sees_sockets = proxied && wish->sockets;
    return (!wish->peers || proxied || filter_refuse_unix_sockets()) &&
           (!wish->set_gid || asks || filter_refuse_set_gid()) &&
           (!wish->no_inet || asks || filter_refuse_inet()) &&
           (!wish->no_unix || asks || filter_refuse_unix_sockets());
}

static void refuse_socket(int listener)
{
    struct asked_call call = {listener, asked.notice.id, (pid_t)asked.notice.pid};
    struct command *command = command_of(call.pid);
    if (command != NULL)
        command_refused_socket(command, (int)asked.notice.data.args[0],
                               (int)asked.notice.data.args[1]);
    caller_answer(&call, EPERM);
}

bool notify_network_untouched(void)
{
    return sees_sockets && !touched;
}

void notify_network_touched(void)
{
    touched = true;
}

static void go_on(int listener)
{
    memset(&told, 0, sizeof told);
    told.answer.id = asked.notice.id;
    told.answer.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
    ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &told.answer);
}

void notify_serve(int listener)
{
    memset(&asked, 0, sizeof asked);
    /* Does not block after poll; ENOENT when the caller was killed meanwhile. */
    if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &asked.notice) != 0)
        return;
    long number = asked.notice.data.nr;
    if (number == SYS_socket || number == SYS_socketpair || number == SYS_listen) {
        touched = true;
        (sees_sockets ? go_on : refuse_socket)(listener);
        return;
    }
    if (number == SYS_fallocate) {
        command_allocates((pid_t)asked.notice.pid, (const uint64_t *)asked.notice.data.args);
        go_on(listener);
        return;
    }
    if (number != SYS_connect && number != SYS_sendto && number != SYS_sendmmsg) {
        struct asked_call call = {listener, asked.notice.id, (pid_t)asked.notice.pid};
        set_gid_chmod(&call, number, (const uint64_t *)asked.notice.data.args);
        return;
    }
    if (takes_evidence)
        attempt_note((pid_t)asked.notice.pid, number, (const uint64_t *)asked.notice.data.args);
    else if (gated)
        attempt_note_ipv6((pid_t)asked.notice.pid, (const uint64_t *)asked.notice.data.args);
    if (proxied && number == SYS_connect) {
        proxied_connect(listener, asked.notice.id, (pid_t)asked.notice.pid,
                        (const uint64_t *)asked.notice.data.args);
        return;
    }
    go_on(listener);
}
