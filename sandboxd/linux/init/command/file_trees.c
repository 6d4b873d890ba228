/* Operations of the file server on whole trees: list and copy; and rename. */
#include "file_server.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define OPEN_FOLDERS 64

/* What nftw's callback needs: it has no argument for it. */
static struct {
    size_t prefix;
    uint32_t limit, count;
    bool truncated;
    int error;
    const char *from, *to;
} walk;

static int list_one(const char *path, const struct stat *status, int kind, struct FTW *at)
{
    if (at->level == 0 || kind == FTW_NS)
        return 0;
    if (walk.count == walk.limit) {
        walk.truncated = true;
        return 1;
    }
    const char *name = path + walk.prefix;
    size_t before = answer_length();
    if (!answer_string(name, strlen(name)) || !answer_status(status)) {
        answer_cut(before);
        walk.truncated = true;
        return 1;
    }
    walk.count++;
    return 0;
}

static int list_folder(const char *path)
{
    DIR *folder = opendir(path);
    if (folder == NULL)
        return errno;
    const struct dirent *entry;
    while ((entry = readdir(folder)) != NULL) {
        struct stat status;
        struct FTW at = {.base = 0, .level = 1};
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 ||
            fstatat(dirfd(folder), entry->d_name, &status, AT_SYMLINK_NOFOLLOW) != 0)
            continue;
        if (list_one(entry->d_name, &status, 0, &at) != 0)
            break;
    }
    closedir(folder);
    return 0;
}

int do_list(struct cursor *cursor)
{
    const char *path = take_string(cursor);
    bool recursive = take_u32(cursor) != 0;
    uint32_t limit = take_u32(cursor);
    if (cursor->bad)
        return EINVAL;
    memset(&walk, 0, sizeof walk);
    walk.limit = limit;
    size_t start = answer_length();
    if (!answer_u32(0) || !answer_u32(0))
        return ENOMEM;
    int error = 0;
    if (!recursive) {
        error = list_folder(path);
    } else {
        struct stat status;
        char real[PATH_MAX];
        if (realpath(path, real) == NULL || stat(real, &status) != 0)
            return errno;
        if (!S_ISDIR(status.st_mode))
            return ENOTDIR;
        walk.prefix = strcmp(real, "/") == 0 ? 1 : strlen(real) + 1;
        if (nftw(real, list_one, OPEN_FOLDERS, FTW_PHYS) < 0)
            error = errno;
    }
    uint32_t truncated = walk.truncated;
    answer_patch(start, &walk.count, 4);
    answer_patch(start + 4, &truncated, 4);
    return error;
}

int do_rename(struct cursor *cursor)
{
    const char *from = take_string(cursor), *to = take_string(cursor);
    if (cursor->bad)
        return EINVAL;
    if (holds_workspace(from) || holds_workspace(to))
        return EBUSY;
    return rename(from, to) == 0 ? 0 : errno;
}

static int copy_file(const char *from, const char *to, mode_t mode)
{
    static uint8_t block[128 * 1024];
    int source = open_regular(from, O_RDONLY, 0);
    if (source < 0)
        return errno;
    struct stat one, other;
    int target = open_regular(to, O_WRONLY | O_CREAT, mode & 0777);
    int error = target < 0 ? errno : 0;
    /* Truncated only now: it may be the source, by another name. */
    if (error == 0 && (fstat(source, &one) != 0 || fstat(target, &other) != 0))
        error = errno;
    else if (error == 0 && one.st_dev == other.st_dev && one.st_ino == other.st_ino)
        error = EINVAL;
    else if (error == 0 && ftruncate(target, 0) != 0)
        error = errno;
    while (error == 0) {
        ssize_t count = read(source, block, sizeof block);
        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0)
            error = errno;
        if (count <= 0)
            break;
        error = write_all(target, block, (size_t)count, -1);
    }
    if (target >= 0 && close(target) != 0 && error == 0)
        error = errno;
    close(source);
    return error;
}

static int copy_link(const char *from, const char *to)
{
    char target[PATH_MAX];
    ssize_t length = readlink(from, target, sizeof target - 1);
    if (length < 0)
        return errno;
    target[length] = '\0';
    return symlink(target, to) == 0 ? 0 : errno;
}

static int copy_one(const char *path, const struct stat *status, int kind, struct FTW *at)
{
    char to[PATH_MAX];
    (void)at;
    int length = snprintf(to, sizeof to, "%s%s", walk.to, path + walk.prefix);
    if (length < 0 || (size_t)length >= sizeof to)
        walk.error = ENAMETOOLONG;
    else if (kind == FTW_DNR || kind == FTW_NS)
        walk.error = EACCES;
    else if (S_ISDIR(status->st_mode))
        walk.error = mkdir(to, (status->st_mode & 0777) | 0700) == 0 || errno == EEXIST ? 0 : errno;
    else if (S_ISLNK(status->st_mode))
        walk.error = copy_link(path, to);
    else
        walk.error = copy_file(path, to, status->st_mode);
    return walk.error != 0;
}

/* The path of a folder that exists or will be made, without links. False with errno. */
static bool resolve_target(const char *to, char real[PATH_MAX])
{
    char folder[PATH_MAX];
    size_t length = strlen(to);
    if (realpath(to, real) != NULL)
        return true;
    if (errno != ENOENT)
        return false;
    while (length > 1 && to[length - 1] == '/')
        length--;
    if (length >= sizeof folder)
        return errno = ENAMETOOLONG, false;
    memcpy(folder, to, length);
    folder[length] = '\0';
    char *slash = strrchr(folder, '/');
    const char *name = slash != NULL ? slash + 1 : folder;
    if (slash != NULL)
        *slash = '\0';
    char *parent = realpath(slash == NULL ? "." : slash == folder ? "/" : folder, NULL);
    if (parent == NULL)
        return false;
    int size = snprintf(real, PATH_MAX, "%s/%s", strcmp(parent, "/") == 0 ? "" : parent, name);
    free(parent);
    return size < PATH_MAX ? true : (errno = ENAMETOOLONG, false);
}

int do_copy(struct cursor *cursor)
{
    const char *from = take_string(cursor), *to = take_string(cursor);
    bool recursive = take_u32(cursor) != 0;
    struct stat status;
    char real_from[PATH_MAX], real_to[PATH_MAX];
    if (cursor->bad)
        return EINVAL;
    if (stat(from, &status) != 0)
        return errno;
    if (!S_ISDIR(status.st_mode))
        return copy_file(from, to, status.st_mode);
    if (!recursive)
        return EISDIR;
    if (realpath(from, real_from) == NULL || !resolve_target(to, real_to))
        return errno;
    /* A folder is not copied into itself: that would not end. */
    if (is_within(real_to, real_from))
        return EINVAL;
    memset(&walk, 0, sizeof walk);
    walk.to = real_to;
    walk.prefix = strcmp(real_from, "/") == 0 ? 0 : strlen(real_from);
    int done = nftw(real_from, copy_one, OPEN_FOLDERS, FTW_PHYS);
    return done < 0 ? errno : walk.error;
}
