/*
 * From the fork to the command's execve.
 *
 * With a vfork the child has its parent's memory until then, and the parent waits: no page is copied. Nothing
 * is written that the parent does not expect, and no call is made that the init answers (notify/).
 *
 * The order matters: the seccomp filter comes last, so that it need not allow what the steps before
 * it use. Signal dispositions are the defaults already (main.c resets them, nothing here changes
 * them). Each failure says in which step, and what it was about.
 */
#include "command.h"
#include "../process_tree/process_tree.h"
#include "../evidence/evidence.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define REPORT_FD 3
#define LINK_FD 4
#define KEYCTL_JOIN_SESSION_KEYRING 1

static struct exec_report failure_of_child;

/* In the parent's own memory after a vfork, which has no report. */
static noreturn void fail(const struct start_state *start_state, int error, const char *path, int report)
{
    size_t length = strnlen(path, sizeof failure_of_child.path - 1);
    memcpy(failure_of_child.path, path, length);
    failure_of_child.path[length] = 0;
    failure_of_child.error = error;
    failure_of_child.stage = start_state->stage;
    /* At most PIPE_BUF bytes: written whole or not at all. */
    size_t size = offsetof(struct exec_report, path) + length;
    ssize_t ignored = report < 0 ? 0 : write(report, &failure_of_child, size);
    (void)ignored;
    _exit(127);
}

/* Before the command's first page is touched, so that all its memory is counted. */
static bool enter_cgroup(const struct exec_request *request)
{
    return request->cgroup < 0 || write(request->cgroup, "0", 1) == 1;
}

static bool take_stdio(const struct exec_request *request, int terminal)
{
    if (setsid() < 0)
        return false;
    if (terminal >= 0 && ioctl(terminal, TIOCSCTTY, 0) != 0)
        return false;
    /* With a terminal, of stdio at most stderr was sent. */
    for (int fd = 0; fd < 3; fd++)
        if (dup2(request->stdio[fd] >= 0 ? request->stdio[fd] : terminal, fd) < 0)
            return false;
    return true;
}

/* False with errno if it is no program. */
static bool map_filter(int fd, struct sock_fprog *program)
{
    struct stat file;
    if (fstat(fd, &file) != 0)
        return false;
    size_t size = (size_t)file.st_size, count = size / sizeof *program->filter;
    if (count == 0 || count > WIRE_FILTER_MAX || size % sizeof *program->filter != 0) {
        errno = EINVAL;
        return false;
    }
    program->len = (unsigned short)count;
    program->filter = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
    return program->filter != MAP_FAILED;
}

/* The kernel counts the descriptors of a user that are on their way through sockets, and refuses to
 * send more when they are above the sender's limit of files. Commands stop below the limit of the
 * daemon, the template and the inits, so that none of these is ever refused. */
static bool leave_descriptors(void)
{
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) != 0)
        return false;
    rlim_t most = files.rlim_cur - files.rlim_cur / 4;
    files.rlim_cur = most;
    if (files.rlim_max > most)
        files.rlim_max = most;
    return setrlimit(RLIMIT_NOFILE, &files) == 0;
}

static bool set_rlimits(const struct exec_request *request, char failed[3])
{
    for (uint32_t i = 0; i < request->rlimit_count; i++) {
        const struct rlimit_request *limit = &request->rlimits[i];
        struct rlimit value = {.rlim_cur = limit->soft, .rlim_max = limit->hard};
        if (setrlimit((int)limit->resource, &value) == 0)
            continue;
        failed[0] = (char)('0' + limit->resource / 10);
        failed[1] = (char)('0' + limit->resource % 10);
        return false;
    }
    return true;
}

/* The command must not use the host's session keyring. EPERM: a container's filter forbids it. */
static bool leave_keyring(void)
{
    return syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, NULL) >= 0 || errno == ENOSYS ||
           errno == EPERM;
}

/* Unmapped again: after a vfork the memory is the parent's. */
static bool load_filter(const struct sock_fprog *program)
{
    bool loaded = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, program) == 0;
    int error = errno;
    munmap(program->filter, program->len * sizeof *program->filter);
    errno = error;
    return loaded;
}

/* The memory of this process is a copy of the init's, which has the key of its filter (notify/filter.c), and a
 * process that can be traced can be read by every other one of the sandbox. So it becomes the init's program once
 * more, with nothing in its memory but the command line, before it can be traced. */
