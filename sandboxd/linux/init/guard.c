/*
 * The guard: what a pid namespace does elsewhere, where there is none.
 *
 * The init is an ordinary process there, in the same Landlock domain as the commands: they can kill
 * or stop it, and its keepers. The guard is its parent, outside that domain, so (from Landlock ABI 6
 * on) no command can signal it. It is a subreaper: whatever is orphaned when init and keepers die
 * becomes its child, and it goes only when nothing is left.
 */
#include "init.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

/* How long the init may take to end the sandbox by itself after the daemon has let go of it. */
#define END_GRACE_MS 1000

static noreturn void end_all(int code)
{
    kill_everything();
    _exit(code);
}

/* Whether the init ended, or is stopped: only a command would do that, and then nobody listens. */
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
        /* No events asked for: only the end of the other side is reported, and nothing is read. */
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
    /* Not inherited by a fork: the tree of a keeper that was killed must come to the init, not past
     * it to the guard, or nobody ends that command. */
    if (prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0)
        return false;
    /* A guard that was killed all the same (the kernel, out of memory) takes the sandbox along. */
    return prctl(PR_SET_PDEATHSIG, SIGTERM, 0, 0, 0) == 0 && getppid() == guard;
}
