/*
 * The network namespaces of a template's clones, and which of them another clone can have.
 *
 * To make one and to destroy it takes the kernel more time than all the rest of a sandbox. One in which nothing has
 * happened is as good as a new one. So it is used again, by one clone at a time, if all of this holds: the clone
 * before has ended, and with it every process of its pid namespace; its init says so in `untouched`, because the
 * kernel has asked it about nothing that stays there; and the kernel counts no socket in it that somebody outside
 * still holds. An init that was killed has said nothing. No command has the capability to change anything else there.
 *
 * A file of /proc/net that is open somewhere shows the namespace for as long as there is one. A command passes a
 * descriptor out of its sandbox through a Unix socket alone: it has been connected, or something has
 * connected to it after listen(). The kernel asks the init about both and about every socket of another family
 * (notify/filter.c). It does not ask about other Unix sockets, as pairs: these leave nothing behind. What
 * a command inherits are pipes and its terminal.
 */
#include "init.h"
#include "template.h"
#include "notify/notify.h"

#include <fcntl.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#ifndef SIOCGSKNS
#define SIOCGSKNS 0x894c
#endif

enum { NETWORKS_MAX = 16 };

/* `namespace`: its descriptor; -1: there is none. `clone`: the pidfd of the init that has it; -1: nobody. */
struct network {
    int namespace;
    int clone;
};

static struct network *networks;
/* One for each, which its init writes, and one for those that are not kept. */
static atomic_bool *untouched;
static unsigned current; /* that of the next clone, which the template has entered */

bool networks_prepare(void)
{
    networks = malloc(NETWORKS_MAX * sizeof *networks);
    if (networks == NULL)
        return false;
    for (unsigned i = 0; i < NETWORKS_MAX; i++)
        networks[i] = (struct network){-1, -1};
    current = NETWORKS_MAX;
    untouched = mmap(NULL, NETWORKS_MAX + 1, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return untouched != MAP_FAILED;
}

/* Its loopback is up. `namespace`: a descriptor of it, or -1 where the kernel gives none. */
static bool make(int *namespace)
{
    struct ifreq request = {.ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING};
    int fd = unshare(CLONE_NEWNET) == 0 ? socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0) : -1;
    if (fd < 0)
        return false;
    bool is_up = ioctl(fd, SIOCSIFFLAGS, &request) == 0;
    *namespace = is_up ? ioctl(fd, SIOCGSKNS) : -1;
    close(fd);
    return is_up;
}

/* In the one that this process is in. */
static bool has_no_socket(void)
{
    static const char none[] = "sockets: used 0\n";
    char text[sizeof none - 1];
    int fd = open("/proc/self/net/sockstat", O_RDONLY | O_CLOEXEC);
    bool is_empty = fd >= 0 && read(fd, text, sizeof text) == (ssize_t)sizeof text &&
                    memcmp(text, none, sizeof text) == 0;
    if (fd >= 0)
        close(fd);
    return is_empty;
}

static void forget(struct network *network)
{
    close(network->clone);
    close(network->namespace);
    *network = (struct network){-1, -1};
}

/* Calls `leave` with each whose clone has ended, until it is true. */
static bool any_ended(bool (*leave)(unsigned number))
{
    struct pollfd ended[NETWORKS_MAX];
    for (unsigned i = 0; i < NETWORKS_MAX; i++)
        ended[i] = (struct pollfd){.fd = networks[i].clone, .events = POLLIN};
    if (poll(ended, NETWORKS_MAX, 0) > 0)
        for (unsigned i = 0; i < NETWORKS_MAX; i++)
            if (ended[i].revents != 0 && leave(i))
                return true;
    return false;
}

/* What another clone cannot have is forgotten. */
static bool enter_again(unsigned number)
{
    struct network *network = &networks[number];
    if (untouched[number] && setns(network->namespace, CLONE_NEWNET) == 0 && has_no_socket()) {
        close(network->clone);
        network->clone = -1;
        current = number;
        return true;
    }
    forget(network);
    return false;
}

static bool forget_ended(unsigned number)
{
    forget(&networks[number]);
    return false;
}

static unsigned free_place(void)
{
    unsigned number = 0;
    while (number < NETWORKS_MAX && networks[number].namespace >= 0)
        number++;
    return number;
}

/* Where the clone could not be made, the one that it was to have is entered still. */
bool networks_enter(void)
{
    int namespace;
    if (current < NETWORKS_MAX || any_ended(enter_again))
        return true;
    if (!make(&namespace))
        return false;
    current = namespace >= 0 ? free_place() : NETWORKS_MAX;
    if (current < NETWORKS_MAX)
        networks[current].namespace = namespace;
    else
        close(namespace);
    return true;
}

void networks_forget_ended(void)
{
    any_ended(forget_ended);
}

void networks_lend(void)
{
    untouched[current] = false;
}

bool networks_lent(int pidfd)
{
    if (current == NETWORKS_MAX)
        return false;
    networks[current].clone = pidfd;
    current = NETWORKS_MAX;
    return true;
}

void networks_return(void)
{
    untouched[current] = true;
}
