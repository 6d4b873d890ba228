/* Operations of the file server on one file or folder: read, write, stat, mkdir, realpath. */
#include "file_server.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define READ_MAX (8u << 20)
#define PIECE (1u << 20)
#define NO_MODE UINT32_MAX

enum write_flag { WRITE_APPEND = 1, WRITE_AT = 2, WRITE_PARENTS = 4 };

static dev_t proc_device;

void file_content_begin(void)
{
    struct stat status;
    if (stat("/proc/self", &status) == 0)
        proc_device = status.st_dev;
}

/*
 * Whether a file of /proc is about this process. A link to /proc/self/mem or environ in the workspace
 * would otherwise show the memory of the init, whose copy this process is.
 */
static bool is_own_proc_file(int fd)
{
    char name[64], own[64], path[PATH_MAX];
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(name, path, sizeof path - 1);
    if (length < 0)
        return true;
    path[length] = '\0';
    length = snprintf(own, sizeof own, "/proc/%d/", (int)getpid());
    return strncmp(path, own, (size_t)length) == 0;
}

int open_regular(const char *path, int flags, mode_t mode)
{
    struct stat status;
    int fd = open(path, flags | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, mode);
    if (fd < 0) {
        if (errno == ENXIO)
            errno = EINVAL;
        return -1;
    }
    int error = fstat(fd, &status) != 0 ? errno
                : S_ISDIR(status.st_mode) ? EISDIR
                : !S_ISREG(status.st_mode) ? EINVAL
                : status.st_dev == proc_device && is_own_proc_file(fd) ? EACCES
                                                                       : 0;
    if (error == 0)
        return fd;
    close(fd);
    errno = error;
    return -1;
}

static int make_parents(const char *path)
{
    char folder[PATH_MAX];
    size_t length = strlen(path);
    if (length >= sizeof folder)
        return ENAMETOOLONG;
    memcpy(folder, path, length + 1);
    for (char *at = folder + 1; *at != '\0'; at++) {
        if (*at != '/')
            continue;
        *at = '\0';
        if (mkdir(folder, 0777) != 0 && errno != EEXIST) {
            /* A parent that exists on a read-only mount answers EROFS: only a missing one counts. */
            int error = errno;
            struct stat status;
            if (stat(folder, &status) != 0)
                return error;
        }
        *at = '/';
    }
    return 0;
}

int do_read(struct cursor *cursor)
{
    const char *path = take_string(cursor);
    uint64_t offset = take_u64(cursor), length = take_u64(cursor);
    struct stat status;
    if (cursor->bad || offset > INT64_MAX)
        return EINVAL;
    int fd = open_regular(path, O_RDONLY, 0);
    if (fd < 0)
        return errno;
    if (length > READ_MAX)
        length = READ_MAX;
    if (length > INT64_MAX - offset)
        length = INT64_MAX - offset;
    int error = fstat(fd, &status) == 0 ? 0 : errno;
    /* Files of /proc have no size. */
    if (error == 0 && status.st_size > 0) {
        uint64_t left = (uint64_t)status.st_size > offset ? (uint64_t)status.st_size - offset : 0;
        length = length < left ? length : left;
    }
    uint8_t *bytes = error == 0 ? malloc(length + 1) : NULL;
    size_t got = 0;
    while (bytes != NULL && got < length) {
        /* Files of /proc/sys refuse a large buffer. */
        size_t wanted = length - got < PIECE ? length - got : PIECE;
        ssize_t count = pread(fd, bytes + got, wanted, (off_t)(offset + got));
        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0)
            error = errno;
        if (count <= 0)
            break;
        got += (size_t)count;
    }
    close(fd);
    if (error == 0 && (bytes == NULL || !answer_u64((uint64_t)status.st_size) || !answer_add(bytes, got)))
        error = ENOMEM;
    free(bytes);
    return error;
}

int write_all(int fd, const uint8_t *bytes, size_t size, int64_t offset)
{
    size_t done = 0;
    while (done < size) {
        ssize_t count = offset >= 0 ? pwrite(fd, bytes + done, size - done, offset + (off_t)done)
                                    : write(fd, bytes + done, size - done);
        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0)
            return errno;
        done += (size_t)count;
    }
    return 0;
}

int do_write(struct cursor *cursor)
{
    const char *path = take_string(cursor);
    uint32_t flags = take_u32(cursor), mode = take_u32(cursor);
    uint64_t offset = take_u64(cursor);
    if (cursor->bad || offset > INT64_MAX)
        return EINVAL;
    const uint8_t *bytes = cursor->at;
    size_t size = (size_t)(cursor->end - cursor->at);
    if (flags & WRITE_PARENTS) {
        int error = make_parents(path);
        if (error != 0)
            return error;
    }
    int how = O_WRONLY | O_CREAT;
    how |= (flags & WRITE_APPEND) ? O_APPEND : (flags & WRITE_AT) ? 0 : O_TRUNC;
    int fd = open_regular(path, how, mode == NO_MODE ? 0666 : mode & 0777);
    if (fd < 0)
        return errno;
    int error = write_all(fd, bytes, size, (flags & WRITE_AT) ? (int64_t)offset : -1);
    if (error == 0 && mode != NO_MODE && fchmod(fd, mode & 0777) != 0)
        error = errno;
    if (close(fd) != 0 && error == 0)
        error = errno;
    if (error == 0)
        answer_u64(size);
    return error;
}

int do_stat(struct cursor *cursor)
{
    const char *path = take_string(cursor);
    bool follow = take_u32(cursor) != 0;
    char target[PATH_MAX];
    struct stat status;
    if (cursor->bad)
        return EINVAL;
    if ((follow ? stat(path, &status) : lstat(path, &status)) != 0)
        return errno;
    ssize_t length = S_ISLNK(status.st_mode) ? readlink(path, target, sizeof target) : 0;
    if (length < 0)
        return errno;
    return answer_status(&status) && answer_string(target, (size_t)length) ? 0 : ENOMEM;
}

int do_mkdir(struct cursor *cursor)
{
    const char *path = take_string(cursor);
    bool parents = take_u32(cursor) != 0;
    uint32_t mode = take_u32(cursor);
    struct stat status;
    if (cursor->bad)
        return EINVAL;
    int error = parents ? make_parents(path) : 0;
    if (error != 0)
        return error;
    if (mkdir(path, mode == NO_MODE ? 0777 : mode & 01777) == 0)
        return 0;
    error = errno;
    return error == EEXIST && parents && stat(path, &status) == 0 && S_ISDIR(status.st_mode) ? 0
                                                                                             : error;
}

int do_realpath(struct cursor *cursor)
{
    const char *path = take_string(cursor);
    char real[PATH_MAX];
    if (cursor->bad)
        return EINVAL;
    if (realpath(path, real) == NULL)
        return errno;
    return answer_string(real, strlen(real)) ? 0 : ENOMEM;
}
