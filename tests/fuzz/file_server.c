/*
 * The file server of a sandbox, fed from stdin: built with the sanitizers, without the init.
 *
 * Its requests change files, so it is started where it can reach nothing (target_file_server.py).
 */
#include "command/command.h"
#include "notify/notify.h"

#include <errno.h>
#include <stdlib.h>

int notify_connect(int fd, const void *address, unsigned length)
{
    (void)fd, (void)address, (void)length;
    errno = ECONNREFUSED;
    return -1;
}

int main(void)
{
#ifdef PLANTED_FAULT
    volatile char *byte = malloc(1);
    byte[1] = 0; /* shows that a fault is found */
#endif
    file_server();
}
