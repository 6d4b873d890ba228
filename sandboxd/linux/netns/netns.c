/*
 * Makes sockets in the network namespace of a sandbox and hands them to the daemon.
 *
 *   sandboxd-netns USER NET SOCKET    joins the namespaces (descriptors) first
 *   sandboxd-netns --connect PATH     is in there already: a container engine has put it there
 *
 * SOCKET is one end of a SOCK_SEQPACKET pair, PATH where the daemon listens for such a connection.
 * It reads one message, an array of `struct wish`, and answers one message for each, in order: an
 * int32_t (0 or errno) and, on success, the socket. Then it ends.
 *
 * A process of its own, because joining a user namespace needs a process with one thread and
 * cannot be undone. In there it has every capability over that network namespace and none outside:
 * ports below 1024 can be bound, and an address that the manifest names put on the loopback device.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { WISHES_MAX = 4096, BACKLOG = 128, FAILED = 1, RAW = 2 };

enum wish_flag {
    WISH_ADD_ADDRESS = 1, /* the address is not one of the loopback device yet */
    WISH_ROUTE_ALL = 2,   /* no socket: every address there is lives on the loopback device */
};

struct wish {
    uint8_t family; /* 4 or 6 */
    uint8_t stream; /* 1: TCP, listening; 0: UDP; 2: raw, all packets of TCP */
    uint16_t port;
    uint32_t flags;
    uint8_t address[16];
};

static struct wish wishes[WISHES_MAX];

static int descriptor(const char *text)
{
    char *end;
    long number = strtol(text, &end, 10);
    return *text == '\0' || *end != '\0' || number < 0 || number > 1 << 20 ? -1 : (int)number;
}

static void put_attribute(struct nlmsghdr *header, uint16_t type, const void *data, size_t size)
{
    struct rtattr *attribute = (struct rtattr *)((char *)header + NLMSG_ALIGN(header->nlmsg_len));
    attribute->rta_type = type;
    attribute->rta_len = (uint16_t)RTA_LENGTH(size);
    memcpy(RTA_DATA(attribute), data, size);
    header->nlmsg_len = NLMSG_ALIGN(header->nlmsg_len) + (uint32_t)RTA_ALIGN(attribute->rta_len);
}

/* Sends one request of rtnetlink; 0 or what the kernel answered. */
static int netlink_ask(struct nlmsghdr *header)
{
    struct {
        struct nlmsghdr header;
        struct nlmsgerr error;
        char rest[256];
    } answer;
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    if (fd < 0)
        return errno;
    header->nlmsg_flags |= NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE;
    ssize_t got = -1;
    if (send(fd, header, header->nlmsg_len, 0) == (ssize_t)header->nlmsg_len)
        got = recv(fd, &answer, sizeof answer, 0);
    int error = errno;
    close(fd);
    if (got < 0)
        return error;
    if (got < (ssize_t)NLMSG_LENGTH(sizeof answer.error) ||
        answer.header.nlmsg_type != NLMSG_ERROR)
        return EPROTO;
    return -answer.error.error;
}

static int add_address(const struct wish *wish)
{
    struct {
        struct nlmsghdr header;
        struct ifaddrmsg address;
        char attributes[128];
    } request = {0};
    size_t size = wish->family == 4 ? 4 : 16;
    request.header.nlmsg_len = NLMSG_LENGTH(sizeof request.address);
    request.header.nlmsg_type = RTM_NEWADDR;
    request.address.ifa_family = wish->family == 4 ? AF_INET : AF_INET6;
    request.address.ifa_prefixlen = wish->family == 4 ? 32 : 128;
    /* Usable at once: no other host on this link could have the same address. */
    request.address.ifa_flags = IFA_F_NODAD;
    request.address.ifa_index = if_nametoindex("lo");
    put_attribute(&request.header, IFA_LOCAL, wish->address, size);
    put_attribute(&request.header, IFA_ADDRESS, wish->address, size);
    int error = netlink_ask(&request.header);
    return error == EEXIST ? 0 : error;
}

/* Whether the loopback device is the only one in use: otherwise this is no sandbox's namespace, and
 * the route below would cut off its connections. */
static int alone(void)
{
    struct if_nameindex *all = if_nameindex();
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    int error = all == NULL || fd < 0 ? errno : 0;
    for (struct if_nameindex *one = all; error == 0 && one->if_index != 0; one++) {
        struct ifreq request = {0};
        strncpy(request.ifr_name, one->if_name, IFNAMSIZ - 1);
        if (ioctl(fd, SIOCGIFFLAGS, &request) != 0)
            error = errno;
        else if ((request.ifr_flags & IFF_UP) && !(request.ifr_flags & IFF_LOOPBACK))
            error = EBUSY;
    }
    if (all != NULL)
        if_freenameindex(all);
    if (fd >= 0)
        close(fd);
    return error;
}

