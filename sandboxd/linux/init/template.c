/*
 * The template of a plan: one bwrap made its mounts, and each sandbox is a clone of it.
 *
 * PID 1 of that bwrap stays behind as the template. It keeps its capabilities in bwrap's user
 * namespace, runs no command and reads nothing but CLONE and ENTER, messages without content, from
 * the daemon alone. ENTER names the cgroup that the next clone starts in: to enter one takes the
 * kernel ten milliseconds, so it is done ahead. A clone gets its own mount, pid, ipc, uts and cgroup
 * namespace, and unless the plan shares the host's a network namespace that no other clone has
 * (template_networks.c). A template that has nothing to do enters those of its next clone ahead. What
 * sandboxes of one plan must not share is mounted
 * afresh: /proc, /dev/pts and the private file systems. Then the clone enters a user namespace of its
 * own (keyrings and counts are for each user namespace), forbids further ones, drops every capability
 * and is the init, without an exec: that would take half a millisecond. Its memory is a copy of the
 * template's, which holds nothing but these arguments. Its files in /proc belong to uid 0 of bwrap's user
 * namespace, which is no uid of a command unless that is root's. The init compares all mounts with the
 * plan before it is ready.
 */
#include "init.h"
#include "template.h"
#include "notify/notify.h"
#include "process_tree/process_tree.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/sched.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef SYS_clone3
#define SYS_clone3 435
#endif
#ifndef SYS_pidfd_send_signal
#define SYS_pidfd_send_signal 424
#endif

/* By number: the headers of a distribution are often older than its kernel. */
enum {
    CLONE_INTO_PIDFD = 0x1000,
    CLONE_OWN_CGROUP = 0x02000000,
    OWN_NAMESPACES = CLONE_NEWIPC | CLONE_NEWUTS, /* those that can be made ahead */
    AHEAD_MS = 5, /* a short command has ended by then */
    FORGET_MS = 1000,
};

/* As clone(2) has it since Linux 5.5. */
struct clone_request {
    uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls;
};

noreturn void template_fail(int socket, const char *what)
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

/* --template FD FLAGS [SIZE MODE PATH]... [-- PATH...] */
static bool parse(int argc, char **argv, struct template *template)
{
    if (argc < 4)
        return false;
    *template = (struct template){
        .control = atoi(argv[2]),
        .own_network = strchr(argv[3], 'n') != NULL,
        .cover_kernel_files = strchr(argv[3], 'k') != NULL,
        .fresh = argv + 4,
    };
    int end = 4;
    while (end < argc && strcmp(argv[end], "--") != 0)
        end++;
    template->fresh_count = end - 4;
    template->moved = argv + end + 1;
    template->moved_count = argc > end ? argc - end - 1 : 0;
    return template->fresh_count % 3 == 0 && template->moved_count <= MOVED_MAX;
}

/* The words move to other memory, and /proc/1/cmdline of a clone shows none of them. */
static bool hide_arguments(int argc, char **argv)
{
    static const char name[] = "sandboxd-init";
    char *first = argv[0], *last = argv[argc - 1];
    size_t size = (size_t)(last + strlen(last) + 1 - first);
    char *copy = malloc(size);
    if (copy == NULL || size < sizeof name)
        return false;
    memcpy(copy, first, size);
    for (int i = 0; i < argc; i++)
        argv[i] = copy + (argv[i] - first);
    memset(first, 0, size);
    memcpy(first, name, sizeof name);
    return true;
}

static void idle(struct template *template)
{
    bool for_long = template->ahead;
    template->idle_due_ms = for_long ? 0 : now_ms() + FORGET_MS;
    if (for_long) {
        networks_forget_ended();
        memory_give_back();
        return;
    }
    template->ahead = unshare(OWN_NAMESPACES) == 0 && (!template->own_network || networks_enter());
    copies_renew(template);
}

static int idle_timeout_ms(const struct template *template)
{
    uint64_t now = now_ms(), due = template->idle_due_ms;
    return due == 0 ? -1 : due > now ? (int)(due - now) : 0;
}

/* The descriptor of the next request, and its type; -1 at the end. Anything but a CLONE or ENTER with
 * one descriptor is the end too: only the daemon holds the other side. */
static int next_request(struct template *template, uint8_t *type)
{
    struct message message;
    enum receipt receipt;
    do {
        struct pollfd readable = {.fd = template->control, .events = POLLIN};
        if (poll(&readable, 1, idle_timeout_ms(template)) == 0)
            idle(template);
        receipt = wire_receive(template->control, &message);
    } while (receipt == RECEIPT_NOTHING);
    if (receipt != RECEIPT_MESSAGE)
        return -1;
    int passed;
    decode_for_template(&message, &passed);
    wire_release(&message);
    *type = message.type;
    return passed;
}

