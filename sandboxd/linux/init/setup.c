/*
 * Setup, done once: check that the sandbox is the planned one, then apply Landlock.
 *
 * The init applies the domain to itself, and so to all processes that it forks. It must happen here,
 * after bwrap's mounts: a Landlock domain that handles files forbids mount(2).
 */
#include "init.h"
#include "process_tree/process_tree.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_landlock_add_rule
#define SYS_landlock_add_rule 445
#define SYS_landlock_restrict_self 446
#endif

/* Rights that a rule on something other than a directory may name; by number, since the headers
 * of a distribution are often older than its kernel. */
enum {
    RIGHT_EXECUTE = 1u << 0,
    RIGHT_WRITE_FILE = 1u << 1,
    RIGHT_READ_FILE = 1u << 2,
    RIGHT_TRUNCATE = 1u << 14,
    RIGHT_IOCTL_DEV = 1u << 15,
    RIGHTS_OF_A_FILE =
        RIGHT_EXECUTE | RIGHT_WRITE_FILE | RIGHT_READ_FILE | RIGHT_TRUNCATE | RIGHT_IOCTL_DEV,
};

static bool fail(struct setup_failure *failure, uint32_t stage, int error, const char *detail)
{
    *failure = (struct setup_failure){.stage = stage, .error = error, .detail = detail};
    return false;
}

/* The path itself, not what a symlink in its last place points to. */
static int open_path(const char *path, struct stat *status)
{
    int fd = open(path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return -1;
    if (fstat(fd, status) == 0)
        return fd;
    int error = errno;
    close(fd);
    errno = error;
    return -1;
}

static bool check_mount(const struct inode_check *check, struct setup_failure *failure)
{
    return mount_check_add(check) || fail(failure, SETUP_STAGE_CHECK, errno, check->path);
}

static bool check_inode(const struct inode_check *check, struct setup_failure *failure)
{
    struct stat status;
    int fd = open_path(check->path, &status);
    if (fd < 0)
        return fail(failure, SETUP_STAGE_CHECK, errno, check->path);
    close(fd);
    if (status.st_dev == check->device && status.st_ino == check->inode)
        return true;
    return fail(failure, SETUP_STAGE_CHECK, ESTALE, check->path);
}

/* Rules only grant: one of a path that is missing, or that this user may not reach, is left out. */
static bool add_rule(int ruleset, const struct path_rule *rule, struct setup_failure *failure)
{
    struct stat status;
    int fd = open_path(rule->path, &status);
    if (fd < 0)
        return errno == ENOENT || errno == EACCES || fail(failure, SETUP_STAGE_RULE, errno, rule->path);
    struct landlock_path_beneath_attr beneath = {.allowed_access = rule->access, .parent_fd = fd};
    if (!S_ISDIR(status.st_mode))
        beneath.allowed_access &= RIGHTS_OF_A_FILE;
    int error = 0;
    if (S_ISLNK(status.st_mode))
        error = ELOOP;
    else if (syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &beneath, 0) != 0)
        error = errno;
    close(fd);
    return error == 0 || fail(failure, SETUP_STAGE_RULE, error, rule->path);
}

static bool restrict_self(const struct setup_request *request, struct setup_failure *failure)
{
    for (uint32_t i = 0; i < request->rule_count; i++)
        if (!add_rule(request->ruleset, &request->rules[i], failure))
            return false;
    if (syscall(SYS_landlock_restrict_self, request->ruleset, 0) != 0)
        return fail(failure, SETUP_STAGE_LANDLOCK, errno, "landlock_restrict_self");
    return true;
}

/* Killing a tree reads /proc. A /proc that is missing, of another namespace or not readable under the
 * ruleset must be noticed now. */
static bool check_proc(struct setup_failure *failure)
{
    int stat = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
    if (stat < 0)
        return fail(failure, SETUP_STAGE_PROC, errno, "/proc");
    close(stat);
    char link[32] = "";
    ssize_t length = readlink("/proc/self", link, sizeof link - 1);
    pid_t shown = 0;
    for (ssize_t i = 0; i < length; i++)
        shown = shown * 10 + (link[i] - '0');
    if (shown != getpid())
        return fail(failure, SETUP_STAGE_PROC, ESRCH, "/proc");
    return true;
}

bool setup_apply(const struct setup_request *request, struct setup_failure *failure)
{
    if ((request->flags & SETUP_REQUIRE_PID1) && getpid() != 1)
        return fail(failure, SETUP_STAGE_PID1, EINVAL, "not PID 1");
    shm_set_up(request->scratch, request->scratch_count);
    if ((request->flags & SETUP_HAS_RULESET) && !restrict_self(request, failure))
        return false;
    bool mounts = request->flags & SETUP_WATCH_MOUNTS;
    for (uint32_t i = 0; i < request->check_count; i++)
        if (!(mounts ? check_mount : check_inode)(&request->checks[i], failure))
            return false;
    const char *hole = mounts ? mount_check_table() : NULL;
    if (hole != NULL)
        return fail(failure, SETUP_STAGE_CHECK, ESTALE, hole);
    return check_proc(failure);
}
