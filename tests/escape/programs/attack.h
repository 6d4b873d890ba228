/* How an attack ends (support/attacks.py): it worked, or it was blocked and by what. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static inline void worked(void)
{
    puts("worked");
    fflush(stdout);
    _exit(42);
}

static inline void blocked(const char *step)
{
    printf("blocked %s %s\n", step, strerrorname_np(errno) ? strerrorname_np(errno) : "?");
    fflush(stdout);
    _exit(43);
}
