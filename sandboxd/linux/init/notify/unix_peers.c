/*
 * Which socket files a command may connect to: those that processes of the sandbox listen on, and
 * those that the caller named.
 *
 * A socket file on a read-only mount was made outside. On a writable mount the kernel's list of
 * listening sockets decides: it holds the device and the inode of the file that each is bound to,
 * for the sockets of one network namespace. Where the sandbox shares the host's network namespace,
 * a process of the sandbox must also hold the socket. A file is bound to one socket for good, and
 * the descriptor that the caller of these functions holds keeps its inode from being reused.
 */
#include "../command/command.h"
#include "../process_tree/process_tree.h"
#include "notify.h"

#include <dirent.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <linux/unix_diag.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define STATE_LISTEN 10
#define MATCHES_MAX 16
#define MOUNTINFO_MAX (256u << 10)

static struct inode_check *named;
static uint32_t named_count;
static bool network_is_shared;

struct wanted_file {
    uint32_t inode;
    uint32_t device;
};

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

static bool is_wanted(const struct unix_diag_vfs *vfs, const struct wanted_file *file)
{
    return vfs->udiag_vfs_ino == file->inode && vfs->udiag_vfs_dev == file->device;
}

static const struct unix_diag_vfs *vfs_of(const struct nlmsghdr *header)
{
    const struct unix_diag_msg *message = NLMSG_DATA(header);
    const struct nlattr *attribute = (const void *)(message + 1);
    size_t rest = header->nlmsg_len < NLMSG_LENGTH(sizeof *message)
                      ? 0
                      : header->nlmsg_len - NLMSG_LENGTH(sizeof *message);
    while (rest >= sizeof *attribute && attribute->nla_len >= sizeof *attribute &&
           attribute->nla_len <= rest) {
        size_t step = NLA_ALIGN(attribute->nla_len);
        if (attribute->nla_type == UNIX_DIAG_VFS &&
            attribute->nla_len >= NLA_HDRLEN + sizeof(struct unix_diag_vfs))
            return (const void *)((const char *)attribute + NLA_HDRLEN);
        if (step >= rest)
            break;
        rest -= step;
        attribute = (const void *)((const char *)attribute + step);
    }
    return NULL;
}

static bool ask_for_listeners(int netlink)
{
    struct {
        struct nlmsghdr header;
        struct unix_diag_req request;
    } question = {
        .header = {.nlmsg_len = sizeof question,
                   .nlmsg_type = SOCK_DIAG_BY_FAMILY,
                   .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP},
        .request = {.sdiag_family = AF_UNIX,
                    .udiag_states = 1u << STATE_LISTEN,
                    .udiag_show = UDIAG_SHOW_VFS},
    };
    return send(netlink, &question, sizeof question, 0) == (ssize_t)sizeof question;
}

/* The numbers of the listening sockets bound to the file; one unless 32 bits are too few. */
static size_t listeners(const struct wanted_file *file, uint32_t found[MATCHES_MAX])
{
    static _Alignas(struct nlmsghdr) char buffer[32768];
    size_t count = 0;
    int netlink = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
    if (netlink < 0)
        return 0;
    if (!ask_for_listeners(netlink)) {
        close(netlink);
        return 0;
    }
    /* The kernel writes the answer while it is read: nothing is waited for. */
    for (bool done = false; !done;) {
        ssize_t length = recv(netlink, buffer, sizeof buffer, MSG_DONTWAIT);
        done = length <= 0;
        const struct nlmsghdr *header = (const void *)buffer;
        for (size_t rest = done ? 0 : (size_t)length; NLMSG_OK(header, rest);
             header = NLMSG_NEXT(header, rest)) {
            if (header->nlmsg_type != SOCK_DIAG_BY_FAMILY) {
                done = true;
                break;
            }
            const struct unix_diag_vfs *vfs = vfs_of(header);
            if (vfs != NULL && is_wanted(vfs, file) && count < MATCHES_MAX)
                found[count++] = ((const struct unix_diag_msg *)NLMSG_DATA(header))->udiag_ino;
        }
    }
    close(netlink);
    return count;
}

static bool holds(pid_t pid, const char *socket_name)
{
    char path[64], target[64];
    proc_path(path, pid, "fd", -1);
    DIR *folder = opendir(path);
    bool found = false;
    for (struct dirent *entry; folder != NULL && !found && (entry = readdir(folder)) != NULL;) {
        ssize_t length = readlinkat(dirfd(folder), entry->d_name, target, sizeof target - 1);
        target[length > 0 ? length : 0] = 0;
        found = strcmp(target, socket_name) == 0;
    }
    if (folder != NULL)
        closedir(folder);
    return found;
}

/* Whether a process of this sandbox has it open. One that is not dumpable does not count. */
static bool is_held_inside(uint32_t socket_number)
{
    struct pid_list all = {0};
    char name[32];
    bool found = false;
    snprintf(name, sizeof name, "socket:[%u]", socket_number);
    procs_below(&all, NULL);
    for (size_t i = 0; i < all.count && !found; i++)
        found = holds(all.at[i], name);
    free(all.at);
    return found;
}

static bool has_listener_inside(const struct wanted_file *file)
{
    uint32_t found[MATCHES_MAX];
    size_t count = listeners(file, found);
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
    struct wanted_file file = {(uint32_t)status->st_ino, device};
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