static noreturn void become_traced(const struct exec_request *request, struct start_state *start_state, int report)
{
    static char program[] = "sandboxd-init", option[] = TRACED_OPTION;
    size_t count = 0;
    while (request->argv[count] != NULL)
        count++;
    char **argv = calloc(count + 3, sizeof *argv);
    if (argv != NULL && fcntl(report, F_SETFD, 0) == 0 && fcntl(LINK_FD, F_SETFD, 0) == 0) {
        argv[0] = program;
        argv[1] = option;
        memcpy(argv + 2, request->argv, count * sizeof *argv);
        execve("/proc/self/exe", argv, request->env);
    }
    fail(start_state, errno, "", report);
}

noreturn void child_traced(char **argv)
{
    static char tried[WIRE_TEXT_MAX];
    struct start_state start_state = {.stage = EXEC_STAGE_TRACE};
    if (fcntl(REPORT_FD, F_SETFD, FD_CLOEXEC) != 0 || fcntl(LINK_FD, F_SETFD, FD_CLOEXEC) != 0 ||
        !trace_load_filter() || !trace_offer(LINK_FD))
        fail(&start_state, errno, "", REPORT_FD);
    start_state.stage = EXEC_STAGE_EXEC;
    search_and_exec(argv, environ, tried, sizeof tried);
    fail(&start_state, errno, tried, REPORT_FD);
}

noreturn void child_run(const struct exec_request *request, struct start_state *start_state, int terminal,
                        int report, int link)
{
    static char tried[WIRE_TEXT_MAX];
    struct sock_fprog program = {0};
    bool to_load = request->filter >= 0;
    char rlimit[3] = "";
    sigset_t none;

    start_state->main_pid = getpid();
    start_state->stage = EXEC_STAGE_CGROUP;
    if (!enter_cgroup(request))
        fail(start_state, errno, "", report);

    start_state->stage = EXEC_STAGE_STDIO;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    if (!take_stdio(request, terminal))
        fail(start_state, errno, "", report);

    start_state->stage = EXEC_STAGE_SECCOMP;
    if (to_load && !map_filter(request->filter, &program))
        fail(start_state, errno, "", report);

    start_state->stage = EXEC_STAGE_DESCRIPTORS;
    if (report >= 0 && report != REPORT_FD && dup3(report, REPORT_FD, O_CLOEXEC) < 0)
        fail(start_state, errno, "", report);
    report = report >= 0 ? REPORT_FD : -1;
    /* The pipe was made before the link, so the link's number is not the report's. */
    if (link >= 0 && link != LINK_FD && dup3(link, LINK_FD, O_CLOEXEC) < 0)
        fail(start_state, errno, "", report);
    close_from(link >= 0 ? LINK_FD + 1 : report >= 0 ? REPORT_FD + 1 : REPORT_FD);

    start_state->stage = EXEC_STAGE_CHDIR;
    if (chdir(request->cwd) != 0)
        fail(start_state, errno, request->cwd, report);
    umask(022);

    start_state->stage = EXEC_STAGE_RLIMIT;
    if (!leave_descriptors() || !set_rlimits(request, rlimit))
        fail(start_state, errno, rlimit, report);

    start_state->stage = EXEC_STAGE_KEYRING;
    if (!leave_keyring())
        fail(start_state, errno, "", report);

    start_state->stage = EXEC_STAGE_NO_NEW_PRIVS;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        fail(start_state, errno, "", report);

    start_state->stage = EXEC_STAGE_SECCOMP;
    if (to_load && !load_filter(&program))
        fail(start_state, errno, "", report);

    start_state->stage = EXEC_STAGE_TRACE;
    if (link >= 0)
        become_traced(request, start_state, report);

    start_state->stage = EXEC_STAGE_EXEC;
    if (request->flags & EXEC_FILES) {
        close(report); /* what execve would do */
        file_server();
    }
    search_and_exec(request->argv, request->env, tried, sizeof tried);
    fail(start_state, errno, tried, report);
}

pid_t child_vfork(const struct exec_request *request, struct start_state *start_state, int terminal,
                  const struct exec_report **failure)
{
    failure_of_child.stage = 0;
    pid_t child = vfork();
    if (child == 0)
        child_run(request, start_state, terminal, -1, -1);
    if (child < 0)
        return child;
    /* Killed between fork and exec: there was no command. */
    if (failure_of_child.stage == 0 && start_state->stage != EXEC_STAGE_EXEC) {
        failure_of_child.stage = start_state->stage;
        failure_of_child.error = EINTR;
        failure_of_child.path[0] = 0;
    }
    *failure = failure_of_child.stage != 0 ? &failure_of_child : NULL;
    return child;
}
