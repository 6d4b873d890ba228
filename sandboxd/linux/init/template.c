/*
 * The template of a plan: one bwrap made its mounts, and each sandbox is a clone of it.
 *
 * PID 1 of that bwrap stays behind as the template. It keeps its capabilities in bwrap's user
 * namespace, runs no command and reads nothing but CLONE and ENTER, messages without content, from
 * the daemon alone. ENTER names the cgroup that the next clone starts in: to enter one takes the
 * kernel ten milliseconds, so it is done ahead. A clone gets its own mount, pid, ipc, uts and cgroup namespace, and a network
 * namespace unless the plan shares the host's. What sandboxes of one plan must not share is mounted
 * afresh: /proc, /dev/pts and the private file systems. Then the clone enters a user namespace of its
 * own (keyrings and counts are for each user namespace), forbids further ones, drops every capability
 * and executes the init. So the init has memory of its own, and its files in /proc belong to it as they
 * do below a bwrap of its own. The init compares all mounts with the plan before it is ready.
 */
#include "init.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/sched.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef SYS_clone3
#define SYS_clone3 435
#endif
#ifndef SYS_open_tree
#define SYS_open_tree 428
#define SYS_move_mount 429
#endif

/* By number: the headers of a distribution are often older than its kernel. */
enum {
    TREE_CLONE = 1,
    TREE_RECURSIVE = 0x8000,
    MOVE_FROM_DESCRIPTOR = 4,
    CLONE_INTO_PIDFD = 0x1000,
    CLONE_OWN_CGROUP = 0x02000000,
    MOVED_MAX = 512,
    LAST_CAPABILITY = 63,
};

/* As clone(2) has it since Linux 5.5. */
struct clone_request {
    uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls;
};

/* The command line, in its order. `fresh`: size, mode and path of each private file system.
 * `moved`: the mounts that lie in one of them, without those below another mount. */
struct template {
    int control;
    int program;
    uid_t uid;
    gid_t gid;
    bool own_network;
    bool cover_kernel_files;
    char **fresh;
    int fresh_count;
    char **moved;
    int moved_count;
};

/* As root these are writable in spite of the user namespace: they are checked against the host's 0. */
static const char *const KERNEL_FILES[] = {"/proc/sys", "/proc/sysrq-trigger", "/proc/irq",
                                           "/proc/bus"};
#define KERNEL_FILE_COUNT (sizeof KERNEL_FILES / sizeof KERNEL_FILES[0])

static noreturn void fail(int socket, const char *what)
{
    struct writer writer;
    int error = errno;
    writer.length = 0;
    put_u32(&writer, SETUP_STAGE_TEMPLATE);
    put_u32(&writer, (uint32_t)error);
    put_text(&writer, what);
    wire_send(socket, MESSAGE_SETUP_FAILED, writer.bytes, writer.length, -1, false);
    _exit(INIT_SETUP_FAILED);
}

/* --template FD UID GID FLAGS [SIZE MODE PATH]... [-- PATH...] */
static bool parse(int argc, char **argv, struct template *template)
{
    if (argc < 6)
        return false;
    *template = (struct template){
        .control = atoi(argv[2]),
        .program = open("/proc/self/exe", O_RDONLY | O_CLOEXEC),
        .uid = (uid_t)strtoul(argv[3], NULL, 10),
        .gid = (gid_t)strtoul(argv[4], NULL, 10),
        .own_network = strchr(argv[5], 'n') != NULL,
        .cover_kernel_files = strchr(argv[5], 'k') != NULL,
        .fresh = argv + 6,
    };
    int end = 6;
    while (end < argc && strcmp(argv[end], "--") != 0)
        end++;
    template->fresh_count = end - 6;
    template->moved = argv + end + 1;
    template->moved_count = argc > end ? argc - end - 1 : 0;
    return template->program >= 0 && template->fresh_count % 3 == 0 &&
           template->moved_count <= MOVED_MAX;
}

