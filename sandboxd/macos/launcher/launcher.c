/*
 * Starts one command in a sandbox of sandbox-exec, in two stages of this one program.
 *
 *   launcher outside TTY UID GID CPU FSIZE CWD SANDBOX-EXEC ARG...
 *   launcher inside COUNT NAME=VALUE... PROGRAM ARG...
 *
 * The outer stage sets limits, folder, terminal and user, and becomes sandbox-exec, whose command is
 * the inner stage. The inner stage makes sure that it is sandboxed, and becomes the program. The
 * command's environment is given to the inner stage as arguments: in the environment of the outer
 * stage a variable such as DYLD_INSERT_LIBRARIES would run code outside the sandbox.
 *
 * STATUS (descriptor 3, and descriptor 2 until the inner stage) says how far it came: NUL 'S' right
 * before the program is executed, NUL 'E', a stage and an errno for what failed, and before that
 * whatever sandbox-exec has to say. 'S' and then the end of the pipe is success; the end without 'S'
 * means that the sandbox did not come up. The daemon holds the other end: when it is gone, writing
 * 'S' fails and the program is not started. The command's own stderr waits as descriptor 4.
 *
 * A '-' stands for a value that is not set. On systems other than macOS the check for the sandbox is
 * left out: there this program only runs below the stand-in of the tests.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <termios.h>
#include <unistd.h>

#define STATUS 3
#define STDERR 4
#define DEFAULT_PATH "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"

#ifdef __APPLE__
/* libsystem_sandbox: 1 when the process is sandboxed. */
extern int sandbox_check(pid_t pid, const char *operation, int type, ...);
#endif

_Noreturn static void fail(char stage)
{
    int32_t number = errno;
    char message[3 + sizeof number] = {0, 'E', stage};
    memcpy(message + 3, &number, sizeof number);
    (void)!write(STATUS, message, sizeof message);
    _exit(127);
}

static int is_set(const char *text)
{
    return strcmp(text, "-") != 0;
}

static unsigned long long number_of(const char *text)
{
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (errno != 0 || *text == 0 || *end != 0) {
        errno = EINVAL;
        fail('a');
    }
    return value;
}

static void limit(int which, rlim_t soft, rlim_t hard)
{
    struct rlimit both = {soft, hard};
    if (setrlimit(which, &both) != 0)
        fail('l');
}

static void become(const char *uid, const char *gid)
{
    if (!is_set(uid))
        return;
    gid_t group = (gid_t)number_of(gid);
    if (setgroups(1, &group) != 0 || setgid(group) != 0 || setuid((uid_t)number_of(uid)) != 0)
        fail('u');
}

/* The daemon opens everything close-on-exec; what it was started with itself it may have inherited. */
static void close_others(void)
{
    DIR *folder = opendir("/dev/fd");
    if (folder == NULL)
        fail('d');
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        int fd = atoi(entry->d_name);
        if (fd > STDERR)
            (void)fcntl(fd, F_SETFD, FD_CLOEXEC);
    }
    closedir(folder);
}

static void outside(int argc, char **argv)
{
    if (argc < 9) {
        errno = EINVAL;
        fail('a');
    }
    close_others();
    if (is_set(argv[2]) && ioctl(0, TIOCSCTTY, 0) != 0)
        fail('t');
    limit(RLIMIT_CORE, 0, 0);
    if (is_set(argv[5])) {
        rlim_t seconds = (rlim_t)number_of(argv[5]);
        limit(RLIMIT_CPU, seconds, seconds + 1);
    }
    if (is_set(argv[6]))
        limit(RLIMIT_FSIZE, (rlim_t)number_of(argv[6]), (rlim_t)number_of(argv[6]));
    become(argv[3], argv[4]);
    if (chdir(argv[7]) != 0)
        fail('c');
    execv(argv[8], argv + 8);
    fail('o');
}

static const char *path_of(char **env)
{
    for (; *env != NULL; env++)
        if (strncmp(*env, "PATH=", 5) == 0)
            return *env + 5;
    return DEFAULT_PATH;
}

/* Every candidate is simply executed, by the command's own PATH. EACCES of one is kept. */
static void search_and_execute(char **argv, char **env)
{
    char candidate[PATH_MAX];
    int refused = 0;
    size_t name = strlen(argv[0]);
    if (name == 0) {
        errno = ENOENT;
        return;
    }
    if (strchr(argv[0], '/') != NULL) {
        execve(argv[0], argv, env);
        return;
    }
    for (const char *at = path_of(env); at != NULL;) {
        const char *colon = strchr(at, ':');
        size_t length = colon != NULL ? (size_t)(colon - at) : strlen(at);
        const char *folder = length > 0 ? at : ".";
        size_t folder_length = length > 0 ? length : 1;
        at = colon != NULL ? colon + 1 : NULL;
        if (folder_length + 1 + name + 1 > sizeof candidate)
            continue;
        memcpy(candidate, folder, folder_length);
        candidate[folder_length] = '/';
        memcpy(candidate + folder_length + 1, argv[0], name + 1);
        execve(candidate, argv, env);
        /* EPERM is how sandbox-exec refuses a folder of PATH that is not granted. */
        refused = refused || errno == EACCES || errno == EPERM;
        if (errno != ENOENT && errno != ENOTDIR && errno != EACCES && errno != EPERM &&
            errno != ENAMETOOLONG && errno != ELOOP)
            return;
    }
    errno = refused ? EACCES : ENOENT;
}

static void inside(int argc, char **argv)
{
    if (argc < 4) {
        errno = EINVAL;
        fail('a');
    }
#ifdef __APPLE__
    if (sandbox_check(getpid(), NULL, 0) != 1) {
        errno = EPERM;
        fail('s');
    }
#endif
    unsigned long long count = number_of(argv[2]);
    if (count > (unsigned long long)argc - 4) {
        errno = EINVAL;
        fail('a');
    }
    /* The environment and the arguments lie in one array: a NULL has to go between them. */
    char **env = calloc((size_t)count + 1, sizeof *env);
    if (env == NULL)
        fail('m');
    memcpy(env, argv + 3, (size_t)count * sizeof *env);
    if (dup2(STDERR, 2) != 2 || close(STDERR) != 0 || fcntl(STATUS, F_SETFD, FD_CLOEXEC) != 0)
        fail('d');
    signal(SIGPIPE, SIG_IGN);
    if (write(STATUS, "\0S", 2) != 2)
        _exit(127);
    signal(SIGPIPE, SIG_DFL);
    search_and_execute(argv + 3 + count, env);
    fail('x');
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "outside") == 0)
        outside(argc, argv);
    if (argc > 1 && strcmp(argv[1], "inside") == 0)
        inside(argc, argv);
    return 64;
}
