/* Close every descriptor of an init process except those that it needs. */
#include "init.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_close_range
#define SYS_close_range 436
#endif

static void close_between(unsigned first, unsigned last)
{
    if (first > last || syscall(SYS_close_range, first, last, 0) == 0)
        return;
    /* Linux before 5.9. */
    struct rlimit files;
    rlim_t end = getrlimit(RLIMIT_NOFILE, &files) == 0 ? files.rlim_max : 65536;
    for (unsigned fd = first; fd <= last && fd < end; fd++)
        close((int)fd);
}

void close_from(unsigned first)
{
    close_between(first, ~0u);
}

static int by_number(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

void close_all_but(int *keep, size_t count)
{
    unsigned next = 3;
    qsort(keep, count, sizeof *keep, by_number);
    for (size_t i = 0; i < count; i++) {
        if (keep[i] < (int)next)
            continue;
        close_between(next, (unsigned)keep[i] - 1);
        next = (unsigned)keep[i] + 1;
    }
    close_from(next);
}

void stdio_to_null(void)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
/* A sandbox may lack /dev/null. 0 to 2 must not stay the host's, nor be free for the next open. */
    if (null < 0)
        null = memfd_create("null", MFD_CLOEXEC);
    for (int fd = 0; fd < 3; fd++)
        if (null < 0 || dup2(null, fd) < 0)
            _exit(INIT_SETUP_FAILED);
    if (null > 2)
        close(null);
}