/* The descriptor of the next request, and its type; -1 at the end. Anything but a CLONE or ENTER with
 * one descriptor is the end too: only the daemon holds the other side. */
static int next_request(int control, uint8_t *type)
{
    struct message message;
    enum receipt receipt;
    do {
        struct pollfd readable = {.fd = control, .events = POLLIN};
        poll(&readable, 1, -1);
        receipt = wire_receive(control, &message);
    } while (receipt == RECEIPT_NOTHING);
    if (receipt != RECEIPT_MESSAGE)
        return -1;
    int passed;
    decode_for_template(&message, &passed);
    wire_release(&message);
    *type = message.type;
    return passed;
}

/* The error of the clone, or 0 with the pidfd of the new init. */
static void answer(int control, int error, int pidfd)
{
    struct writer writer;
    writer.length = 0;
    put_u32(&writer, (uint32_t)error);
    wire_send(control, MESSAGE_CLONED, writer.bytes, writer.length, error == 0 ? pidfd : -1, true);
}

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

static bool mount_tree(int tree, char *path)
{
    char *name;
    int folder = open_parent(path, &name);
    bool mounted =
        make_mount_point(tree, folder, name) &&
        syscall(SYS_move_mount, tree, "", folder, name, MOVE_FROM_DESCRIPTOR) == 0;
    close_quietly(folder);
    return mounted;
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
    int trees[MOVED_MAX];
    for (int i = 0; i < template->moved_count; i++) {
        trees[i] = (int)syscall(SYS_open_tree, AT_FDCWD, template->moved[i],
                                TREE_CLONE | TREE_RECURSIVE | O_CLOEXEC | AT_SYMLINK_NOFOLLOW);
        if (trees[i] < 0)
            fail(socket, template->moved[i]);
    }
    for (int i = 0; i < template->fresh_count; i += 3) {
        char options[96];
        snprintf(options, sizeof options, "size=%s,mode=%s", template->fresh[i],
                 template->fresh[i + 1]);
        if (!mount_tmpfs(template->fresh[i + 2], options))
            fail(socket, template->fresh[i + 2]);
    }
    for (int i = 0; i < template->moved_count; i++) {
        if (!mount_tree(trees[i], template->moved[i]))
            fail(socket, template->moved[i]);
        close(trees[i]);
    }
}

static bool cover(const char *path)
{
    unsigned long flags = MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC;
    if (access(path, F_OK) != 0)
        return true;
    return mount(path, path, NULL, MS_BIND, NULL) == 0 && mount(NULL, path, NULL, flags, NULL) == 0;
}

/* Returns /proc/sys/user, from before /proc/sys is read-only. */
static int mount_proc(const struct template *template, int socket)
{
    if (mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) != 0)
        fail(socket, "/proc");
    int limits = open("/proc/sys/user", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (limits < 0)
        fail(socket, "/proc/sys/user");
    for (size_t i = 0; template->cover_kernel_files && i < KERNEL_FILE_COUNT; i++)
        if (!cover(KERNEL_FILES[i]))
            fail(socket, KERNEL_FILES[i]);
    return limits;
}

static void mount_ptys(int socket)
{
    if (mount("devpts", "/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC,
              "newinstance,ptmxmode=0666,mode=620") != 0)
        fail(socket, "/dev/pts");
}

static void loopback_up(int socket_of_daemon)
{
    struct ifreq request = {.ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || ioctl(fd, SIOCSIFFLAGS, &request) != 0)
        fail(socket_of_daemon, "loopback");
    close(fd);
}

