/*
 * Device nodes in a sandbox are the host's own: as root, their modes, owners and times could be changed. They are
 * mounted read-only, which leaves reading and writing the device as it is.
 *
 * bwrap binds them writable only, and nobody has a capability afterwards. So root's bwrap is started in a mount
 * namespace in which the host's are read-only already (`--devices BWRAP…`). A template does it by itself.
 */
#include "init.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/statvfs.h>
#include <unistd.h>

static const char *const DEVICES[] = {"/dev/null",   "/dev/zero",    "/dev/full",
                                      "/dev/random", "/dev/urandom", "/dev/tty"};
#define DEVICE_COUNT (sizeof DEVICES / sizeof DEVICES[0])

static unsigned long flags_of(const struct statvfs *status)
{
    unsigned long same = ST_NOSUID | ST_NODEV | ST_NOEXEC | ST_NOATIME | ST_NODIRATIME;
    return (status->f_flag & same) | (status->f_flag & ST_RELATIME ? MS_RELATIME : 0);
}

bool devices_protect(void)
{
    for (size_t i = 0; i < DEVICE_COUNT; i++) {
        unsigned long flags = MS_BIND | MS_REMOUNT | MS_RDONLY;
        struct statvfs status;
        if (statvfs(DEVICES[i], &status) != 0) {
            if (errno == ENOENT)
                continue;
            return false;
        }
        if (mount(NULL, DEVICES[i], NULL, flags | flags_of(&status), NULL) != 0)
            return false;
    }
    return true;
}

static bool bind_devices(void)
{
    for (size_t i = 0; i < DEVICE_COUNT; i++)
        if (mount(DEVICES[i], DEVICES[i], NULL, MS_BIND, NULL) != 0 && errno != ENOENT)
            return false;
    return true;
}

/* Root that may not mount, as in a container, goes on without. */
noreturn void devices_run(char **argv)
{
    const char *what = "read-only devices";
    bool may_mount = unshare(CLONE_NEWNS) == 0;
    if (may_mount ? mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) == 0 && bind_devices() &&
                        devices_protect()
                  : errno == EPERM) {
        what = argv[0];
        execv(argv[0], argv);
    }
    fprintf(stderr, "sandboxd-init: %s: %s\n", what, strerror(errno));
    _exit(INIT_SETUP_FAILED);
}
