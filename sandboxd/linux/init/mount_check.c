/*
 * Verifies that every mount of the sandbox is where the daemon planned it.
 *
 * The watch in mount_watch.c compares with a snapshot, so it cannot notice a mount that was lost before
 * the snapshot: a rename on the host over a mask while bwrap still mounts. And the kernel reports no
 * event when a mount point is renamed: the mount moves with it, and a new file at the old name is
 * exposed. So each path is looked up by name and must be the root of the mount that was made there.
 * This is done before READY, before each command and before each exit is reported.
 *
 * To read the table of mounts takes the kernel longer than all of this. A clone, which gets no mounts of the
 * host, knows it from its template (mount_copies.c). Else it reads it after READY, while the daemon prepares the
 * command. If a mount changed meanwhile, all is verified again as for READY: no command has run yet.
 */
#include "init.h"
#include "command/command.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
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

/* `any`: whatever the inode is. `name`: within the folder of the path. `grouped`: the place before or after
 * it lies in the same folder; `first` of them. */
struct place {
    const char *path;
    const char *name;
    uint64_t device;
    uint64_t inode;
    uint64_t mount_id;
    bool any;
    bool grouped;
    bool first;
};

static struct place *places;
static size_t place_count, room;
/* And behind them those of now. */
static uint64_t listed[2 * LISTED_MAX];
static long listed_count; /* 0 and less: not known */
static int unread; /* the mountinfo that the snapshot is still to be read from; 0: none */
static bool copies;     /* it need not be read */
static pid_t init_pid;
static void (*lost)(const char *what);

static int look_up(int folder, const char *path, struct extended_stat *status)
{
    int flags = AT_SYMLINK_NOFOLLOW | AT_STATX_DONT_SYNC | AT_NO_AUTOMOUNT;
    memset(status, 0, sizeof *status);
    return (int)syscall(SYS_statx, folder, path, flags, FIELD_INODE | FIELD_MOUNT_ID, status);
}

static uint64_t device_of(const struct extended_stat *status)
{
    return makedev(status->dev_major, status->dev_minor);
}

/* One that is not kept up is read each time. */
static bool read_snapshot(void)
{
    int mountinfo = unread;
    if (!copies)
        unread = 0;
    return mountinfo <= 0 || mounts_snapshot(mountinfo);
}

/* The id of the mount that the table has at this path; 0 where it has none. */
static uint64_t id_in_table(const char *path)
{
    return read_snapshot() ? mounts_id(path) : 0;
}

/* Kernels before 5.8 tell neither whether a path is the root of a mount nor the mount's id. */
static bool tells_mounts(const struct extended_stat *status)
{
    return (status->attributes_mask & ATTRIBUTE_MOUNT_ROOT) != 0;
}

/* Before 5.8 the mount table is asked, in which `mount_check_hole` then finds every change. */
static bool is_mount_root(const struct extended_stat *status, const char *path)
{
    if (!tells_mounts(status))
        return id_in_table(path) != 0;
    return (status->attributes & ATTRIBUTE_MOUNT_ROOT) != 0;
}

static bool is_expected(const struct extended_stat *status, const struct place *place)
{
    return place->any || (device_of(status) == place->device && status->inode == place->inode);
}

long list_mounts(uint64_t *ids, size_t most)
{
    struct {
        uint32_t size, spare;
        uint64_t mount_id, last_id;
    } request = {sizeof request, 0, UINT64_MAX, 0};
    long count = syscall(CALL_LISTMOUNT, &request, ids, most, 0);
    return count > 0 && (size_t)count < most ? count : -1;
}

bool mount_check_begin(int mountinfo, uint32_t count, bool private, void (*on_lost)(const char *what))
{
    init_pid = getpid();
    lost = on_lost;
    listed_count = list_mounts(listed, LISTED_MAX);
    copies = private && copies_known(listed, listed_count);
    places = calloc((size_t)count + 1, sizeof *places);
    room = count;
    unread = mountinfo;
    return places != NULL && ((private && listed_count > 0) || read_snapshot());
}

/* The names of one folder are looked up in it, so that its path is walked once for all of them. */
static void group(struct place *place)
{
    struct place *before = place - 1;
    size_t length = (size_t)(place->name - place->path);
    place->first = true;
    if (place == places || (size_t)(before->name - before->path) != length ||
        memcmp(before->path, place->path, length) != 0)
        return;
    place->first = false;
    place->grouped = before->grouped = true;
}

static bool add(struct place place)
{
    place.path = strdup(place.path);
    if (place.path == NULL)
        return false;
    const char *slash = strrchr(place.path, '/');
    place.name = slash != NULL && slash[1] != 0 ? slash + 1 : place.path;
    places[place_count] = place;
    group(&places[place_count++]);
    return true;
}

