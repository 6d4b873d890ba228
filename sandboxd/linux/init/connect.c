/*
 * Where the control socket comes from: inherited from the daemon, or dialled.
 *
 * A container engine starts us with no descriptor of the daemon's. There the daemon listens on a
 * socket in a folder that is bound into the container, and accepts one connection: ours, made
 * before any command exists.
 */
#include "init.h"

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

/* An engine may start us with stdio closed: the socket must not take one of those numbers. */
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
        return above_stdio(carried_open(argc, argv));
    return argc > 1 ? atoi(argv[1]) : INHERITED_FD;
}
