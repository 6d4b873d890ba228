/* Messages on a command's channel to the daemon, sent by the reaper or by the init in its place. */
#include "command.h"
#include "../evidence/evidence.h"

#include <poll.h>
#include <string.h>

enum { REFUSED_WAIT_MS = 1000 };

static uint64_t microseconds(const struct timeval *time)
{
    return (uint64_t)time->tv_sec * 1000000 + (uint64_t)time->tv_usec;
}

struct usage usage_of(const struct rusage *rusage)
{
    return (struct usage){
        .user_us = microseconds(&rusage->ru_utime),
        .system_us = microseconds(&rusage->ru_stime),
        .maxrss_bytes = (uint64_t)rusage->ru_maxrss * 1024,
    };
}

void usage_add(struct usage *total, const struct usage *more)
{
    total->user_us += more->user_us;
    total->system_us += more->system_us;
    if (more->maxrss_bytes > total->maxrss_bytes)
        total->maxrss_bytes = more->maxrss_bytes;
}

static void put_usage(struct writer *writer, const struct usage *usage)
{
    put_u64(writer, usage->user_us);
    put_u64(writer, usage->system_us);
    put_u64(writer, usage->maxrss_bytes);
}

static bool send(int channel, uint8_t type, const struct writer *writer, int fd, bool may_block)
{
    return wire_send(channel, type, writer->bytes, writer->length, fd, may_block);
}

bool send_started(int channel, pid_t pid, int master, bool may_block)
{
    struct writer writer;
    writer.length = 0;
    put_u32(&writer, (uint32_t)pid);
    return send(channel, MESSAGE_STARTED, &writer, master, may_block);
}

bool send_exec_failed(int channel, uint32_t stage, int error, const char *path, bool may_block)
{
    struct writer writer;
    writer.length = 0;
    put_u32(&writer, stage);
    put_u32(&writer, (uint32_t)error);
    put_text(&writer, path);
    return send(channel, MESSAGE_EXEC_FAILED, &writer, -1, may_block);
}

bool send_exited(int channel, int status, const struct usage *usage, bool may_block)
{
    struct writer writer;
    writer.length = 0;
    put_u32(&writer, (uint32_t)status);
    put_usage(&writer, usage);
    return send(channel, MESSAGE_EXITED, &writer, -1, may_block);
}

bool send_limit(int channel, uint32_t kind, bool may_block)
{
    struct writer writer;
    writer.length = 0;
    put_u32(&writer, kind);
    return send(channel, MESSAGE_LIMIT, &writer, -1, may_block);
}

bool send_left(int channel, const struct left *left, bool may_block)
{
    struct writer writer;
    writer.length = 0;
    put_u32(&writer, left->count);
    put_u32(&writer, left->name_count);
    for (uint32_t i = 0; i < left->name_count; i++)
        put_text(&writer, left->names[i]);
    return send(channel, MESSAGE_LEFT, &writer, -1, may_block);
}

bool send_gone(int channel, const struct usage *usage, bool may_block)
{
    struct writer writer;
    writer.length = 0;
    put_usage(&writer, usage);
    return send(channel, MESSAGE_GONE, &writer, -1, may_block);
}

/* Never blocks: every command that connects waits for the init. */
bool send_notified(int channel, const struct endpoint *end)
{
    struct writer writer;
    writer.length = 0;
    put_u32(&writer, end->family);
    put_u32(&writer, end->port);
    put_bytes(&writer, end->address, sizeof end->address);
    return send(channel, MESSAGE_NOTIFIED, &writer, -1, false);
}

bool send_looked_up(int channel, const char *name)
{
    struct writer writer;
    writer.length = 0;
    put_text(&writer, name);
    return send(channel, MESSAGE_LOOKED_UP, &writer, -1, false);
}

bool send_refused_peer(int channel, const char *path)
{
    struct writer writer;
    writer.length = 0;
    put_text(&writer, path);
    return send(channel, MESSAGE_REFUSED_PEER, &writer, -1, false);
}

bool send_refused_socket(int channel, uint32_t kind)
{
    struct writer writer;
    writer.length = 0;
    put_u32(&writer, kind);
    return send(channel, MESSAGE_REFUSED_SOCKET, &writer, -1, false);
}

/* A daemon that does not read loses them: the command's time limit must not wait for it. */
bool send_refused(int channel, uint32_t count, const uint8_t *items, size_t size)
{
    static bool stuck;
    static uint8_t payload[WIRE_MESSAGE_MAX - WIRE_HEADER_BYTES];
    struct writer head;
    head.length = 0;
    put_u32(&head, count);
    if (size > sizeof payload - head.length)
        return false;
    memcpy(payload, head.bytes, head.length);
    memcpy(payload + head.length, items, size);
    if (wire_send(channel, MESSAGE_REFUSED, payload, head.length + size, -1, false)) {
        stuck = false;
        return true;
    }
    struct pollfd room = {.fd = channel, .events = POLLOUT};
    stuck = stuck || poll(&room, 1, REFUSED_WAIT_MS) <= 0;
    return !stuck && wire_send(channel, MESSAGE_REFUSED, payload, head.length + size, -1, false);
}

bool send_killed_call(int channel, uint32_t number)
{
    struct writer writer;
    writer.length = 0;
    put_u32(&writer, number);
    return send(channel, MESSAGE_KILLED_CALL, &writer, -1, true);
}

void send_full(int channel, uint32_t full, bool before, bool may_block)
{
    for (uint32_t i = 0; i < 32 && full != 0; i++, full >>= 1) {
        struct writer writer;
        writer.length = 0;
        if ((full & 1) == 0)
            continue;
        put_u32(&writer, before);
        put_text(&writer, shm_path(i));
        send(channel, MESSAGE_NO_SPACE, &writer, -1, may_block);
    }
}

/* One that was full before the command is no news to one that succeeded. */
void report_full(int channel, uint32_t before, int status, bool may_block)
{
    uint32_t full = shm_full();
    if (full == 0)
        return;
    send_full(channel, full & ~before, false, may_block);
    if (status != 0)
        send_full(channel, full & before, true, may_block);
}
