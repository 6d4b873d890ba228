/*
 * The system calls that take a path: which argument it is, and what is wanted of it.
 *
 * Explain mode traces these calls. Calls on open descriptors are not among them: whether a file may be
 * written was decided when it was opened.
 */
#include "evidence.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_openat2
#define SYS_openat2 437
#endif
#ifndef SYS_faccessat2
#define SYS_faccessat2 439
#endif
#ifndef SYS_fchmodat2
#define SYS_fchmodat2 452
#endif

#define AT(number, operation, directory, path) {number, operation, directory, path, 0, 0, 0}
#define CWD(number, operation, path) AT(number, operation, NO_ARGUMENT, path)

static const struct call_shape shapes[] = {
    AT(SYS_openat, WANTS_BY_FLAGS, 0, 1),
    AT(SYS_openat2, WANTS_BY_HOW, 0, 1),
    AT(SYS_newfstatat, WANTED_LOOK, 0, 1),
    AT(SYS_statx, WANTED_LOOK, 0, 1),
    AT(SYS_faccessat, WANTS_BY_MODE, 0, 1),
    AT(SYS_faccessat2, WANTS_BY_MODE, 0, 1),
    AT(SYS_readlinkat, WANTED_LOOK, 0, 1),
    CWD(SYS_execve, WANTED_EXEC, 0),
    AT(SYS_execveat, WANTED_EXEC, 0, 1),
    CWD(SYS_chdir, WANTED_ENTER, 0),
    AT(SYS_mkdirat, WANTED_CREATE, 0, 1),
    AT(SYS_unlinkat, WANTED_REMOVE, 0, 1),
    {SYS_renameat2, WANTED_RENAME, 0, 1, WANTED_RENAME, 2, 3},
    {SYS_linkat, WANTED_LOOK, 0, 1, WANTED_CREATE, 2, 3},
    AT(SYS_symlinkat, WANTED_CREATE, 1, 2),
    AT(SYS_mknodat, WANTED_CREATE, 0, 1),
    AT(SYS_fchmodat, WANTED_CHANGE, 0, 1),
    AT(SYS_fchmodat2, WANTED_CHANGE, 0, 1),
    AT(SYS_fchownat, WANTED_CHANGE, 0, 1),
    AT(SYS_utimensat, WANTED_CHANGE, 0, 1),
    CWD(SYS_truncate, WANTED_WRITE, 0),
    CWD(SYS_setxattr, WANTED_CHANGE, 0),
    CWD(SYS_lsetxattr, WANTED_CHANGE, 0),
    CWD(SYS_removexattr, WANTED_CHANGE, 0),
    CWD(SYS_lremovexattr, WANTED_CHANGE, 0),
    CWD(SYS_statfs, WANTED_LOOK, 0),
    CWD(SYS_inotify_add_watch, WANTED_LOOK, 1),
    AT(SYS_connect, WANTED_LOOK, NO_ARGUMENT, SOCKET_ADDRESS),
    AT(SYS_bind, WANTED_CREATE, NO_ARGUMENT, SOCKET_ADDRESS),
#ifdef SYS_renameat
    {SYS_renameat, WANTED_RENAME, 0, 1, WANTED_RENAME, 2, 3},
#endif
#ifdef SYS_open /* the older half of x86-64's table */
    CWD(SYS_open, WANTS_BY_FLAGS, 0),
    CWD(SYS_creat, WANTED_CREATE, 0),
    CWD(SYS_stat, WANTED_LOOK, 0),
    CWD(SYS_lstat, WANTED_LOOK, 0),
    CWD(SYS_access, WANTS_BY_MODE, 0),
    CWD(SYS_readlink, WANTED_LOOK, 0),
    CWD(SYS_mkdir, WANTED_CREATE, 0),
    CWD(SYS_rmdir, WANTED_REMOVE, 0),
    CWD(SYS_unlink, WANTED_REMOVE, 0),
    {SYS_rename, WANTED_RENAME, NO_ARGUMENT, 0, WANTED_RENAME, NO_ARGUMENT, 1},
    {SYS_link, WANTED_LOOK, NO_ARGUMENT, 0, WANTED_CREATE, NO_ARGUMENT, 1},
    CWD(SYS_symlink, WANTED_CREATE, 1),
    CWD(SYS_mknod, WANTED_CREATE, 0),
    CWD(SYS_chmod, WANTED_CHANGE, 0),
    CWD(SYS_chown, WANTED_CHANGE, 0),
    CWD(SYS_lchown, WANTED_CHANGE, 0),
    CWD(SYS_utime, WANTED_CHANGE, 0),
    CWD(SYS_utimes, WANTED_CHANGE, 0),
    AT(SYS_futimesat, WANTED_CHANGE, 0, 1),
#endif
};

const struct call_shape *call_shapes(size_t *count)
{
    *count = sizeof shapes / sizeof shapes[0];
    return shapes;
}

const struct call_shape *call_shape_of(uint64_t number)
{
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        if ((uint64_t)shapes[i].number == number)
            return &shapes[i];
    return NULL;
}

static uint32_t by_flags(uint64_t flags)
{
    if ((flags & O_CREAT) || (flags & __O_TMPFILE) == __O_TMPFILE)
        return WANTED_CREATE;
    if ((flags & O_ACCMODE) != O_RDONLY || (flags & O_TRUNC))
        return WANTED_WRITE;
    return flags & O_PATH ? WANTED_LOOK : WANTED_READ;
}

/* The flags, or the mode, or the structure with the flags, follow the path. */
uint32_t call_wants(const struct call_shape *shape, pid_t pid, const uint64_t *args)
{
    uint64_t next = args[(shape->path + 1) % 6], flags = 0;
    switch (shape->wanted) {
    case WANTS_BY_FLAGS:
        return by_flags(next);
    case WANTS_BY_HOW:
        return tracee_read(pid, next, &flags, sizeof flags) == sizeof flags ? by_flags(flags)
                                                                             : WANTED_READ;
    case WANTS_BY_MODE:
        return next & W_OK ? WANTED_PROBE : WANTED_LOOK;
    default:
        return shape->wanted;
    }
}
