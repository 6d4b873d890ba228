/*
 * The kernel's list of listening Unix sockets (unix_diag), those of one network namespace.
 *
 * It holds the device and the inode of the file that each is bound to, with 32 bits for the inode, or
 * the name of one that has no file.
 */
#include "notify.h"

#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <linux/unix_diag.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define STATE_LISTEN 10

static bool ask(int netlink)
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
                    .udiag_show = UDIAG_SHOW_VFS | UDIAG_SHOW_NAME},
    };
    return send(netlink, &question, sizeof question, 0) == (ssize_t)sizeof question;
}

/* The content of an attribute of the message and its length; NULL if it has none of this type. */
static const void *attribute_of(const struct nlmsghdr *header, uint16_t type, size_t *length)
{
    const struct unix_diag_msg *message = NLMSG_DATA(header);
    const struct nlattr *attribute = (const void *)(message + 1);
    size_t rest = header->nlmsg_len < NLMSG_LENGTH(sizeof *message)
                      ? 0
                      : header->nlmsg_len - NLMSG_LENGTH(sizeof *message);
    while (rest >= sizeof *attribute && attribute->nla_len >= sizeof *attribute &&
           attribute->nla_len <= rest) {
        size_t step = NLA_ALIGN(attribute->nla_len);
        if (attribute->nla_type == type) {
            *length = attribute->nla_len - (size_t)NLA_HDRLEN;
            return (const char *)attribute + NLA_HDRLEN;
        }
        if (step >= rest)
            break;
        rest -= step;
        attribute = (const void *)((const char *)attribute + step);
    }
    return NULL;
}

static bool is_at(const struct nlmsghdr *header, const struct listening_place *place)
{
    size_t length = 0;
    if (place->name != NULL) {
        const char *name = attribute_of(header, UNIX_DIAG_NAME, &length);
        return name != NULL && length == place->name_length &&
               memcmp(name, place->name, length) == 0;
    }
    const struct unix_diag_vfs *file = attribute_of(header, UNIX_DIAG_VFS, &length);
    return file != NULL && length >= sizeof *file && file->udiag_vfs_ino == place->inode &&
           file->udiag_vfs_dev == place->device;
}

size_t unix_listeners(const struct listening_place *place, uint32_t found[LISTENERS_MAX])
{
    static struct nlmsghdr buffer[2048];
    size_t count = 0;
    int netlink = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
    if (netlink < 0)
        return 0;
    if (!ask(netlink)) {
        close(netlink);
        return 0;
    }
    /* The kernel writes the answer while it is read: nothing is waited for. */
    for (bool done = false; !done;) {
        ssize_t length = recv(netlink, buffer, sizeof buffer, MSG_DONTWAIT);
        done = length <= 0;
        const struct nlmsghdr *header = buffer;
        for (size_t rest = done ? 0 : (size_t)length; NLMSG_OK(header, rest);
             header = NLMSG_NEXT(header, rest)) {
            if (header->nlmsg_type != SOCK_DIAG_BY_FAMILY) {
                done = true;
                break;
            }
            if (is_at(header, place) && count < LISTENERS_MAX)
                found[count++] = ((const struct unix_diag_msg *)NLMSG_DATA(header))->udiag_ino;
        }
    }
    close(netlink);
    return count;
}