/* A route of type local for 0.0.0.0/0: every IPv4 address can be bound, and a connection to any
 * ends in this namespace, at a listener for all addresses where there is one. Nothing leaves. */
static int route_all(void)
{
    int error = alone();
    if (error != 0)
        return error;
    struct {
        struct nlmsghdr header;
        struct rtmsg route;
        char attributes[64];
    } request = {0};
    uint32_t device = if_nametoindex("lo");
    request.header.nlmsg_len = NLMSG_LENGTH(sizeof request.route);
    request.header.nlmsg_type = RTM_NEWROUTE;
    request.route = (struct rtmsg){
        .rtm_family = AF_INET,
        .rtm_table = RT_TABLE_LOCAL,
        .rtm_protocol = RTPROT_STATIC,
        .rtm_scope = RT_SCOPE_HOST,
        .rtm_type = RTN_LOCAL,
    };
    put_attribute(&request.header, RTA_OIF, &device, sizeof device);
    error = netlink_ask(&request.header);
    return error == EEXIST ? 0 : error;
}

static int bound(int fd, const struct wish *wish)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(wish->port)};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(wish->port)};
    if (wish->family == 4) {
        memcpy(&v4.sin_addr, wish->address, 4);
        return bind(fd, (struct sockaddr *)&v4, sizeof v4);
    }
    memcpy(&v6.sin6_addr, wish->address, 16);
    return bind(fd, (struct sockaddr *)&v6, sizeof v6);
}

/* Sees the packets of connections that are attempted, and answers them: with an IP header of its own. */
static int make_raw(int *made)
{
    int one = 1;
    int fd = socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP);
    if (fd < 0)
        return errno;
    if (setsockopt(fd, IPPROTO_IP, IP_HDRINCL, &one, sizeof one) != 0) {
        int error = errno;
        close(fd);
        return error;
    }
    *made = fd;
    return 0;
}

static int make(const struct wish *wish, int *made)
{
    int one = 1, error = 0;
    int family = wish->family == 4 ? AF_INET : AF_INET6;
    int type = wish->stream ? SOCK_STREAM : SOCK_DGRAM;
    if (wish->flags & WISH_ROUTE_ALL)
        return route_all();
    if ((wish->flags & WISH_ADD_ADDRESS) && (error = add_address(wish)) != 0)
        return error;
    if (wish->stream == RAW)
        return make_raw(made);
    int fd = socket(family, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return errno;
    if (family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof one);
    else if (!wish->stream)
        setsockopt(fd, IPPROTO_IP, IP_PKTINFO, &one, sizeof one);
    if (bound(fd, wish) == 0 && (!wish->stream || listen(fd, BACKLOG) == 0)) {
        *made = fd;
        return 0;
    }
    error = errno;
    close(fd);
    return error;
}

static bool answer(int channel, int32_t error, int fd)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct iovec part = {.iov_base = &error, .iov_len = sizeof error};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (fd >= 0) {
        message.msg_control = control.bytes;
        message.msg_controllen = sizeof control.bytes;
        struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
        rights->cmsg_level = SOL_SOCKET;
        rights->cmsg_type = SCM_RIGHTS;
        rights->cmsg_len = CMSG_LEN(sizeof fd);
        memcpy(CMSG_DATA(rights), &fd, sizeof fd);
    }
    return sendmsg(channel, &message, MSG_NOSIGNAL) == (ssize_t)sizeof error;
}

static int dial(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof address.sun_path)
        return -1;
    strcpy(address.sun_path, path);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, (const struct sockaddr *)&address, sizeof address) != 0)
        return -1;
    return fd;
}

/* True when there is nothing to join, too. */
static bool joined(int user, int net)
{
    return (user < 0 || setns(user, CLONE_NEWUSER) == 0) &&
           (net < 0 || setns(net, CLONE_NEWNET) == 0);
}

int main(int argc, char **argv)
{
    bool inside = argc == 3 && strcmp(argv[1], "--connect") == 0;
    int user = argc == 4 ? descriptor(argv[1]) : -1;
    int net = argc == 4 ? descriptor(argv[2]) : -1;
    int channel = inside ? dial(argv[2]) : argc == 4 ? descriptor(argv[3]) : -1;
    if (channel < 0 || (!inside && (user < 0 || net < 0)))
        return FAILED;
    ssize_t size = recv(channel, wishes, sizeof wishes, 0);
    if (size < 0 || (size_t)size % sizeof *wishes != 0)
        return FAILED;
    if (!joined(user, net)) {
        answer(channel, errno, -1);
        return FAILED;
    }
    for (size_t i = 0; i < (size_t)size / sizeof *wishes; i++) {
        int made = -1;
        int error = make(&wishes[i], &made);
        if (!answer(channel, error, made))
            return FAILED;
        if (made >= 0)
            close(made);
    }
    return 0;
}
