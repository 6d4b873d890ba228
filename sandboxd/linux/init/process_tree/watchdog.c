/*
 * The watchdog: ends the sandbox where there is no pid namespace that would.
 *
 * Without a pid namespace the init is an ordinary process in the same Landlock domain as the commands:
 * they can kill or stop it and its reapers. The watchdog is its parent, outside that domain, so (from
 * Landlock ABI 6 on) no command can signal it. It is a subreaper: processes that are orphaned when the
 * init and the reapers die become its children, and it exits only when none is left.
 */
#include "../command/command.h"
#include "process_tree.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

/* How long the init may take to end the sandbox after the daemon has closed its socket. */
#define END_GRACE_MS 1000

static noreturn void end_all(int code)
{
    kill_everything();
    _exit(code);
}

/* Whether the init ended or is stopped. Only a command would stop it. */
static void look_at_init(pid_t init)
{
    int status;
    if (waitpid(init, &status, WNOHANG | WUNTRACED | __WALL) != init)
        return;
    end_all(WIFEXITED(status) ? WEXITSTATUS(status) : INIT_LOST);
}

static noreturn void guard_run(pid_t init, int control, int signals)
{
    int keep[] = {control, signals};
    close_all_but(keep, 2);
    prctl(PR_SET_NAME, "sandboxd-guard", 0, 0, 0);
    for (bool ending = false;;) {
        struct signalfd_siginfo infos[4];
        /* No events are requested: poll reports only the hang-up, and nothing is read. */
        struct pollfd fds[2] = {{.fd = signals, .events = POLLIN}, {.fd = ending ? -1 : control}};
        int found = poll(fds, 2, ending ? END_GRACE_MS : -1);
        if (fds[0].revents != 0) {
            ssize_t ignored = read(signals, infos, sizeof infos);
            (void)ignored;
        }
        look_at_init(init);
        if (found == 0)
            end_all(INIT_LOST);
        ending = ending || fds[1].revents != 0;
    }
}

bool guard_stay_behind(int control, int signals)
{
    pid_t guard = getpid();
    pid_t init = fork();
    if (init < 0)
        return false;
    if (init > 0)
        guard_run(init, control, signals);
    /* Not inherited by a fork: the tree of a killed reaper must be reparented to the init, not to the
     * watchdog, or no process would end that command. */
    if (prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0)
        return false;
    /* If the watchdog is killed (by the kernel, out of memory) the sandbox ends too. */
    return prctl(PR_SET_PDEATHSIG, SIGTERM, 0, 0, 0) == 0 && getppid() == guard;
}
