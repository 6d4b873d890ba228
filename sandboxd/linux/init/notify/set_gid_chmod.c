/*
 * chmod of a command with the set-group-ID bit, made by the init: folders get it, nothing else.
 *
 * On a folder the bit is ordinary (git init --shared, tar, rsync, cp -p). A program that has it runs
 * with the rights of a group, on the host too. A filter cannot distinguish the two, and the command
 * could replace one by the other at any moment: the path is opened once, checked, and changed through
 * that descriptor. The command's own call never continues.
 *
 * The init may have rights that the command lacks: the folder must belong to the caller's user.
 */
#include "../process_tree/process_tree.h"
#include "notify.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_openat2
#define SYS_openat2 437
#endif
#define MODE_BITS 07777u

/* What the four calls have in common. */
struct request {
    int folder;
    uint64_t path; /* 0: the descriptor itself */
    unsigned mode;
    int flags;
};

static bool read_request(long number, const uint64_t *args, struct request *request)
{
    switch (number) {
#ifdef SYS_chmod
    case SYS_chmod:
        *request = (struct request){AT_FDCWD, args[0], (unsigned)args[1], 0};
        return true;
#endif
    case SYS_fchmod:
        *request = (struct request){(int)args[0], 0, (unsigned)args[1], 0};
        return true;
    case SYS_fchmodat:
        *request = (struct request){(int)args[0], args[1], (unsigned)args[2], 0};
        return true;
    case SYS_fchmodat2:
        *request = (struct request){(int)args[0], args[1], (unsigned)args[2], (int)args[3]};
        return true;
    }
    return false;
}

static int open_descriptor(pid_t pid, int number)
{
    char place[64];
    if (number < 0 && number != AT_FDCWD) {
        errno = EBADF;
        return -1;
    }
    proc_path(place, pid, number == AT_FDCWD ? "cwd" : "fd/", number == AT_FDCWD ? -1 : number);
    int fd = open(place, O_PATH | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT)
        errno = EBADF;
    return fd;
}

/* The number in a path that names a descriptor of the caller's own; -1: it is another path. */
static int named_descriptor(const char *path)
{
    static const char *const starts[] = {"/proc/self/fd/", "/proc/thread-self/fd/", "/dev/fd/"};
    for (size_t i = 0; i < sizeof starts / sizeof starts[0]; i++) {
        size_t length = strlen(starts[i]);
        if (strncmp(path, starts[i], length) != 0 || path[length] < '0' || path[length] > '9')
            continue;
        char *end;
        unsigned long number = strtoul(path + length, &end, 10);
        return *end == 0 && number <= INT_MAX ? (int)number : -1;
    }
    return -1;
}

/* Links of /proc would lead to what the init has open. */
static int open_below(int folder, const char *path, int flags)
{
    struct open_how how = {
        .flags = O_PATH | O_CLOEXEC | (flags & AT_SYMLINK_NOFOLLOW ? O_NOFOLLOW : 0),
        .resolve = RESOLVE_NO_MAGICLINKS,
    };
    int fd = (int)syscall(SYS_openat2, folder, path, &how, sizeof how);
    if (fd < 0 && errno == ENOSYS)
        errno = EPERM;
    return fd;
}

/* The named file, opened with O_PATH; -1 with errno. */
static int open_target(pid_t pid, const struct request *request)
{
    char path[PATH_MAX] = "";
    if (request->path == 0)
        return open_descriptor(pid, request->folder);
    if (!tracee_string(pid, request->path, path, sizeof path)) {
        errno = EFAULT;
        return -1;
    }
    if (path[0] == 0 && request->flags & AT_EMPTY_PATH)
        return open_descriptor(pid, request->folder);
    int number = named_descriptor(path);
    if (number >= 0)
        return open_descriptor(pid, number);
    if (!caller_has_our_root(pid)) {
        errno = EPERM;
        return -1;
    }
    int folder = open_descriptor(pid, path[0] == '/' ? AT_FDCWD : request->folder);
    if (folder < 0)
        return -1;
    int fd = open_below(folder, path, request->flags);
    int error = errno;
    close(folder);
    errno = error;
    return fd;
}

/* Files belong to the user that a process has for the file system: the fourth number. */
static bool belongs_to(pid_t pid, const struct stat *status)
{
    char text[128];
    unsigned long owner;
    return caller_status(pid, "Uid", text, sizeof text) &&
           sscanf(text, "%*u %*u %*u %lu", &owner) == 1 && owner == status->st_uid;
}

/* 0, or the error to answer. */
static int change(const struct asked_call *call, int fd, unsigned mode)
{
    struct stat status;
    char path[64];
    if (fstat(fd, &status) != 0)
        return errno;
    bool allowed = S_ISDIR(status.st_mode) && belongs_to(call->pid, &status);
    if (!caller_still_asks(call))
        return EINTR;
    if (!allowed)
        return EPERM;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return notify_chmod(path, mode & MODE_BITS) == 0 ? 0 : errno;
}

void set_gid_chmod(const struct asked_call *call, long number, const uint64_t *args)
{
    struct request request;
    int fd = -1, error = EPERM;
    if (read_request(number, args, &request)) {
        fd = open_target(call->pid, &request);
        error = fd < 0 ? errno : change(call, fd, request.mode);
    }
    caller_answer(call, error);
    if (fd >= 0)
        close(fd);
}
