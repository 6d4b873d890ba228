/* The file server's removal of files and trees, and what it never removes. */
#include "file_server.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char workspace[PATH_MAX];

void file_remove_begin(void)
{
    if (getcwd(workspace, sizeof workspace) == NULL)
        workspace[0] = '\0';
}

bool is_within(const char *path, const char *folder)
{
    size_t length = strlen(folder);
    return length == 1 || (strncmp(path, folder, length) == 0 &&
                           (path[length] == '\0' || path[length] == '/'));
}

bool holds_workspace(const char *path)
{
    char real[PATH_MAX];
    struct stat status;
    if (lstat(path, &status) != 0 || S_ISLNK(status.st_mode) || realpath(path, real) == NULL)
        return false;
    return is_within(workspace, real);
}

/* mountinfo writes blanks and backslashes as three octal digits. */
static void unescape(char *text)
{
    char *to = text;
    for (const char *at = text; *at != '\0'; at++) {
        if (at[0] == '\\' && at[1] != '\0' && at[2] != '\0' && at[3] != '\0') {
            *to++ = (char)((at[1] - '0') << 6 | (at[2] - '0') << 3 | (at[3] - '0'));
            at += 3;
        } else {
            *to++ = *at;
        }
    }
    *to = '\0';
}

/* Whether the folder is a mount point or holds one: its contents belong to another folder. */
static bool holds_mount(const char *path)
{
    char real[PATH_MAX], *line = NULL, *point = NULL;
    size_t room = 0;
    bool found = false;
    FILE *table = realpath(path, real) != NULL ? fopen("/proc/self/mountinfo", "re") : NULL;
    if (table == NULL)
        return true;
    while (!found && getline(&line, &room, table) > 0) {
        if (sscanf(line, "%*s %*s %*s %*s %ms", &point) != 1)
            continue;
        unescape(point);
        found = is_within(point, real);
        free(point);
    }
    free(line);
    fclose(table);
    return found;
}

/* A folder on the way down. */
struct level {
    struct level *above;
    dev_t device;
    ino_t inode;
    char name[NAME_MAX + 1];
};

/* Removes all but folders. 1 with the name of a folder that is left, 0 if none is, else -1. */
static int remove_files(int folder, char found[NAME_MAX + 1])
{
    int copy = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *entries = copy >= 0 ? fdopendir(copy) : NULL;
    const struct dirent *entry;
    int result = entries != NULL ? 0 : -1;
    while (result == 0 && (errno = 0, entry = readdir(entries)) != NULL) {
        struct stat status;
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        if (fstatat(folder, entry->d_name, &status, AT_SYMLINK_NOFOLLOW) != 0)
            result = errno == ENOENT ? 0 : -1;
        else if (S_ISDIR(status.st_mode))
            result = (strcpy(found, entry->d_name), 1);
        else if (unlinkat(folder, entry->d_name, 0) != 0 && errno != ENOENT)
            result = -1;
    }
    if (result == 0 && errno != 0)
        result = -1;
    int error = errno;
    if (entries != NULL)
        closedir(entries);
    errno = error;
    return result;
}

static bool is_same(int folder, const struct level *level)
{
    struct stat status;
    return fstat(folder, &status) == 0 && status.st_dev == level->device &&
           status.st_ino == level->inode;
}

/* Below an open folder, of any depth: one descriptor at a time. 0 or an errno. */
static int remove_below(int top)
{
    struct level *level = NULL;
    int folder = openat(top, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int error = folder >= 0 ? 0 : errno;
    while (error == 0) {
        struct stat status;
        struct level *below = malloc(sizeof *below);
        int left = below != NULL && fstat(folder, &status) == 0 ? remove_files(folder, below->name) : -1;
        if (left < 0) {
            error = errno != 0 ? errno : EIO;
            free(below);
        } else if (left > 0) {
            below->above = level;
            below->device = status.st_dev;
            below->inode = status.st_ino;
            level = below;
            int inner = openat(folder, below->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
            error = inner >= 0 ? 0 : errno;
            close(folder);
            folder = inner;
        } else {
            free(below);
            if (level == NULL)
                break;
            /* A command may have moved it meanwhile: then ".." is another folder. */
            int outer = openat(folder, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
            close(folder);
            folder = outer;
            if (folder >= 0 && !is_same(folder, level))
                error = EBUSY;
            else if (folder < 0 || unlinkat(folder, level->name, AT_REMOVEDIR) != 0)
                error = errno;
            below = level;
            level = below->above;
            free(below);
        }
    }
    while (level != NULL) {
        struct level *above = level->above;
        free(level);
        level = above;
    }
    if (folder >= 0)
        close(folder);
    return error;
}

/* Refused before anything is removed: rmdir would refuse it afterwards. 0 or an errno. */
static int check_last(const char *path)
{
    size_t length = strlen(path);
    char name[PATH_MAX];
    struct stat status;
    if (length >= sizeof name)
        return ENAMETOOLONG;
    memcpy(name, path, length + 1);
    while (length > 1 && name[length - 1] == '/')
        name[--length] = '\0';
    const char *slash = strrchr(name, '/');
    const char *last = slash != NULL ? slash + 1 : name;
    if (strcmp(last, ".") == 0 || strcmp(last, "..") == 0)
        return EINVAL;
    bool is_link = lstat(name, &status) == 0 && S_ISLNK(status.st_mode);
    return is_link && path[length] == '/' ? ENOTDIR : 0;
}

int do_remove(struct cursor *cursor)
{
    const char *path = take_string(cursor);
    bool recursive = take_u32(cursor) != 0;
    struct stat status;
    if (cursor->bad)
        return EINVAL;
    if (lstat(path, &status) != 0)
        return errno;
    if (holds_workspace(path))
        return EBUSY;
    int refused = check_last(path);
    if (refused != 0)
        return refused;
    if (!S_ISDIR(status.st_mode))
        return unlink(path) == 0 ? 0 : errno;
    if (!recursive)
        return rmdir(path) == 0 ? 0 : errno;
    if (holds_mount(path))
        return EBUSY;
    int folder = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (folder < 0)
        return errno;
    int error = remove_below(folder);
    close(folder);
    return error != 0 ? error : rmdir(path) == 0 ? 0 : errno;
}
