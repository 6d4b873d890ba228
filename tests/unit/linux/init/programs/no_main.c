/*
 * Passes on a signal for a command that was killed before it had a main process: 0 is its pid.
 *
 * In a process group of its own, with the signal blocked, so that it is seen to be pending. With "main" the command has
 * a main process, which leads that group: the control.
 */
#include "process_tree/process_tree.h"

#include <signal.h>
#include <stdio.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    struct signal_request request = {.number = SIGUSR1, .scope = SCOPE_MAIN};
    sigset_t signals;
    (void)argv;
    sigemptyset(&signals);
    sigaddset(&signals, SIGUSR1);
    if (setpgid(0, 0) != 0 || sigprocmask(SIG_BLOCK, &signals, NULL) != 0)
        return 2;
    tree_signal(&request, argc > 1 ? getpid() : 0, false, false, NULL);
    sigpending(&signals);
    puts(sigismember(&signals, SIGUSR1) ? "signalled" : "untouched");
    return 0;
}
