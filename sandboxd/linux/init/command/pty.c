/*
 * The pseudoterminal of one command, opened inside the sandbox.
 *
 * One made on the host would not be on this devpts, and under Landlock the command could not open
 * its own /dev/stderr.
 */
#include "command.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

static int open_terminal(int master)
{
    int flags = O_RDWR | O_NOCTTY | O_CLOEXEC;
#ifdef TIOCGPTPEER
    /* By descriptor: independent of what is mounted on /dev/pts. */
    int terminal = ioctl(master, TIOCGPTPEER, flags);
    if (terminal >= 0)
        return terminal;
#endif
    char name[64];
    if (ptsname_r(master, name, sizeof name) != 0)
        return -1;
    return open(name, flags);
}

/* A program that writes to the terminal sees only what the command prints. */
static bool no_echo(int terminal)
{
    struct termios settings;
    if (tcgetattr(terminal, &settings) != 0)
        return false;
    settings.c_lflag &= ~(tcflag_t)(ECHO | ECHOE | ECHOK | ECHONL);
    return tcsetattr(terminal, TCSANOW, &settings) == 0;
}

bool pty_open(uint16_t rows, uint16_t columns, bool echo, int *master, int *terminal)
{
    struct winsize size = {.ws_row = rows, .ws_col = columns};
    *master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (*master < 0)
        return false;
    if (unlockpt(*master) != 0 || ioctl(*master, TIOCSWINSZ, &size) != 0)
        return false;
    *terminal = open_terminal(*master);
    return *terminal >= 0 && (echo || no_echo(*terminal));
}
