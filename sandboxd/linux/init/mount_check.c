/*
 * Verifies that every mount of the sandbox is where the daemon planned it.
 *
 * The watch in mount_watch.c compares with a snapshot, so it cannot notice a mount that was lost before
 * the snapshot: a rename on the host over a mask while bwrap still mounts. And the kernel reports no
 * event when a mount point is renamed: the mount moves with it, and a new file at the old name is
 * exposed. So each path is looked up by name and must be the root of the mount that was made there.
 * This is done before READY, before each command and before each exit is reported.
 */
#include "init.h"
#include "command/command.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#ifndef AT_STATX_DONT_SYNC
#define AT_STATX_DONT_SYNC 0x4000
#endif
#ifndef AT_NO_AUTOMOUNT
#define AT_NO_AUTOMOUNT 0x800
#endif

/* Tests set it to 0: no attribute, as before 5.8. */
#ifndef ATTRIBUTE_MOUNT_ROOT
#define ATTRIBUTE_MOUNT_ROOT 0x2000
#endif

/* By number: the headers of a distribution are often older than its kernel. */
enum {
    CALL_LISTMOUNT = 458,
    FIELD_INODE = 0x100,
    FIELD_MOUNT_ID = 0x1000,
    LISTED_MAX = 4096,
};

struct extended_stat {
    uint32_t mask;
    uint32_t block_size;
    uint64_t attributes;
    uint32_t link_count, uid, gid;
    uint16_t mode, spare;
    uint64_t inode, size, blocks, attributes_mask;
    uint8_t times[64];
    uint32_t rdev_major, rdev_minor, dev_major, dev_minor;
    uint64_t mount_id;
    uint8_t more[256 - 152];
};

struct place {
    char *path;
    uint64_t device;
    uint64_t inode;
    uint64_t mount_id;
};

static struct place *places;
static size_t place_count;
static uint64_t listed[LISTED_MAX];
static long listed_count = -1;
static pid_t init_pid;
static void (*lost)(const char *what);

static int look_up(const char *path, struct extended_stat *status)
{
    int flags = AT_SYMLINK_NOFOLLOW | AT_STATX_DONT_SYNC | AT_NO_AUTOMOUNT;
    memset(status, 0, sizeof *status);
    return (int)syscall(SYS_statx, AT_FDCWD, path, flags, FIELD_INODE | FIELD_MOUNT_ID, status);
}

static uint64_t device_of(const struct extended_stat *status)
{
    return makedev(status->dev_major, status->dev_minor);
}

/* Kernels before 5.8 do not report it, nor the mount id: there the mount table is asked, in which
 * `mount_check_hole` then finds every change. */
static bool is_mount_root(const struct extended_stat *status, const char *path)
{
    if ((status->attributes_mask & ATTRIBUTE_MOUNT_ROOT) == 0)
        return mounts_has(path);
    return (status->attributes & ATTRIBUTE_MOUNT_ROOT) != 0;
}

/* The ids of all mounts, which are never used twice; -1 where the kernel has no listmount. */
static long list(uint64_t ids[LISTED_MAX])
{
    struct {
        uint32_t size, spare;
        uint64_t mount_id, last_id;
    } request = {sizeof request, 0, UINT64_MAX, 0};
    long count = syscall(CALL_LISTMOUNT, &request, ids, (size_t)LISTED_MAX, 0);
    return count > 0 && count < LISTED_MAX ? count : -1;
}

bool mount_check_begin(int mountinfo, void (*on_lost)(const char *what))
{
    init_pid = getpid();
    lost = on_lost;
    listed_count = list(listed);
    return mounts_snapshot(mountinfo);
}

bool mount_check_add(const struct inode_check *check)
{
    struct extended_stat status;
    struct place *more = realloc(places, (place_count + 1) * sizeof *places);
    if (more == NULL)
        return false;
    places = more;
    if (look_up(check->path, &status) != 0) {
        /* This user may not search a folder of the path. The mount table still lists the mount. */
        return errno == EACCES && mounts_has(check->path);
    }
    bool any = check->device == 0 && check->inode == 0;
    if (!is_mount_root(&status, check->path) ||
        (!any && (device_of(&status) != check->device || status.inode != check->inode))) {
        errno = ESTALE;
        return false;
    }
    char *path = strdup(check->path);
    if (path == NULL)
        return false;
    places[place_count++] =
        (struct place){path, device_of(&status), status.inode, status.mount_id};
    return true;
}

static bool same_list(void)
{
    static uint64_t now[LISTED_MAX];
    long count = listed_count > 0 ? list(now) : -1;
    return count > 0 && count == listed_count &&
           memcmp(now, listed, (size_t)count * sizeof now[0]) == 0;
}

/* What the mount table says that differs from the snapshot; covered mounts may come and go. */
static const char *compare_table(void)
{
    int mountinfo = mounts_open();
    if (mountinfo < 0)
        return "/proc/self/mountinfo";
    long count = listed_count > 0 ? list(listed) : -1;
    const char *what = mounts_changed(mountinfo);
    listed_count = count;
    close(mountinfo);
    return what;
}

const char *mount_check_hole(void)
{
    struct extended_stat status;
    if (init_pid == 0)
        return NULL;
    bool doubt = !same_list();
    for (size_t i = 0; i < place_count; i++) {
        if (look_up(places[i].path, &status) != 0) {
            if (errno != EACCES)
                return places[i].path;
            doubt = true;
        } else if (!is_mount_root(&status, places[i].path) || status.mount_id != places[i].mount_id ||
                   status.inode != places[i].inode || device_of(&status) != places[i].device)
            return places[i].path;
    }
    return doubt ? compare_table() : NULL;
}

void mount_check_demand(void)
{
    const char *what = mount_check_hole();
    if (what == NULL)
        return;
    if (getpid() != init_pid)
        _exit(REAPER_LOST);
    lost(what);
}
