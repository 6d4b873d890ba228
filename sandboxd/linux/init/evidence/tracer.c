/*
 * Explain mode: the reaper traces its command and reports every refused access.
 *
 * A filter stops the command only at the calls of path_syscalls.c; the rest of the sandbox is the same.
 * The result is read when the call returns. Notifications would cost less (one stop instead of two),
 * but they come before the call and do not show its result.
 *
 * The reaper seizes the child just before it executes the command. Without EXITKILL the command
 * would get ENOSYS from every traced call after the reaper's death.
 */
#include "../command/command.h"
#include "evidence.h"

#include <elf.h>
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/ptrace.h>
#include <linux/seccomp.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#define SYSCALL_STOP (SIGTRAP | 0x80)

/* Not sys/ptrace.h: it and linux/ptrace.h cannot be included together everywhere. */
static long trace(long request, pid_t pid, uintptr_t address, uintptr_t data)
{
    return syscall(SYS_ptrace, request, pid, address, data);
}

/* Stops at every call of path_syscalls.c; fstat, which is a path call without a path, passes. */
bool trace_load_filter(void)
{
    struct sock_filter code[128];
    size_t count, at = 0;
    const struct call_shape *shapes = call_shapes(&count);
    code[at++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
                                              offsetof(struct seccomp_data, arch));
    code[at++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, NATIVE_ARCH, 1, 0);
    code[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    code[at++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
                                              offsetof(struct seccomp_data, nr));
    /* After the comparisons: allow, trace, trace unless AT_EMPTY_PATH (newfstatat, statx). */
    for (size_t i = 0; i < count; i++) {
        size_t left = count - 1 - i;
        size_t target = shapes[i].number == SYS_newfstatat ? left + 2
                        : shapes[i].number == SYS_statx    ? left + 4
                                                           : left + 1;
        code[at++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K,
                                                  (uint32_t)shapes[i].number, (uint8_t)target, 0);
    }
    code[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    code[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRACE);
    code[at++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
                                              offsetof(struct seccomp_data, args[3]));
    code[at++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JA, 1, 0, 0);
    code[at++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
                                              offsetof(struct seccomp_data, args[2]));
    code[at++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, AT_EMPTY_PATH, 0, 1);
    code[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    code[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRACE);
    struct sock_fprog program = {(unsigned short)at, code};
    return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0;
}

/* The child, its filters loaded and nothing of the init in its memory: like any program, it may now be
 * traced by its own kind; until it is, the reaper could not either. */
bool trace_offer(int link)
{
    int error = 0;
    if (prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) != 0)
        return false;
    if (write(link, "", 1) != 1 || read(link, &error, sizeof error) != sizeof error)
        error = errno != 0 ? errno : EPIPE;
    errno = error;
    return error == 0;
}

bool trace_seize(pid_t pid, int link)
{
    char ready;
    int error = 0;
    /* A child that failed before has closed its end. */
    if (read(link, &ready, 1) != 1)
        return false;
    uintptr_t options = PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK |
                        PTRACE_O_TRACECLONE | PTRACE_O_TRACEEXEC | PTRACE_O_TRACEEXIT |
                        PTRACE_O_TRACESECCOMP | PTRACE_O_EXITKILL;
    if (trace(PTRACE_SEIZE, pid, 0, options) != 0)
        error = errno;
    return write(link, &error, sizeof error) == sizeof error && error == 0;
}

/* Calls that have begun, by thread: at their end the arguments are no longer in the registers. */
struct begun {
    pid_t thread;
    const struct call_shape *shape;
    uint64_t args[6];
};

static struct begun *begun;
static size_t begun_count, begun_room;

static struct begun *begun_by(pid_t thread)
{
    for (size_t i = 0; i < begun_count; i++)
        if (begun[i].thread == thread)
            return &begun[i];
    return NULL;
}

void trace_forget(pid_t thread)
{
    struct begun *call = begun_by(thread);
    if (call != NULL)
        *call = begun[--begun_count];
}

static bool remember(pid_t thread, const struct call_shape *shape, const uint64_t *args)
{
    trace_forget(thread);
    if (begun_count == begun_room) {
        size_t room = begun_room > 0 ? begun_room * 2 : 32;
        struct begun *larger = realloc(begun, room * sizeof *larger);
        if (larger == NULL)
            return false;
        begun = larger;
        begun_room = room;
    }
    struct begun *call = &begun[begun_count++];
    *call = (struct begun){.thread = thread, .shape = shape};
    memcpy(call->args, args, sizeof call->args);
    return true;
}

static bool call_info(pid_t thread, struct ptrace_syscall_info *info)
{
    memset(info, 0, sizeof *info);
    return trace(PTRACE_GET_SYSCALL_INFO, thread, sizeof *info, (uintptr_t)info) > 0;
}

/* The next stop is the end of this call, unless it is not traced or there is no room to record it. */
static long on_begin(pid_t thread)
{
    struct ptrace_syscall_info info;
    uint64_t args[6];
    if (!call_info(thread, &info) || info.op != PTRACE_SYSCALL_INFO_SECCOMP)
        return PTRACE_CONT;
    const struct call_shape *shape = call_shape_of(info.seccomp.nr);
    for (int i = 0; i < 6; i++)
        args[i] = info.seccomp.args[i];
    return shape != NULL && remember(thread, shape, args) ? PTRACE_SYSCALL : PTRACE_CONT;
}

/* Errors that a mount, a Landlock rule, a mask or a missing bind answers with. */
static bool is_refusal(int64_t result)
{
    return result == -EACCES || result == -EPERM || result == -EROFS || result == -ENOENT ||
           result == -EBUSY;
}

static bool opens(const struct call_shape *shape)
{
    return shape->wanted == WANTS_BY_FLAGS || shape->wanted == WANTS_BY_HOW;
}

static void on_end(int channel, pid_t thread)
{
    struct ptrace_syscall_info info;
    struct begun *call = begun_by(thread);
    if (call == NULL || !call_info(thread, &info) || info.op != PTRACE_SYSCALL_INFO_EXIT)
        return;
    if (is_refusal(info.exit.rval))
        refusals_failed(channel, thread, call->shape, call->args, (int)-info.exit.rval);
    else if (info.exit.rval >= 0 && opens(call->shape))
        refusals_opened(channel, thread, call->shape, call->args, (int)info.exit.rval);
    trace_forget(thread);
}

/* The call that the thread is in, when nothing but its registers is left to tell. The kernel takes an int. */
static long call_number(pid_t thread)
{
    struct user_regs_struct registers;
    struct iovec part = {&registers, sizeof registers};
    if (trace(PTRACE_GETREGSET, thread, NT_PRSTATUS, (uintptr_t)&part) != 0)
        return -1;
#if defined __x86_64__
    return (int)registers.orig_rax;
#elif defined __aarch64__
    return (int)registers.regs[8];
#endif
}

/* A filter that kills leaves no signal to intercept, only this last stop. */
static void on_exit_event(int channel, pid_t thread)
{
    unsigned long status = 0;
    trace_forget(thread);
    if (trace(PTRACE_GETEVENTMSG, thread, 0, (uintptr_t)&status) != 0)
        return;
    long number = WTERMSIG((int)status) == SIGSYS ? call_number(thread) : -1;
    if (number >= 0)
        send_killed_call(channel, (uint32_t)number);
}

static void on_exec_event(pid_t thread)
{
    unsigned long before = 0;
    if (trace(PTRACE_GETEVENTMSG, thread, 0, (uintptr_t)&before) == 0)
        trace_forget((pid_t)before);
    trace_forget(thread);
}

static bool stops_a_group(int number)
{
    return number == SIGSTOP || number == SIGTSTP || number == SIGTTIN || number == SIGTTOU;
}

/* A thread has stopped: inspect it and continue it. It may be killed at any moment; then these calls
 * fail, and its end is reported next. */
void trace_stopped(int channel, pid_t thread, int status)
{
    int number = WSTOPSIG(status);
    long go_on = PTRACE_CONT;
    uintptr_t deliver = 0;
    switch ((unsigned)status >> 16) {
    case PTRACE_EVENT_SECCOMP:
        go_on = on_begin(thread);
        break;
    case PTRACE_EVENT_EXIT:
        on_exit_event(channel, thread);
        break;
    case PTRACE_EVENT_EXEC:
        on_exec_event(thread);
        break;
    case PTRACE_EVENT_STOP:
        if (stops_a_group(number))
            go_on = PTRACE_LISTEN;
        break;
    case 0:
        if (number == SYSCALL_STOP)
            on_end(channel, thread);
        else
            deliver = (uintptr_t)number;
        break;
    default:
        break;
    }
    trace(go_on, thread, 0, deliver);
}
