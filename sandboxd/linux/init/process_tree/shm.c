/*
 * Memory that belongs to no process: files in memory, memfds, System V segments.
 *
 * The resident size of processes does not show it: a file in /tmp or a memfd keeps its pages when
 * nothing maps them. The file systems are asked for their use (which counts removed files that are
 * still open), memfds are found through the descriptors of the tree, segments are listed by the
 * kernel. Not found: a memfd that only a mapping or a message in flight holds, those of a process that
 * is not dumpable, and those behind very many descriptors.
 */
#include "process_tree.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#define TMPFS 0x01021994

static char **scratch;
static uint32_t scratch_count;
/* The device of memfds, and of nothing that has a path. */
static dev_t memory_device;

void shm_look_ahead(void)
{
    struct stat status;
    int fd = memory_device != 0 ? -1 : (int)syscall(SYS_memfd_create, "sandboxd", MFD_CLOEXEC);
    if (fd < 0)
        return;
    if (fstat(fd, &status) == 0)
        memory_device = status.st_dev;
    close(fd);
}

void shm_set_up(const char **paths, uint32_t count)
{
    scratch = calloc((size_t)count + 1, sizeof *scratch);
    for (uint32_t i = 0; scratch != NULL && i < count; i++)
        if ((scratch[scratch_count] = strdup(paths[i])) != NULL)
            scratch_count++;
    shm_look_ahead();
}

uint32_t shm_full(void)
{
    struct statfs status;
    uint32_t full = 0;
    for (uint32_t i = 0; i < scratch_count && i < 32; i++)
        if (statfs(scratch[i], &status) == 0 && status.f_type == TMPFS && status.f_blocks > 0 &&
            (status.f_bavail == 0 || status.f_ffree == 0))
            full |= 1u << i;
    return full;
}

const char *shm_path(uint32_t number)
{
    return scratch[number];
}

bool shm_is_limited(void)
{
    return scratch_count > 0;
}

/* Pages of the file that are there already may all be in the range: then less is needed. */
uint32_t shm_cannot_hold(int fd, uint64_t offset, uint64_t length)
{
    struct stat file, root;
    struct statfs status;
    if (fstat(fd, &file) != 0 || fstatfs(fd, &status) != 0 || status.f_type != TMPFS ||
        status.f_blocks == 0 || length > UINT64_MAX - offset - (uint64_t)status.f_bsize)
        return 0;
    uint64_t block = (uint64_t)status.f_bsize;
    uint64_t blocks = (offset + length + block - 1) / block - offset / block;
    uint64_t present = (uint64_t)file.st_blocks * 512 / block;
    if (blocks <= present + status.f_bavail)
        return 0;
    for (uint32_t i = 0; i < scratch_count && i < 32; i++)
        if (stat(scratch[i], &root) == 0 && root.st_dev == file.st_dev)
            return 1u << i;
    return 0;
}

static uint64_t scratch_bytes(void)
{
    struct statfs status;
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < scratch_count; i++)
        if (statfs(scratch[i], &status) == 0 && status.f_type == TMPFS &&
            status.f_blocks > status.f_bfree)
            bytes += (status.f_blocks - status.f_bfree) * (uint64_t)status.f_bsize;
    return bytes;
}

/* The number in a column, counted from 0; 0 when there is none. */
static uint64_t column(const char *line, int number)
{
    uint64_t value = 0;
    for (int i = 0; i <= number; i++) {
        while (*line == ' ')
            line++;
        for (value = 0; *line != ' ' && *line != '\n' && *line != 0; line++)
            value = value * 10 + (uint64_t)(*line - '0');
    }
    return value;
}

enum { COLUMN_CREATOR = 4, COLUMN_RESIDENT = 14 };

/* In an ipc namespace of our own every segment is the sandbox's; else those made by the tree are. */
static uint64_t segment_bytes(const char *line, const struct pid_list *tree)
{
    if (!procs_have_namespace() && !pid_list_has(tree, (pid_t)column(line, COLUMN_CREATOR)))
        return 0;
    return column(line, COLUMN_RESIDENT);
}

static uint64_t segments_bytes(const struct pid_list *tree)
{
    char text[8192];
    size_t kept = 0;
    uint64_t bytes = 0;
    bool heading = true;
    int file = open("/proc/sysvipc/shm", O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return 0;
    for (ssize_t size; (size = read(file, text + kept, sizeof text - 1 - kept)) > 0;) {
        size_t length = kept + (size_t)size;
        text[length] = 0;
        char *line = text;
        for (char *end; (end = strchr(line, '\n')) != NULL; line = end + 1) {
            if (!heading)
                bytes += segment_bytes(line, tree);
            heading = false;
        }
        kept = length - (size_t)(line - text);
        memmove(text, line, kept);
        if (kept >= sizeof text - 1)
            break;
    }
    close(file);
    return bytes;
}

uint64_t shm_shared_bytes(const struct pid_list *tree)
{
    return scratch_bytes() + segments_bytes(tree);
}

struct files {
    struct stat *at;
    size_t count;
    size_t room;
};

static void add_file(struct files *files, const struct stat *status)
{
    if (files->count == files->room) {
        size_t room = files->room > 0 ? files->room * 2 : 64;
        struct stat *larger = realloc(files->at, room * sizeof *larger);
        if (larger == NULL)
            return;
        files->at = larger;
        files->room = room;
    }
    files->at[files->count++] = *status;
}

static void add_memfds_of(pid_t pid, struct files *files, size_t *looks)
{
    char path[64], name[16];
    struct pid_list numbers = {0};
    proc_path(path, pid, "fd", -1);
    int folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0)
        return;
    list_numbers(folder, &numbers, DESCRIPTORS_MAX - *looks);
    pid_list_add(&numbers, 0); /* the list leaves it out */
    for (size_t i = 0; i < numbers.count && *looks < DESCRIPTORS_MAX; i++, ++*looks) {
        struct stat status;
        char *p = name + sizeof name - 1;
        pid_t rest = numbers.at[i];
        *p = 0;
        do
            *--p = (char)('0' + rest % 10);
        while ((rest /= 10) > 0);
        if (fstatat(folder, p, &status, 0) == 0 && status.st_dev == memory_device)
            add_file(files, &status);
    }
    free(numbers.at);
    close(folder);
}

static int by_inode(const void *a, const void *b)
{
    ino_t left = ((const struct stat *)a)->st_ino, right = ((const struct stat *)b)->st_ino;
    return left < right ? -1 : left > right;
}

uint64_t shm_memfd_bytes(const struct pid_list *tree)
{
    struct files files = {0};
    uint64_t bytes = 0;
    size_t looks = 0;
    if (memory_device == 0)
        return 0;
    for (size_t i = 0; i < tree->count && looks < DESCRIPTORS_MAX; i++)
        add_memfds_of(tree->at[i], &files, &looks);
    if (files.count > 0)
        qsort(files.at, files.count, sizeof *files.at, by_inode);
    for (size_t i = 0; i < files.count; i++)
        if (i == 0 || files.at[i].st_ino != files.at[i - 1].st_ino)
            bytes += (uint64_t)files.at[i].st_blocks * 512;
    free(files.at);
    return bytes;
}
