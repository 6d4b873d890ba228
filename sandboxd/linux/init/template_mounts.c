/*
 * What each clone of a template mounts afresh: its private file systems, /dev/pts and /proc.
 */
#include "init.h"
#include "template.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_move_mount
#define SYS_move_mount 429
#endif

/* By number: the headers of a distribution are often older than its kernel. */
enum { MOVE_FROM_DESCRIPTOR = 4 };

/* As root these are writable in spite of the user namespace: they are checked against the host's 0. */
static const char *const KERNEL_FILES[] = {"/proc/sys", "/proc/sysrq-trigger", "/proc/irq",
                                           "/proc/bus"};
#define KERNEL_FILE_COUNT (sizeof KERNEL_FILES / sizeof KERNEL_FILES[0])

static void close_quietly(int fd)
{
    int error = errno;
    if (fd >= 0)
        close(fd);
    errno = error;
}

static int open_folder(int parent, const char *name)
{
    return openat(parent, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

/* The folder of the last part of a path, which is *name. What is missing on the way is made. Each
 * part is opened by itself: commands of a session write its /tmp, and a folder in it may have become
 * a symlink. */
static int open_parent(char *path, char **name)
{
    int folder = open_folder(AT_FDCWD, "/");
    *name = path + 1;
    for (char *slash; folder >= 0 && (slash = strchr(*name, '/')) != NULL; *name = slash + 1) {
        *slash = 0;
        int next = open_folder(folder, *name);
        if (next < 0 && errno == ENOENT && mkdirat(folder, *name, 0755) == 0)
            next = open_folder(folder, *name);
        *slash = '/';
        close_quietly(folder);
        folder = next;
    }
    return folder;
}

/* A folder or file to mount on, of the same type as the root of the mount. */
static bool make_mount_point(int tree, int folder, const char *name)
{
    struct stat status;
    if (folder < 0 || fstat(tree, &status) != 0)
        return false;
    if (S_ISDIR(status.st_mode))
        return mkdirat(folder, name, 0755) == 0 || errno == EEXIST;
    int fd = openat(folder, name, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0644);
    close_quietly(fd);
    return fd >= 0;
}

/* `folder`: the parent of the path before it, at `before`, which is often the same. */
static bool move_tree(int tree, char *path, int *folder, const char *before)
{
    char *name = strrchr(path, '/') + 1;
    size_t length = (size_t)(name - path);
    if (*folder < 0 || strncmp(path, before, length) != 0 || strchr(before + length, '/') != NULL) {
        close_quietly(*folder);
        *folder = open_parent(path, &name);
    }
    return make_mount_point(tree, *folder, name) &&
           syscall(SYS_move_mount, tree, "", *folder, name, MOVE_FROM_DESCRIPTOR) == 0;
}

static bool mount_tmpfs(char *path, const char *options)
{
    char *name;
    int parent = open_parent(path, &name), folder = parent < 0 ? -1 : open_folder(parent, name);
    bool mounted = folder >= 0 && fchdir(folder) == 0 &&
                   mount("tmpfs", ".", "tmpfs", MS_NOSUID | MS_NODEV, options) == 0;
    close_quietly(folder);
    close_quietly(parent);
    return mounted;
}

static void mount_private(const struct template *template, int socket)
{
    int trees[MOVED_MAX], folder = -1;
    for (int i = 0; i < template->moved_count; i++) {
        trees[i] = open(template->moved[i], O_PATH | O_NOFOLLOW | O_CLOEXEC);
        if (trees[i] < 0)
            template_fail(socket, template->moved[i]);
    }
    for (int i = 0; i < template->fresh_count; i += 3) {
        char options[96];
        snprintf(options, sizeof options, "size=%s,mode=%s", template->fresh[i],
                 template->fresh[i + 1]);
        if (!mount_tmpfs(template->fresh[i + 2], options))
            template_fail(socket, template->fresh[i + 2]);
    }
    for (int i = 0; i < template->moved_count; i++) {
        if (!move_tree(trees[i], template->moved[i], &folder, i > 0 ? template->moved[i - 1] : ""))
            template_fail(socket, template->moved[i]);
        close(trees[i]);
    }
    close_quietly(folder);
}

static bool cover(const char *path)
{
    unsigned long flags = MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC;
    if (mount(path, path, NULL, MS_BIND, NULL) != 0)
        return errno == ENOENT;
    return mount(NULL, path, NULL, flags, NULL) == 0;
}


/* As root, a second mount on top of the first is made read-only: root could change the modes of its files,
 * which are those of every /proc of the machine. The first one stays writable, and no path leads to it. A
 * mount outside the namespace would do, but to let go of it takes a grace period of the kernel. */
static bool cover_proc(void)
{
    unsigned long flags = MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC;
    if (mount("/proc", "/proc", NULL, MS_BIND, NULL) != 0)
        return false;
    for (size_t i = 0; i < KERNEL_FILE_COUNT; i++)
        if (!cover(KERNEL_FILES[i]))
            return false;
    return mount(NULL, "/proc", NULL, flags, NULL) == 0;
}

static int mount_proc(const struct template *template, int socket)
{
    int proc = -1;
    if (mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) == 0)
        proc = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (proc < 0 || (template->cover_kernel_files && !cover_proc()))
        template_fail(socket, "/proc");
    return proc;
}

/* Ptys have a limit for the whole machine. */
static void mount_ptys(int socket)
{
    if (mount("devpts", "/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC,
              "newinstance,ptmxmode=0666,mode=620,max=256") != 0)
        template_fail(socket, "/dev/pts");
}

int template_mount(const struct template *template, int socket)
{
    mount_private(template, socket);
    mount_ptys(socket);
    return mount_proc(template, socket);
}

void template_uncover(void)
{
    for (size_t i = 0; i < KERNEL_FILE_COUNT; i++)
        umount2(KERNEL_FILES[i], MNT_DETACH);
}