/* This user may not search a folder of the path: the mount table tells which mount it is. The command may
 * open the folder, and then the path must lead to this mount. */
static bool add_unreachable(struct place place)
{
    place.mount_id = id_in_table(place.path);
    if (place.mount_id != 0)
        return add(place);
    errno = EACCES;
    return false;
}

bool mount_check_add(const struct inode_check *check)
{
    struct extended_stat status;
    struct place place = {.path = check->path, .device = check->device, .inode = check->inode};
    place.any = check->device == 0 && check->inode == 0;
    if (place_count == room) {
        errno = ENOMEM;
        return false;
    }
    if (look_up(AT_FDCWD, check->path, &status) != 0)
        return errno == EACCES && add_unreachable(place);
    if (!is_mount_root(&status, check->path) || !is_expected(&status, &place)) {
        errno = ESTALE;
        return false;
    }
    place.device = device_of(&status);
    place.inode = status.inode;
    place.any = false;
    place.mount_id = tells_mounts(&status) ? status.mount_id : id_in_table(place.path);
    return add(place);
}

/* Those of now, behind the others; more would be different ones. */
static long list_now(void)
{
    return listed_count > 0 ? list_mounts(listed + listed_count, (size_t)listed_count + 1) : -1;
}

static bool same_list(long count)
{
    return count > 0 && count == listed_count &&
           memcmp(listed + count, listed, (size_t)count * sizeof listed[0]) == 0;
}

/* What the mount table says that differs from the snapshot; covered mounts may come and go. */
static const char *compare_table(void)
{
    int mountinfo = mounts_open();
    if (mountinfo < 0)
        return "/proc/self/mountinfo";
    long count = listed_count > 0 ? list_mounts(listed, LISTED_MAX) : -1;
    const char *what = mounts_changed(mountinfo);
    listed_count = count;
    close(mountinfo);
    return what;
}

/* The folder of the places from this one on; -1 where it cannot be opened, and their paths are walked. */
static int open_folder(const struct place *place)
{
    char path[WIRE_TEXT_MAX];
    size_t length = (size_t)(place->name - place->path);
    if (length == 0 || length >= sizeof path)
        return -1;
    memcpy(path, place->path, length);
    path[length] = 0;
    return open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
}

/* Whether the path leads to its mount. `folder`: of the path, where it is open. `doubt`: only the mount table
 * can tell; it must be that of the snapshot, which has the mount there. */
static bool holds(const struct place *place, int folder, bool *doubt)
{
    struct extended_stat status;
    const char *path = folder >= 0 ? place->name : place->path;
    bool reached = look_up(folder >= 0 ? folder : AT_FDCWD, path, &status) == 0;
    if (!reached && errno != EACCES)
        return false;
    if (reached && (!is_mount_root(&status, place->path) || !is_expected(&status, place)))
        return false;
    if (reached && tells_mounts(&status))
        return status.mount_id == place->mount_id;
    *doubt = true;
    return id_in_table(place->path) == place->mount_id;
}

/* The first path that does not lead to its mount; else NULL. */
static const char *first_lost(bool *doubt)
{
    const struct place *place = places, *end = places + place_count;
    bool all_hold = true;
    int folder = -1;
    for (; place < end; place++) {
        if (place->first && folder >= 0)
            close(folder);
        if (place->first)
            folder = place->grouped ? open_folder(place) : -1;
        all_hold = holds(place, folder, doubt);
        if (!all_hold)
            break;
    }
    if (folder >= 0)
        close(folder);
    return all_hold ? NULL : place->path;
}

const char *mount_check_hole(void)
{
    if (init_pid == 0)
        return NULL;
    long count = list_now();
    bool same = same_list(count), doubt = false;
    const char *lost_path = first_lost(&doubt);
    if (lost_path != NULL)
        return lost_path;
    if (copies)
        return same ? NULL : copies_changed(listed, listed_count, listed + listed_count, count);
    return doubt || !same ? compare_table() : NULL;
}

const char *mount_check_event(int mountinfo)
{
    return copies ? mount_check_hole() : mounts_changed(mountinfo);
}

/* As if the watch began now. */
static const char *verify_again(void)
{
    listed_count = list_mounts(listed, LISTED_MAX);
    return read_snapshot() ? mount_check_hole() : "/proc/self/mountinfo";
}

const char *mount_check_table(void)
{
    if (same_list(list_now()))
        return NULL;
    return unread > 0 && !copies ? verify_again() : mount_check_hole();
}

void mount_check_settle(void)
{
    struct pollfd changes = {.fd = unread, .events = POLLPRI};
    const char *what = NULL;
    if (unread <= 0 || copies)
        return;
    if (!read_snapshot())
        what = "/proc/self/mountinfo";
    else if (poll(&changes, 1, 0) != 0) {
        unread = changes.fd;
        what = verify_again();
    }
    if (what != NULL)
        lost(what);
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
