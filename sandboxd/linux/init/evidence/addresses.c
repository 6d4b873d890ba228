/* The address, and the DNS name, in a call that sends or connects where the network is closed. */
#include "../command/command.h"
#include "evidence.h"

#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#define PACKET_MAX 512

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

/* A server in this namespace is reached. */
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

void attempt_note(pid_t pid, long number, const uint64_t *args)
{
    struct endpoint end;
    if (number == SYS_sendmmsg) {
        note_messages(pid, args[1]);
        return;
    }
    bool connects = number == SYS_connect;
    if (!take_address(pid, args[connects ? 1 : 4], args[connects ? 2 : 5], &end))
        return;
    note_address(pid, &end);
    if (!connects && end.port == DNS_PORT)
        note_lookup(pid, args[1], args[2]);
}

void attempt_note_ipv6(pid_t pid, const uint64_t *args)
{
    struct endpoint end;
    if (take_address(pid, args[1], args[2], &end) && end.family == AF_INET6 && !is_loopback(&end))
        note_address(pid, &end);
}
