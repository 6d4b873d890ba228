/*
 * The template of a plan: one bwrap made its mounts, and each sandbox is a clone of it.
 *
 * PID 1 of that bwrap stays behind as the template. It keeps its capabilities in bwrap's user
 * namespace, runs no command and reads nothing but CLONE, a message without content, from the daemon
 * alone. A clone gets its own mount, pid, ipc, uts and cgroup namespace, and a network
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

/* The control socket of the next sandbox; -1 at the end. Anything but a CLONE with one descriptor is
 * the end too: only the daemon holds the other side. */
static int next_request(int control)
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
    int socket;
    decode_clone(&message, &socket);
    wire_release(&message);
    return socket;
}

/* The error of the clone, or 0 with the pidfd of the new init. */
static void answer(int control, int error, int pidfd)
{
    struct writer writer;
    writer.length = 0;
    put_u32(&writer, (uint32_t)error);
    wire_send(control, MESSAGE_CLONED, writer.bytes, writer.length, error == 0 ? pidfd : -1, true);
}

static void make_parents(char *path)
{
    for (char *slash = strchr(path + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        mkdir(path, 0755);
        *slash = '/';
    }
}

/* A folder or file to mount on, of the same type as the root of the mount. */
static bool make_mount_point(int tree, char *path)
{
    struct stat status;
    if (fstat(tree, &status) != 0)
        return false;
    make_parents(path);
    if (S_ISDIR(status.st_mode))
        return mkdir(path, 0755) == 0 || errno == EEXIST;
    int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (fd < 0)
        return false;
    close(fd);
    return true;
}

/* A session's /tmp is written by its commands: a folder in it may have become a symlink. */
static bool mount_tmpfs(const char *path, const char *options)
{
    int folder = open(path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    bool mounted = folder >= 0 && fchdir(folder) == 0 &&
                   mount("tmpfs", ".", "tmpfs", MS_NOSUID | MS_NODEV, options) == 0;
    int error = errno;
    if (folder >= 0)
        close(folder);
    errno = error;
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
        const char *path = template->fresh[i + 2];
        if (!mount_tmpfs(path, options))
            fail(socket, path);
    }
    for (int i = 0; i < template->moved_count; i++) {
        if (!make_mount_point(trees[i], template->moved[i]) ||
            syscall(SYS_move_mount, trees[i], "", AT_FDCWD, template->moved[i],
                    MOVE_FROM_DESCRIPTOR) != 0)
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
    for (;;) {
        int pidfd = -1, socket = next_request(template.control);
        if (socket < 0)
            break;
        request.pidfd = (uint64_t)(uintptr_t)&pidfd;
        long pid = syscall(SYS_clone3, &request, sizeof request);
        if (pid == 0)
            become_init(&template, socket);
        answer(template.control, pid < 0 ? errno : 0, pidfd);
        close(socket);
        if (pid > 0)
            close(pidfd);
    }
    /* Its sandboxes end with this process, so it waits for them. */
    close(template.control);
    while (waitpid(-1, NULL, __WALL) > 0 || errno == EINTR)
        continue;
    return INIT_DONE;
}