static bool write_text(int folder, const char *path, const char *text)
{
    int fd = openat(folder, path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    bool written = write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    close(fd);
    return written;
}

/* `limits`: /proc/sys/user, in which each process finds its own user namespace's limits. */
static void enter_user_namespace(const struct template *template, int limits, int socket)
{
    char users[64], groups[64];
    snprintf(users, sizeof users, "%u %u 1\n", template->uid, getuid());
    snprintf(groups, sizeof groups, "%u %u 1\n", template->gid, getgid());
    if (unshare(CLONE_NEWUSER) != 0)
        fail(socket, "user namespace");
    /* A process that is not dumpable cannot write its own maps. Nothing else runs in here yet. */
    prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
    if (!write_text(AT_FDCWD, "/proc/self/setgroups", "deny") ||
        !write_text(AT_FDCWD, "/proc/self/uid_map", users) ||
        !write_text(AT_FDCWD, "/proc/self/gid_map", groups))
        fail(socket, "user namespace's maps");
    if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0)
        fail(socket, "dumpable");
    if (!write_text(limits, "max_user_namespaces", "0"))
        fail(socket, "max_user_namespaces");
    close(limits);
}

static void drop_capabilities(int socket)
{
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct none[2] = {{0}};
    for (int number = 0; number <= LAST_CAPABILITY; number++)
        if (prctl(PR_CAPBSET_DROP, number, 0, 0, 0) != 0 && errno != EINVAL)
            fail(socket, "capability bounding set");
    if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) != 0 ||
        syscall(SYS_capset, &header, none) != 0)
        fail(socket, "capabilities");
}

static noreturn void become_init(const struct template *template, int socket)
{
    char number[16];
    char *arguments[] = {"sandboxd-init", number, NULL}, *environment[] = {NULL};
    int keep[] = {socket, template->program};
    close_all_but(keep, 2);
    mount_private(template, socket);
    mount_ptys(socket);
    int limits = mount_proc(template, socket);
    if (template->own_network)
        loopback_up(socket);
    enter_user_namespace(template, limits, socket);
    drop_capabilities(socket);
    snprintf(number, sizeof number, "%d", socket);
    if (chdir("/") != 0 || fcntl(socket, F_SETFD, 0) != 0)
        fail(socket, "/");
    syscall(SYS_execveat, template->program, "", arguments, environment, AT_EMPTY_PATH);
    fail(socket, "execveat");
}

/* Mounts that appear on the host later do not get in here, and so into no clone. bwrap's covers in
 * /proc would forbid to mount another one. */
static bool prepare(void)
{
    for (size_t i = 0; i < KERNEL_FILE_COUNT; i++)
        umount2(KERNEL_FILES[i], MNT_DETACH);
    return getpid() == 1 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
           signal(SIGCHLD, SIG_IGN) != SIG_ERR;
}

int template_run(int argc, char **argv)
{
    struct template template;
    if (!parse(argc, argv, &template) || !prepare()) {
        fprintf(stderr, "sandboxd-init: the template could not be set up: %s\n", strerror(errno));
        return INIT_SETUP_FAILED;
    }
    int keep[] = {template.control, template.program};
    close_all_but(keep, 2);
    prctl(PR_SET_NAME, "sandboxd-init", 0, 0, 0);
    struct clone_request request = {
        .flags = CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_OWN_CGROUP |
                 CLONE_INTO_PIDFD | (template.own_network ? CLONE_NEWNET : 0),
        .exit_signal = SIGCHLD,
    };
    int passed, not_entered = 0;
    uint8_t type;
    for (; (passed = next_request(template.control, &type)) >= 0; close(passed)) {
        if (type == MESSAGE_ENTER) {
            not_entered = write(passed, "0", 1) == 1 ? 0 : errno;
            continue;
        }
        int pidfd = -1;
        request.pidfd = (uint64_t)(uintptr_t)&pidfd;
        errno = not_entered;
        long pid = not_entered == 0 ? syscall(SYS_clone3, &request, sizeof request) : -1;
        if (pid == 0)
            become_init(&template, passed);
        answer(template.control, pid < 0 ? errno : 0, pidfd);
        if (pid > 0)
            close(pidfd);
    }
    /* Its sandboxes end with this process, so it waits for them. */
    close(template.control);
    while (waitpid(-1, NULL, __WALL) > 0 || errno == EINTR)
        continue;
    return INIT_DONE;
}
