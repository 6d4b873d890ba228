/*
 * The two directions between the bridge and the daemon.
 *
 * Outward: lines of base64 on stdout, because the server's stream is made of lines of text. Each has a
 * number, so that a lost or an added line is noticed. Inward: the daemon uploads files with the names
 * 0, 1, 2, … into a folder, one after the other. A file is removed after the next one has come: until
 * then the server may still set its mode.
 */
#include "remote.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#define LINE_DATA 12000
#define LINE_HEADER 10
#define FRAME_HEADER 9
#define FILE_MAX (32u << 20)

static int folder_fd = -1;
static int watch = -1;
static unsigned long next_file;
static uint32_t next_line;
static char *waiting;
static size_t waiting_length, waiting_room, written;

bool link_open(const char *folder)
{
    folder_fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    watch = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    if (watch >= 0)
        inotify_add_watch(watch, folder, IN_CLOSE_WRITE | IN_MOVED_TO);
    int flags = fcntl(1, F_GETFL);
    return folder_fd >= 0 && flags >= 0 && fcntl(1, F_SETFL, flags | O_NONBLOCK) == 0;
}

int link_watched(void)
{
    return watch;
}

/* outward */

static char *room_for(size_t more)
{
    if (waiting_length + more > waiting_room) {
        waiting_room = 2 * (waiting_length + more);
        waiting = realloc(waiting, waiting_room);
        if (waiting == NULL)
            _exit(INIT_LOST);
    }
    return waiting + waiting_length;
}

static void put_base64(const uint8_t *bytes, size_t length)
{
    static const char signs[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    char *out = room_for(4 * (length / 3 + 1) + 1), *start = out;
    for (size_t i = 0; i < length; i += 3) {
        size_t left = length - i;
        uint32_t three = (uint32_t)bytes[i] << 16 | (uint32_t)(left > 1 ? bytes[i + 1] : 0) << 8 |
                         (left > 2 ? bytes[i + 2] : 0);
        *out++ = signs[three >> 18];
        *out++ = signs[three >> 12 & 63];
        *out++ = left > 1 ? signs[three >> 6 & 63] : '=';
        *out++ = left > 2 ? signs[three & 63] : '=';
    }
    *out++ = '\n';
    waiting_length += (size_t)(out - start);
}

void link_tell(uint8_t kind, uint32_t id, const void *data, size_t length)
{
    static uint8_t line[LINE_HEADER + LINE_DATA];
    size_t done = 0;
    do {
        size_t part = length - done < LINE_DATA ? length - done : LINE_DATA;
        memcpy(line, &next_line, 4);
        next_line++;
        line[4] = kind;
        line[5] = done + part < length; /* whether more of the frame follows */
        memcpy(line + 6, &id, 4);
        if (part > 0)
            memcpy(line + LINE_HEADER, (const uint8_t *)data + done, part);
        put_base64(line, LINE_HEADER + part);
        done += part;
    } while (done < length);
}

size_t link_pending(void)
{
    return waiting_length - written;
}

bool link_flush(void)
{
    while (written < waiting_length) {
        ssize_t n = write(1, waiting + written, waiting_length - written);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno == EAGAIN;
        written += (size_t)n;
    }
    written = waiting_length = 0;
    return true;
}

/* inward */

static uint8_t *read_whole(int fd, size_t length)
{
    uint8_t *bytes = malloc(length);
    for (size_t done = 0; bytes != NULL && done < length;) {
        ssize_t n = read(fd, bytes + done, length - done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            free(bytes);
            return NULL;
        }
        done += (size_t)n;
    }
    return bytes;
}

/* The next file; NULL while it is not there, or not whole. */
static uint8_t *take_file(uint32_t *length)
{
    char name[32];
    struct stat status;
    snprintf(name, sizeof name, "%lu", next_file);
    int fd = openat(folder_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return NULL;
    uint8_t *bytes = NULL;
    if (read(fd, length, 4) == 4 && *length <= FILE_MAX && fstat(fd, &status) == 0 &&
        S_ISREG(status.st_mode) && (uint64_t)status.st_size >= 4 + (uint64_t)*length)
        bytes = read_whole(fd, *length);
    close(fd);
    return bytes;
}

static bool each_frame(uint8_t *bytes, uint32_t length, bool (*on_frame)(const struct frame *frame))
{
    for (uint32_t at = 0; at < length;) {
        struct frame frame;
        if (length - at < FRAME_HEADER)
            return false;
        memcpy(&frame.length, bytes + at, 4);
        frame.kind = bytes[at + 4];
        memcpy(&frame.id, bytes + at + 5, 4);
        at += FRAME_HEADER;
        if (frame.length > length - at)
            return false;
        frame.data = bytes + at;
        at += frame.length;
        if (!on_frame(&frame))
            return false;
    }
    return true;
}

bool link_receive(bool (*on_frame)(const struct frame *frame))
{
    char events[4096];
    while (watch >= 0 && read(watch, events, sizeof events) > 0)
        continue;
    uint32_t length = 0;
    uint8_t *bytes;
    while ((bytes = take_file(&length)) != NULL) {
        char name[32];
        snprintf(name, sizeof name, "%lu", next_file - 1);
        if (next_file > 0)
            unlinkat(folder_fd, name, 0);
        next_file++;
        bool good = each_frame(bytes, length, on_frame);
        free(bytes);
        if (!good)
            return false;
    }
    return true;
}
