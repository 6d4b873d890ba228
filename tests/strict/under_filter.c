/* Loads a seccomp program and then runs a command, or makes one system call, under it.
 *
 *   under_filter FILTER run COMMAND [ARG…]     FILTER is a file of struct sock_filter; "-": none
 *   under_filter FILTER call NUMBER [ARG…]     prints "ok" or the errno's number
 *   under_filter FILTER thread NUMBER          the same from a second thread
 *   under_filter FILTER int80 NUMBER           enters the kernel as a 32-bit program does
 *   under_filter FILTER x32 NUMBER             sets the x32 bit
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MAX_INSTRUCTIONS 4096

static void load(const char *path) {
    static struct sock_filter code[MAX_INSTRUCTIONS];
    FILE *file = fopen(path, "rb");
    if (!file) { perror(path); exit(125); }
    size_t count = fread(code, sizeof code[0], MAX_INSTRUCTIONS, file);
    fclose(file);
    struct sock_fprog program = {.len = (unsigned short)count, .filter = code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
        syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_SPEC_ALLOW, &program)) {
        perror("seccomp");
        exit(125);
    }
}

static void report(long result) {
    if (result < 0) printf("%ld\n", -result);
    else printf("ok\n");
    fflush(stdout);
}

static void *call_in_thread(void *number) {
    long result = syscall((long)number, 0, 0, 0, 0, 0, 0);
    report(result < 0 ? -errno : result);
    return NULL;
}

int main(int argc, char **argv) {
    if (argc < 4) return 125;
    if (strcmp(argv[1], "-")) load(argv[1]);
    if (!strcmp(argv[2], "run")) {
        execvp(argv[3], argv + 3);
        perror(argv[3]);
        return 126;
    }
    long number = strtol(argv[3], NULL, 0), args[6] = {0}, result = 0;
    for (int i = 4; i < argc && i < 10; i++) args[i - 4] = (long)strtoull(argv[i], NULL, 0);
    if (!strcmp(argv[2], "call")) {
        result = syscall(number, args[0], args[1], args[2], args[3], args[4], args[5]);
        report(result < 0 ? -errno : result);
        return 0;
    }
    if (!strcmp(argv[2], "thread")) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, call_in_thread, (void *)number)) return 125;
        pthread_join(thread, NULL);
        return 0;
    }
#if defined(__x86_64__)
    if (!strcmp(argv[2], "int80"))
        __asm__ volatile("int $0x80" : "=a"(result) : "a"(number), "b"(0) : "memory");
    else
        __asm__ volatile("syscall" : "=a"(result) : "a"(0x40000000L | number) : "rcx", "r11", "memory");
    report(result);
    return 0;
#else
    return 125;
#endif
}
