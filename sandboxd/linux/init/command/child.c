/*
 * From the reaper's fork to the command's execve.
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
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define REPORT_FD 3
#define LINK_FD 4
#define KEYCTL_JOIN_SESSION_KEYRING 1

static struct sock_filter instructions[WIRE_FILTER_MAX + 1];

static noreturn void fail(const struct start_state *start_state, int error, const char *path, int report)
{
    struct exec_report failure = {.stage = start_state->stage, .error = error};
    size_t length = strnlen(path, sizeof failure.path - 1);
    memcpy(failure.path, path, length);
    /* At most PIPE_BUF bytes: written whole or not at all. */
    ssize_t ignored = write(report, &failure, offsetof(struct exec_report, path) + length);
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
    for (int fd = 0; fd < 3; fd++)
        if (dup2(terminal >= 0 ? terminal : request->stdio[fd], fd) < 0)
            return false;
    return true;
}

/* The program, and in *count its length; false with errno if it is not one. */
static bool read_filter(int fd, unsigned short *count)
{
    ssize_t size = pread(fd, instructions, sizeof instructions, 0);
    if (size < 0)
        return false;
    *count = (unsigned short)((size_t)size / sizeof instructions[0]);
    errno = EINVAL;
    return size > 0 && (size_t)size % sizeof instructions[0] == 0 && *count <= WIRE_FILTER_MAX;
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

static bool load_filter(unsigned short count)
{
    struct sock_fprog program = {.len = count, .filter = instructions};
    return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0;
}

static bool loaded_ahead;

bool child_load_ahead(int filter)
{
    unsigned short length = 0;
    loaded_ahead = read_filter(filter, &length) && leave_keyring() && load_filter(length);
    return loaded_ahead;
}

noreturn void child_run(const struct exec_request *request, struct start_state *start_state, int terminal,
                        int report, int link)
{
    static char tried[WIRE_TEXT_MAX];
    unsigned short filter_length = 0;
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
    if (request->filter >= 0 && !loaded_ahead && !read_filter(request->filter, &filter_length))
        fail(start_state, errno, "", report);

    start_state->stage = EXEC_STAGE_DESCRIPTORS;
    if (report != REPORT_FD && dup3(report, REPORT_FD, O_CLOEXEC) < 0)
        fail(start_state, errno, "", report);
    report = REPORT_FD;
    /* The pipe was made before the link, so the link's number is not the report's. */
    if (link >= 0 && link != LINK_FD && dup3(link, LINK_FD, O_CLOEXEC) < 0)
        fail(start_state, errno, "", report);
    close_from(link >= 0 ? LINK_FD + 1 : REPORT_FD + 1);

    start_state->stage = EXEC_STAGE_CHDIR;
    if (chdir(request->cwd) != 0)
        fail(start_state, errno, request->cwd, report);
    umask(022);

    start_state->stage = EXEC_STAGE_RLIMIT;
    if (!set_rlimits(request, rlimit))
        fail(start_state, errno, rlimit, report);

    start_state->stage = EXEC_STAGE_KEYRING;
    if (!loaded_ahead && !leave_keyring())
        fail(start_state, errno, "", report);

    start_state->stage = EXEC_STAGE_NO_NEW_PRIVS;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        fail(start_state, errno, "", report);

    start_state->stage = EXEC_STAGE_TRACE;
    if (link >= 0 && !trace_load_filter())
        fail(start_state, errno, "", report);

    start_state->stage = EXEC_STAGE_SECCOMP;
    if (request->filter >= 0 && !loaded_ahead && !load_filter(filter_length))
        fail(start_state, errno, "", report);

    start_state->stage = EXEC_STAGE_TRACE;
    if (link >= 0 && !trace_offer(LINK_FD))
        fail(start_state, errno, "", report);

    start_state->stage = EXEC_STAGE_EXEC;
    if (request->flags & EXEC_FILES) {
        close(report); /* what execve would do */
        file_server();
    }
    search_and_exec(request->argv, request->env, tried, sizeof tried);
    fail(start_state, errno, tried, report);
}
