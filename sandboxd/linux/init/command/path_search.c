/*
 * Finds the file of a command's name in the PATH of the command, not in the init's.
 *
 * Every candidate is executed without a check before: a check could disagree with execve. No shell is
 * tried for a file without an interpreter line.
 */
#include "command.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

#define DEFAULT_PATH "/usr/local/bin:/usr/bin:/bin"

static const char *path_of(char **env)
{
    for (; *env != NULL; env++)
        if (strncmp(*env, "PATH=", 5) == 0)
            return *env + 5;
    return DEFAULT_PATH;
}

static void remember(char *tried, size_t size, const char *path)
{
    size_t length = strnlen(path, size - 1);
    memcpy(tried, path, length);
    tried[length] = 0;
}

/* An empty entry of PATH is the current folder, as POSIX says. */
static bool join(char *into, size_t size, const char *folder, size_t folder_length, const char *name)
{
    size_t name_length = strlen(name);
    bool slash = folder_length > 0 && folder[folder_length - 1] != '/';
    if (folder_length + slash + name_length + 1 > size)
        return false;
    memcpy(into, folder, folder_length);
    if (slash)
        into[folder_length] = '/';
    memcpy(into + folder_length + slash, name, name_length + 1);
    return true;
}

/* Errors after which the next candidate is tried. */
static bool try_next_after(int error)
{
    return error == ENOENT || error == ENOTDIR || error == EACCES || error == ESTALE ||
           error == ENODEV || error == ETIMEDOUT || error == ENAMETOOLONG || error == ELOOP;
}

void search_and_exec(char **argv, char **env, char *tried, size_t size)
{
    char candidate[PATH_MAX];
    bool denied = false;
    remember(tried, size, argv[0]);
    if (argv[0][0] == 0) {
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
        bool fits = join(candidate, sizeof candidate, at, length, argv[0]);
        at = colon != NULL ? colon + 1 : NULL;
        if (!fits)
            continue;
        execve(candidate, argv, env);
        if (errno == EACCES && !denied)
            remember(tried, size, candidate);
        denied = denied || errno == EACCES;
        if (!try_next_after(errno)) {
            int error = errno;
            remember(tried, size, candidate);
            errno = error;
            return;
        }
    }
    errno = denied ? EACCES : ENOENT;
}
