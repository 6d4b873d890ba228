/* Attach to a process and change a word of its memory. */
#include "attack.h"
#include <sys/ptrace.h>
#include <sys/wait.h>

int main(int argc, char **argv)
{
    if (argc != 3)
        return 1;
    pid_t pid = atoi(argv[1]);
    char *address = (char *)strtoul(argv[2], NULL, 10);
    if (ptrace(PTRACE_ATTACH, pid, NULL, NULL) != 0)
        blocked("attach");
    waitpid(pid, NULL, __WALL);
    long poked = ptrace(PTRACE_POKEDATA, pid, address, (void *)0x4141414141414141L);
    ptrace(PTRACE_DETACH, pid, NULL, NULL);
    if (poked != 0)
        blocked("poke");
    worked();
}
