/*
 * PID 1 of a namespace of its own, in which it makes the kernel use a pid again.
 *
 * A child (the "reaper") lists a process below it with the init's own functions. That process ends, and
 * PID 1 forks a stranger, which gets the same pid. The reaper then signals the pid that it listed:
 *   "listed"  through signal_listed; "plain"  by kill, which is the control; "own"  without reuse.
 * The signal is blocked, so that it is seen to be pending. Prints whether it is.
 */
#include "process_tree/process_tree.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static noreturn void fail(const char *what)
{
    perror(what);
    exit(2);
}

static pid_t fork_sleeper(void)
{
    sigset_t blocked;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGUSR1);
    sigprocmask(SIG_BLOCK, &blocked, NULL);
    pid_t pid = fork();
    if (pid == 0) {
        for (;;)
            pause();
    }
    return pid;
}

/* Only this namespace forks, and only in turn. */
static void fork_as(pid_t wanted)
{
    int fd = open("/proc/sys/kernel/ns_last_pid", O_WRONLY | O_CLOEXEC);
    if (fd < 0 || dprintf(fd, "%d", wanted - 1) < 0)
        fail("ns_last_pid");
    close(fd);
    if (fork_sleeper() != wanted)
        fail("another pid than was asked for");
}

static noreturn void act_as_reaper(const char *how, int tell, int told)
{
    struct pid_list list = {0};
    char byte;
    pid_t child = fork_sleeper();
    procs_below(&list, NULL);
    if (list.count != 1 || list.at[0] != child)
        fail("the child is not listed");
    if (strcmp(how, "own") != 0) {
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
    }
    if (write(tell, &child, sizeof child) != sizeof child || read(told, &byte, 1) != 1)
        fail("pipe");
    if (strcmp(how, "plain") == 0)
        kill(child, SIGUSR1);
    else
        signal_listed(&list, child, SIGUSR1);
    exit(0);
}

static bool is_pending(pid_t pid)
{
    char text[4096];
    bool is_there = procstat_text(pid, "status", text, sizeof text) > 0;
    const char *line = is_there ? strstr(text, "ShdPnd:") : NULL;
    if (line == NULL)
        fail("the process is gone");
    return (strtoull(line + 7, NULL, 16) >> (SIGUSR1 - 1) & 1) != 0;
}

int main(int argc, char **argv)
{
    int tell[2], answer[2], status;
    pid_t listed;
    if (argc != 2 || getpid() != 1 || pipe(tell) != 0 || pipe(answer) != 0)
        fail("this must be PID 1");
    pid_t reaper = fork();
    if (reaper == 0)
        act_as_reaper(argv[1], tell[1], answer[0]);
    if (read(tell[0], &listed, sizeof listed) != sizeof listed)
        fail("pipe");
    if (strcmp(argv[1], "own") != 0)
        fork_as(listed);
    if (write(answer[1], "", 1) != 1 || waitpid(reaper, &status, 0) != reaper || status != 0)
        fail("the reaper failed");
    puts(is_pending(listed) ? "signalled" : "untouched");
    return 0;
}
