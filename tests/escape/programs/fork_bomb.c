/* fork_bomb forks N: at most N children that sleep; says how many there were, and ends them.
 * fork_bomb grows: every process forks for as long as it lives. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int some(int wanted)
{
    int made = 0;
    pid_t *children = calloc((size_t)wanted, sizeof *children);
    while (made < wanted) {
        pid_t child = fork();
        if (child < 0)
            break;
        if (child == 0) {
            pause();
            _exit(0);
        }
        children[made++] = child;
    }
    if (made == wanted)
        sleep(2); /* time for those who count */
    printf("%s %d\n", made == wanted ? "worked" : "blocked", made);
    fflush(stdout);
    for (int i = 0; i < made; i++)
        kill(children[i], SIGKILL);
    while (wait(NULL) > 0)
        continue;
    return made == wanted ? 42 : 43;
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "forks") == 0)
        return some(atoi(argv[2]));
    signal(SIGTERM, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    alarm(20); /* not inherited; the outer limit is what holds */
    for (;;)
        fork();
}
