/*
 * Reports the connection attempts of a command, the socket files that it was refused, and the file systems that
 * lacked the space it asked for, to the daemon, each once.
 *
 * Bounded: of a scan of many addresses only the first few are reported. The socket buffer of a channel
 * holds all reports, so a daemon that does not read never blocks the init.
 */
#include "../command/command.h"
#include "../process_tree/process_tree.h"
#include "evidence.h"

#include <fcntl.h>
#include <linux/falloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define PARENTS_MAX 256
#define SOCKET_TYPE_MASK 0xf

/* The command whose reaper, or main process if it has none, is above the caller. */
struct command *command_of(pid_t pid)
{
    struct process_stat stat;
    for (int i = 0; i < PARENTS_MAX && pid > 1; i++) {
        for (struct command *c = commands_first(); c != NULL; c = c->next)
            if (pid == (c->lone ? c->start_state->main_pid : c->reaper))
                return c;
        if (!procstat_read(pid, &stat))
            return NULL;
        pid = stat.parent;
    }
    /* Its parents have ended, and the command has no reaper. With several such commands it is unknown. */
    struct command *first = commands_first();
    return first != NULL && first->next == NULL ? first : NULL;
}

static struct attempts *attempts_of(struct command *command)
{
    if (command->attempts == NULL)
        command->attempts = calloc(1, sizeof *command->attempts);
    return command->attempts;
}

void command_notified(struct command *command, const struct endpoint *end)
{
    struct attempts *attempts = attempts_of(command);
    if (attempts == NULL || attempts->end_count == ATTEMPTS_MAX)
        return;
    for (unsigned i = 0; i < attempts->end_count; i++)
        if (memcmp(&attempts->ends[i], end, sizeof *end) == 0)
            return;
    attempts->ends[attempts->end_count++] = *end;
    send_notified(command->channel, end);
}

/* The same name, or the same with a search domain appended by the resolver. */
static bool known_name(const char *known, const char *name)
{
    size_t length = strlen(known);
    return strncasecmp(known, name, length) == 0 && (name[length] == 0 || name[length] == '.');
}

void command_looked_up(struct command *command, const char *name)
{
    struct attempts *attempts = attempts_of(command);
    if (attempts == NULL || attempts->name_count == ATTEMPTS_MAX)
        return;
    for (unsigned i = 0; i < attempts->name_count; i++)
        if (known_name(attempts->names[i], name))
            return;
    memcpy(attempts->names[attempts->name_count++], name, strlen(name) + 1);
    send_looked_up(command->channel, name);
}

/* What it was for is guessed: getaddrinfo makes datagram sockets that block, to ask for a route, and a
 * resolver others. The C library makes Unix streams that do not block for nscd, and datagrams for the
 * log: programs continue without them. 0: not worth a report. */
static unsigned refused_kind(int family, int type)
{
    int kind = type & SOCKET_TYPE_MASK;
    bool blocks = (type & SOCK_NONBLOCK) == 0;
    if (family == AF_UNIX)
        return blocks && (kind == SOCK_STREAM || kind == SOCK_SEQPACKET) ? REFUSED_UNIX : 0;
    if (kind == SOCK_STREAM)
        return REFUSED_STREAM;
    if (kind == SOCK_DGRAM)
        return blocks ? REFUSED_BLOCKING_DATAGRAM : REFUSED_DATAGRAM;
    return 0;
}

void command_refused_socket(struct command *command, int family, int type)
{
    struct attempts *attempts = attempts_of(command);
    unsigned kind = refused_kind(family, type);
    if (attempts == NULL || kind == 0 || (attempts->sockets_refused & 1u << kind) != 0)
        return;
    attempts->sockets_refused |= 1u << kind;
    send_refused_socket(command->channel, kind);
}

void command_refused_peer(struct command *command, int fd)
{
    char link[64], path[WIRE_TEXT_MAX];
    struct stat status;
    struct attempts *attempts = attempts_of(command);
    if (attempts == NULL || attempts->peer_count == PEERS_MAX || fstat(fd, &status) != 0)
        return;
    for (unsigned i = 0; i < attempts->peer_count; i++)
        if (attempts->peers[i].inode == status.st_ino && attempts->peers[i].device == status.st_dev)
            return;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length <= 0 || (size_t)length == sizeof path - 1 || path[0] != '/')
        return;
    path[length] = 0;
    struct inode_check *known = &attempts->peers[attempts->peer_count++];
    memset(known, 0, sizeof *known);
    known->inode = status.st_ino;
    known->device = status.st_dev;
    send_refused_peer(command->channel, path);
}

/* Modes that free, or move what is there, need nothing. */
void command_allocates(pid_t pid, const uint64_t *args)
{
    char path[64];
    struct command *command = command_of(pid);
    struct attempts *attempts = command == NULL ? NULL : attempts_of(command);
    if (attempts == NULL || ((int)args[1] & ~(FALLOC_FL_KEEP_SIZE | FALLOC_FL_UNSHARE_RANGE)) != 0)
        return;
    if ((int)args[0] < 0 || (int64_t)args[2] < 0 || (int64_t)args[3] <= 0)
        return;
    proc_path(path, pid, "fd/", (int)args[0]);
    int fd = open(path, O_PATH | O_CLOEXEC);
    uint32_t full = fd < 0 ? 0 : shm_cannot_hold(fd, args[2], args[3]) & ~attempts->full;
    if (fd >= 0)
        close(fd);
    attempts->full |= full;
    send_full(command->channel, full, false, false);
}
