/*
 * Connections that a command attempts where the network is closed: evidence, never enforcement.
 *
 * The init puts a filter on itself, and so on everything that it will ever fork, which asks it about
 * connect, about sendto with an address and about sendmmsg. It notes the address and always answers
 * "go on": the kernel itself decides, as if there were no filter. sendmsg is left alone: whether it
 * has an address is behind a pointer, and programs that talk over Unix sockets call it all the time.
 *
 * One listener for the whole sandbox, held by the one process in it that no command can kill: were
 * it ever closed, connect would answer ENOSYS. The init itself makes none of these calls.
 */
#include "init.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV
#define SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV (1UL << 5)
#endif

#define DNS_PORT 53
#define PACKET_MAX 512
#define ARGUMENT(number, half) (offsetof(struct seccomp_data, args) + 8 * (number) + 4 * (half))

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

int notify_listen(void)
{
    /* Where only the number decides, the kernel remembers "allow": other calls cost nothing. */
    struct sock_filter instructions[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, NATIVE_ARCH, 0, 8),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_connect, 7, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_sendmmsg, 6, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_sendto, 0, 4),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, ARGUMENT(4, 0)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, ARGUMENT(4, 1)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
    };
    struct sock_fprog program = {sizeof instructions / sizeof instructions[0], instructions};
    if (!sizes_fit())
        return -1;
    /* Killable only, once we have taken it: a signal (Go sends itself many) would repeat the call. */
    unsigned long flags = SECCOMP_FILTER_FLAG_NEW_LISTENER;
    int fd = (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER,
                          flags | SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV, &program);
    if (fd < 0 && errno == EINVAL)
        fd = (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program);
    return fd;
}

/* An Internet address, IPv4 written as IPv6 turned into IPv4; false for any other family. */
static bool take_address(pid_t pid, uint64_t address, uint64_t size, struct endpoint *end)
{
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } found;
    size_t wanted = size < sizeof found ? (size_t)size : sizeof found;
    size_t length = tracee_read(pid, address, &found, wanted);
    memset(end, 0, sizeof *end);
    if (length >= sizeof found.v4 && found.any.sa_family == AF_INET) {
        end->family = AF_INET;
        end->port = ntohs(found.v4.sin_port);
        memcpy(end->address, &found.v4.sin_addr, 4);
        return true;
    }
    if (length < offsetof(struct sockaddr_in6, sin6_scope_id) || found.any.sa_family != AF_INET6)
        return false;
    bool mapped = IN6_IS_ADDR_V4MAPPED(&found.v6.sin6_addr);
    end->family = mapped ? AF_INET : AF_INET6;
    end->port = ntohs(found.v6.sin6_port);
    memcpy(end->address, found.v6.sin6_addr.s6_addr + (mapped ? 12 : 0), mapped ? 4 : 16);
    return true;
}

static const uint8_t zeros[16];

static bool is_loopback(const struct endpoint *end)
{
    if (end->family == AF_INET)
        return end->address[0] == 127;
    return memcmp(end->address, zeros, 15) == 0 && end->address[15] == 1;
}

/* getaddrinfo connects to port 0, and to "any address", to ask for a route: nothing is sent. */
static bool only_asks(const struct endpoint *end)
{
    return end->port == 0 || memcmp(end->address, zeros, sizeof zeros) == 0;
}

/* What this namespace serves itself is reached. */
static void note_address(pid_t pid, const struct endpoint *end)
{
    if (only_asks(end) || (is_loopback(end) && port_is_served(end->port)))
        return;
    struct command *command = command_of(pid);
    if (command != NULL)
        command_notified(command, end);
}

static void note_lookup(pid_t pid, uint64_t packet, uint64_t size)
{
    uint8_t bytes[PACKET_MAX];
    char name[LOOKUP_NAME_MAX + 1];
    size_t length = tracee_read(pid, packet, bytes, size < sizeof bytes ? (size_t)size : sizeof bytes);
    if (!lookup_name(bytes, length, name))
        return;
    struct command *command = command_of(pid);
    if (command != NULL)
        command_looked_up(command, name);
}

/* The C library sends both questions (A and AAAA) at once; they have the same name. */
static void note_messages(pid_t pid, uint64_t vector)
{
    struct mmsghdr first;
    struct iovec part;
    struct endpoint end;
    if (tracee_read(pid, vector, &first, sizeof first) != sizeof first)
        return;
    uint64_t name = (uintptr_t)first.msg_hdr.msg_name;
    bool addressed = name != 0 && take_address(pid, name, first.msg_hdr.msg_namelen, &end);
    if (addressed)
        note_address(pid, &end);
    if (addressed && end.port != DNS_PORT)
        return;
    if (tracee_read(pid, (uintptr_t)first.msg_hdr.msg_iov, &part, sizeof part) == sizeof part)
        note_lookup(pid, (uintptr_t)part.iov_base, part.iov_len);
}

static void note(const struct seccomp_notif *notice)
{
    const uint64_t *args = (const uint64_t *)notice->data.args;
    pid_t pid = (pid_t)notice->pid;
    struct endpoint end;
    if (notice->data.nr == SYS_sendmmsg) {
        note_messages(pid, args[1]);
        return;
    }
    bool connects = notice->data.nr == SYS_connect;
    if (!take_address(pid, args[connects ? 1 : 4], args[connects ? 2 : 5], &end))
        return;
    note_address(pid, &end);
    if (!connects && end.port == DNS_PORT)
        note_lookup(pid, args[1], args[2]);
}

void notify_serve(int listener)
{
    memset(&asked, 0, sizeof asked);
    /* Does not block after poll; ENOENT when the caller was killed meanwhile. */
    if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &asked.notice) != 0)
        return;
    note(&asked.notice);
    memset(&told, 0, sizeof told);
    told.answer.id = asked.notice.id;
    told.answer.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
    ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &told.answer);
}
