/*
 * Which Unix sockets a command may connect to: those that processes of the sandbox listen on, and
 * files that the caller named.
 *
 * A socket file on a read-only mount was made outside. On a writable mount the kernel's list of
 * listening sockets of this network namespace decides. Where the sandbox shares the host's network
 * namespace, a process of the sandbox must also hold the socket, whether it has a file or only a
 * name. A file is bound to one socket for good, and the descriptor that the caller of these functions
 * holds keeps its inode from being reused. A name can pass to another socket: see unix_peer_is_inside.
 */
#include "../command/command.h"
#include "../process_tree/process_tree.h"
#include "notify.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define MOUNTINFO_MAX (256u << 10)

static struct inode_check *named;
static uint32_t named_count;
static bool network_is_shared;

bool unix_peers_set_up(const struct inode_check *sockets, uint32_t count, bool shared_network)
{
    named = calloc(count + 1, sizeof *named);
    if (named == NULL)
        return false;
    memcpy(named, sockets, count * sizeof *named);
    named_count = count;
    network_is_shared = shared_network;
    return true;
}

static bool is_named(const struct stat *status)
{
    for (uint32_t i = 0; i < named_count; i++)
        if (named[i].device == status->st_dev && named[i].inode == status->st_ino)
            return true;
    return false;
}

static uint32_t kernel_device(unsigned major_number, unsigned minor_number)
{
    return major_number << 20 | minor_number;
}

/* The number of the file system itself. stat() shows others for parts of one (btrfs). */
static uint32_t filesystem_device(int fd, uint32_t otherwise)
{
    static char text[MOUNTINFO_MAX];
    char name[64];
    unsigned id, found_major, found_minor;
    snprintf(name, sizeof name, "fdinfo/%d", fd);
    if (procstat_text(getpid(), name, text, sizeof text) < 0)
        return otherwise;
    const char *line = strstr(text, "mnt_id:");
    if (line == NULL || sscanf(line, "mnt_id: %u", &id) != 1)
        return otherwise;
    if (procstat_text(getpid(), "mountinfo", text, sizeof text) < 0)
        return otherwise;
    for (line = text; line != NULL; line = strchr(line, '\n')) {
        unsigned this_id;
        line += *line == '\n';
        if (sscanf(line, "%u %*u %u:%u", &this_id, &found_major, &found_minor) == 3 &&
            this_id == id)
            return kernel_device(found_major, found_minor);
    }
    return otherwise;
}

/* `looks`: how many more descriptors are looked at. */
static bool holds(pid_t pid, const char *socket_name, size_t *looks)
{
    char path[64], target[64];
    proc_path(path, pid, "fd", -1);
    DIR *folder = opendir(path);
    bool found = false;
    for (struct dirent *entry;
         folder != NULL && !found && *looks > 0 && (entry = readdir(folder)) != NULL; --*looks) {
        ssize_t length = readlinkat(dirfd(folder), entry->d_name, target, sizeof target - 1);
        target[length > 0 ? length : 0] = 0;
        found = strcmp(target, socket_name) == 0;
    }
    if (folder != NULL)
        closedir(folder);
    return found;
}

/* Whether a process of this sandbox has it open. One that is not dumpable does not count, nor one behind very
 * many descriptors: the init must not be kept busy. */
static bool is_held_inside(uint32_t socket_number)
{
    struct pid_list all = {0};
    char name[32];
    bool found = false;
    size_t looks = DESCRIPTORS_MAX;
    snprintf(name, sizeof name, "socket:[%u]", socket_number);
    procs_below(&all, NULL);
    for (size_t i = 0; i < all.count && !found && looks > 0; i++)
        found = holds(all.at[i], name, &looks);
    free(all.at);
    return found;
}

static bool has_listener_inside(const struct listening_place *place)
{
    uint32_t found[LISTENERS_MAX];
    size_t count = unix_listeners(place, found);
    if (!network_is_shared)
        return count > 0;
    for (size_t i = 0; i < count; i++)
        if (is_held_inside(found[i]))
            return true;
    return false;
}

static bool is_listened_on_inside(int fd, const struct stat *status)
{
    uint32_t device = kernel_device(major(status->st_dev), minor(status->st_dev));
    struct listening_place file = {.inode = (uint32_t)status->st_ino, .device = device};
    if (has_listener_inside(&file))
        return true;
    file.device = filesystem_device(fd, device);
    return file.device != device && has_listener_inside(&file);
}

bool unix_peer_allowed(int fd)
{
    struct stat status;
    struct statvfs filesystem;
    if (fstat(fd, &status) != 0 || fstatvfs(fd, &filesystem) != 0)
        return false;
    /* The call connects nothing: the kernel may answer it. */
    if (!S_ISSOCK(status.st_mode) || is_named(&status))
        return true;
    return (filesystem.f_flag & ST_RDONLY) == 0 && is_listened_on_inside(fd, &status);
}

bool unix_name_allowed(const char *name, size_t length)
{
    struct listening_place place = {.name = name, .name_length = length};
    return !network_is_shared || has_listener_inside(&place);
}

bool unix_peer_is_inside(int fd)
{
    struct ucred peer;
    socklen_t size = sizeof peer;
    /* A process outside of our pid namespace has the number 0 here. */
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.pid != 0;
}
