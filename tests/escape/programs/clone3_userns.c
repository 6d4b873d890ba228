/* clone3 with CLONE_NEWUSER: its flags lie behind a pointer, where a filter cannot look. */
#include "attack.h"
#include <linux/sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>

int main(void)
{
    struct clone_args args = {.flags = CLONE_NEWUSER, .exit_signal = SIGCHLD};
    long pid = syscall(SYS_clone3, &args, sizeof args);
    if (pid < 0)
        blocked("clone3");
    if (pid == 0)
        _exit(0);
    waitpid((pid_t)pid, NULL, 0);
    worked();
}