static bool send_cloned(int control, int error, int pidfd)
{
    struct writer writer;
    writer.length = 0;
    put_u32(&writer, (uint32_t)error);
    return wire_send(control, MESSAGE_CLONED, writer.bytes, writer.length, pidfd, true);
}

/* The error of the clone, or 0 with the pidfd of the new init. Answers are known by their order: where
 * one cannot be sent, none must follow it. */
static bool answer(int control, int error, int pidfd)
{
    if (error != 0)
        return send_cloned(control, error, -1);
    if (send_cloned(control, 0, pidfd))
        return true;
    error = errno;
    syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0);
    return send_cloned(control, error, -1);
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

static void enter_user_namespace(int proc, int socket)
{
    char users[64], groups[64];
    snprintf(users, sizeof users, "%u %u 1\n", getuid(), getuid());
    snprintf(groups, sizeof groups, "%u %u 1\n", getgid(), getgid());
    if (unshare(CLONE_NEWUSER) != 0)
        template_fail(socket, "user namespace");
    /* A process that is not dumpable cannot write its own maps. Nothing else runs in here yet. */
    prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
    if (!write_text(proc, "1/setgroups", "deny") || !write_text(proc, "1/uid_map", users) ||
        !write_text(proc, "1/gid_map", groups))
        template_fail(socket, "user namespace's maps");
    if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0)
        template_fail(socket, "dumpable");
    /* There each process finds the limits of its own user namespace. */
    if (!write_text(proc, "sys/user/max_user_namespaces", "0"))
        template_fail(socket, "max_user_namespaces");
    close(proc);
}

static void drop_capabilities(int socket)
{
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct none[2] = {{0}};
    int number = 0;
    while (prctl(PR_CAPBSET_DROP, number, 0, 0, 0) == 0)
        number++;
    if (errno != EINVAL || number == 0) /* the first that this kernel does not have */
        template_fail(socket, "capability bounding set");
    if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) != 0 ||
        syscall(SYS_capset, &header, none) != 0)
        template_fail(socket, "capabilities");
}

static void become_init(const struct template *template, int socket)
{
    int keep[] = {socket};
    close_all_but(keep, 1);
    if (setsid() < 0) /* the template's group and session are those of its other clones, too */
        template_fail(socket, "session");
    copies_begin();
    signal(SIGCHLD, SIG_DFL);
    int proc = template_mount(template, socket);
    enter_user_namespace(proc, socket);
    drop_capabilities(socket);
    if (chdir("/") != 0)
        template_fail(socket, "/");
}

/* True in the clone; else its pidfd, or an error. */
static bool clone_self(const struct template *template, int *pidfd, int *error)
{
    struct clone_request request = {
        .flags = CLONE_NEWNS | CLONE_NEWPID | CLONE_OWN_CGROUP | CLONE_INTO_PIDFD |
                 (template->ahead ? 0 : OWN_NAMESPACES),
        .pidfd = (uint64_t)(uintptr_t)pidfd,
        .exit_signal = SIGCHLD,
    };
    long pid = -1;
    if (template->ahead || !template->own_network || networks_enter()) {
        networks_lend();
        pid = syscall(SYS_clone3, &request, sizeof request);
    }
    *error = pid < 0 ? errno : 0;
    return pid == 0;
}

/* Mounts that appear on the host later do not get in here, and so into no clone. */
static bool prepare(void)
{
    template_uncover();
    return getpid() == 1 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
           devices_protect() && signal(SIGCHLD, SIG_IGN) != SIG_ERR;
}

int template_serve(int argc, char **argv)
{
    struct template template;
    if (!hide_arguments(argc, argv) || !parse(argc, argv, &template) || !prepare() || !networks_prepare()) {
        fprintf(stderr, "sandboxd-init: the template could not be set up: %s\n", strerror(errno));
        _exit(INIT_SETUP_FAILED);
    }
    notify_look_ahead();
    shm_look_ahead();
    copies_prepare(&template);
    let_go_of_caller(template.control);
    int passed, not_entered = 0;
    uint8_t type;
    for (; (passed = next_request(&template, &type)) >= 0; close(passed)) {
        if (type == MESSAGE_ENTER) {
            not_entered = write(passed, "0", 1) == 1 ? 0 : errno;
            continue;
        }
        int pidfd = -1, error = not_entered;
        if (error == 0 && clone_self(&template, &pidfd, &error)) {
            become_init(&template, passed);
            return passed;
        }
        template.ahead = false;
        template.idle_due_ms = now_ms() + AHEAD_MS;
        bool is_answered = answer(template.control, error, pidfd);
        if (pidfd >= 0 && !networks_lent(pidfd))
            close(pidfd);
        if (!is_answered)
            break;
    }
    /* Its sandboxes end with this process, so it waits for them. */
    close(template.control);
    while (waitpid(-1, NULL, __WALL) > 0 || errno == EINTR)
        continue;
    _exit(INIT_DONE);
}
