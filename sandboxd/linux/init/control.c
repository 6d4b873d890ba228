/*
 * Opens the control socket: inherited from the daemon, or connected to by path.
 *
 * A container engine starts the init without a descriptor of the daemon. The daemon then listens on a
 * socket in a folder that is bound into the container and accepts one connection, which the init makes
 * before any command exists.
 */
#include "init.h"
#include "remote/remote.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define INHERITED_FD 3

static int dial(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof address.sun_path)
        return -1;
    strcpy(address.sun_path, path);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, (const struct sockaddr *)&address, sizeof address) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

/* An engine may start the init with stdio closed: the socket must not get one of those numbers. */
static int above_stdio(int fd)
{
    while (fd >= 0 && fd <= 2)
        fd = dup(fd);
    return fd;
}

int control_open(int argc, char **argv)
{
    if (argc > 2 && strcmp(argv[1], "--connect") == 0)
        return above_stdio(dial(argv[2]));
    if (argc > 2 && strcmp(argv[1], "--carried") == 0)
        return above_stdio(attach_bridge_open(argc, argv));
    if (argc > 2 && strcmp(argv[1], "--remote") == 0)
        return above_stdio(remote_bridge_open(argv[2]));
    return argc > 1 ? atoi(argv[1]) : INHERITED_FD;
}
