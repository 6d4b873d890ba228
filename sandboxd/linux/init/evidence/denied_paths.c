/*
 * Reports refused accesses to the daemon, each once, many in one message.
 *
 * A build asks for thousands of paths that do not exist, and only the daemon knows which of them exist
 * on the host. So every path is reported, at most REFUSALS_MAX.
 */
#include "../command/command.h"
#include "../process_tree/process_tree.h"
#include "evidence.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define REFUSALS_MAX 65536
#define SLOTS (2 * REFUSALS_MAX)
#define BATCH_BYTES 32768
#define BATCH_MS 20

#ifndef STATX_ATTR_MOUNT_ROOT
#define STATX_ATTR_MOUNT_ROOT 0x2000
#endif

static uint64_t *seen;
static unsigned seen_count;
static uint8_t batch[BATCH_BYTES];
static size_t batch_length;
static uint32_t batch_count;
static uint64_t batch_since_ms;

static uint64_t hash(uint64_t value, const void *bytes, size_t size)
{
    const uint8_t *at = bytes;
    for (size_t i = 0; i < size; i++)
        value = (value ^ at[i]) * 0x100000001b3;
    return value;
}

static bool is_new(uint32_t error, uint32_t wanted, const char *path)
{
    uint64_t key = hash(0xcbf29ce484222325, &error, sizeof error);
    key = hash(hash(key, &wanted, sizeof wanted), path, strlen(path));
    key += key == 0;
    if (seen == NULL) {
        void *room = mmap(NULL, SLOTS * sizeof *seen, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (room == MAP_FAILED)
            return false;
        seen = room;
    }
    size_t start_state = key % SLOTS;
    for (; seen[start_state] != 0; start_state = (start_state + 1) % SLOTS)
        if (seen[start_state] == key)
            return false;
    if (seen_count == REFUSALS_MAX)
        return false;
    seen[start_state] = key;
    seen_count++;
    return true;
}

void refusals_flush(int channel)
{
    if (batch_count == 0)
        return;
    send_refused(channel, batch_count, batch, batch_length);
    batch_count = 0;
    batch_length = 0;
}

int refusals_timeout_ms(void)
{
    if (batch_count == 0)
        return -1;
    uint64_t now = now_ms();
    return now < batch_since_ms + BATCH_MS ? (int)(batch_since_ms + BATCH_MS - now) : 0;
}

static void tell(int channel, uint32_t error, uint32_t wanted, const char *path)
{
    struct writer item;
    if (!is_new(error, wanted, path))
        return;
    item.length = 0;
    put_u32(&item, error);
    put_u32(&item, wanted);
    put_text(&item, path);
    if (batch_length + item.length > sizeof batch)
        refusals_flush(channel);
    if (batch_count == 0)
        batch_since_ms = now_ms();
    memcpy(batch + batch_length, item.bytes, item.length);
    batch_length += item.length;
    batch_count++;
}

/* What a name in /proc/PID leads to. */
static size_t follow(pid_t pid, const char *name, int number, char *into, size_t size)
{
    char link[64];
    proc_path(link, pid, name, number);
    ssize_t length = readlink(link, into, size - 1);
    size_t kept = length > 0 && into[0] == '/' ? (size_t)length : 0;
    into[kept] = 0;
    return kept;
}

/* Absolute, as the process sees it; a relative one is meant from its folder or a descriptor. */
static bool make_absolute(pid_t pid, bool from_cwd, int directory, char *path, size_t size)
{
    char folder[WIRE_TEXT_MAX];
    if (path[0] == '/')
        return true;
    if (path[0] == 0)
        return false;
    size_t length = from_cwd || directory == AT_FDCWD
                        ? follow(pid, "cwd", -1, folder, sizeof folder)
                        : follow(pid, "fd/", directory, folder, sizeof folder);
    size_t rest = strlen(path) + 1;
    if (length == 0 || length + 1 + rest > size)
        return false;
    memmove(path + length + 1, path, rest);
    memcpy(path, folder, length);
    path[length] = '/';
    return true;
}

static bool socket_path(pid_t pid, const uint64_t *args, char *path, size_t size)
{
    struct sockaddr_un address;
    size_t wanted = args[2] < sizeof address ? (size_t)args[2] : sizeof address;
    size_t head = offsetof(struct sockaddr_un, sun_path);
    size_t length = tracee_read(pid, args[1], &address, wanted);
    if (length <= head || address.sun_family != AF_UNIX || length - head >= size)
        return false;
    memcpy(path, address.sun_path, length - head);
    path[length - head] = 0;
    return path[0] != 0;
}

static void refused_path(int channel, pid_t pid, uint32_t error, uint32_t wanted, int directory,
                         int argument, const uint64_t *args)
{
    static char path[WIRE_TEXT_MAX];
    bool found = argument == SOCKET_ADDRESS ? socket_path(pid, args, path, sizeof path)
                                            : tracee_string(pid, args[argument], path, sizeof path);
    bool from_cwd = directory == NO_ARGUMENT;
    if (found && make_absolute(pid, from_cwd, from_cwd ? 0 : (int)args[directory], path, sizeof path))
        tell(channel, error, wanted, path);
}

void refusals_failed(int channel, pid_t pid, const struct call_shape *shape, const uint64_t *args,
                     int error)
{
    uint32_t wanted = call_wants(shape, pid, args);
    refused_path(channel, pid, (uint32_t)error, wanted, shape->directory, shape->path, args);
    if (shape->second_wanted != 0)
        refused_path(channel, pid, (uint32_t)error, shape->second_wanted, shape->second_directory,
                     shape->second_path, args);
}

/* A masked file can be opened and is empty: the mount over it is reported with errno 0. */
void refusals_opened(int channel, pid_t pid, const struct call_shape *shape, const uint64_t *args,
                     int fd)
{
    char link[64], path[WIRE_TEXT_MAX];
    struct statx status;
    proc_path(link, pid, "fd/", fd);
    if (statx(AT_FDCWD, link, 0, STATX_TYPE | STATX_SIZE, &status) != 0 ||
        (status.stx_attributes & STATX_ATTR_MOUNT_ROOT) == 0)
        return;
    bool masks = S_ISDIR(status.stx_mode) || (S_ISREG(status.stx_mode) && status.stx_size == 0);
    if (masks && follow(pid, "fd/", fd, path, sizeof path) > 0)
        tell(channel, 0, call_wants(shape, pid, args), path);
}
