/*
 * Lists all descendants of this process.
 *
 * There are two ways: the children files of each task, or, where the kernel lacks them
 * (CONFIG_PROC_CHILDREN) and where /proc holds little else, the parents of all processes. Neither is
 * atomic: callers that need all processes repeat the walk until nothing changes.
 */
#include "process_tree.h"
#include "../init.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_pidfd_open
#define SYS_pidfd_send_signal 424
#define SYS_pidfd_open 434
#endif

static bool prefer_scan;

void procs_prefer_scan(void)
{
    prefer_scan = true;
}

bool procs_have_namespace(void)
{
    return prefer_scan;
}

void pid_list_add(struct pid_list *list, pid_t pid)
{
    if (list->count == list->room) {
        size_t room = list->room > 0 ? list->room * 2 : 64;
        pid_t *larger = realloc(list->at, room * sizeof *larger);
        /* Processes that do not fit are found by the next walk. */
        if (larger == NULL)
            return;
        list->at = larger;
        list->room = room;
    }
    list->at[list->count++] = pid;
}

bool pid_list_has(const struct pid_list *list, pid_t pid)
{
    if (list == NULL)
        return false;
    for (size_t i = 0; i < list->count; i++)
        if (list->at[i] == pid)
            return true;
    return false;
}

struct directory_entry {
    uint64_t inode;
    int64_t offset;
    unsigned short length;
    unsigned char type;
    char name[];
};

static pid_t number_of(const char *name)
{
    pid_t number = 0;
    for (; *name >= '0' && *name <= '9' && number < 100000000; name++)
        number = number * 10 + (*name - '0');
    return *name == 0 ? number : 0;
}

void list_numbers(int directory, struct pid_list *numbers, size_t most)
{
    char buffer[4096] __attribute__((aligned(8)));
    long size;
    while (numbers->count < most &&
           (size = syscall(SYS_getdents64, directory, buffer, sizeof buffer)) > 0) {
        for (long at = 0; at < size;) {
            struct directory_entry *entry = (struct directory_entry *)(buffer + at);
            pid_t number = number_of(entry->name);
            if (number > 0)
                pid_list_add(numbers, number);
            at += entry->length;
        }
    }
}

static char *write_number(char *at, pid_t number)
{
    char digits[12], *p = digits + sizeof digits;
    do
        *--p = (char)('0' + number % 10);
    while ((number /= 10) > 0);
    size_t length = (size_t)(digits + sizeof digits - p);
    memcpy(at, p, length);
    at[length] = 0;
    return at + length;
}

static void add_children(int file, struct pid_list *list, const struct pid_list *except)
{
    char buffer[1024];
    ssize_t size;
    pid_t pid = 0;
    while ((size = read(file, buffer, sizeof buffer)) > 0) {
        for (ssize_t i = 0; i < size; i++) {
            if (buffer[i] >= '0' && buffer[i] <= '9') {
                pid = pid * 10 + (buffer[i] - '0');
                continue;
            }
            if (pid > 0 && !pid_list_has(except, pid))
                pid_list_add(list, pid);
            pid = 0;
        }
    }
}

/* A child belongs to the thread that forked it. False where the kernel has no children files. */
static bool add_children_of(pid_t parent, struct pid_list *list, const struct pid_list *except)
{
    char path[64] = "/proc/";
    struct pid_list threads = {0};
    strcpy(write_number(path + 6, parent), "/task");
    int tasks = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (tasks < 0)
        return parent != getpid();
    list_numbers(tasks, &threads, SIZE_MAX);
    bool opened_any = false;
    for (size_t i = 0; i < threads.count; i++) {
        strcpy(write_number(path, threads.at[i]), "/children");
        int file = openat(tasks, path, O_RDONLY | O_CLOEXEC);
        if (file < 0)
            continue;
        add_children(file, list, except);
        close(file);
        opened_any = true;
    }
    free(threads.at);
    close(tasks);
    return opened_any || parent != getpid();
}

/* Signals a listed process unless its pid was used again for one outside the tree: the descriptor
 * stays with the process, and its parent is looked up after it was opened. */
bool signal_listed(const struct pid_list *list, pid_t pid, int number)
{
    struct process_stat stat;
    int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (fd < 0)
        return errno != ESRCH && kill(pid, number) == 0;
    bool ours = procstat_read(pid, &stat) &&
                (stat.parent == getpid() || pid_list_has(list, stat.parent));
    bool sent = ours && syscall(SYS_pidfd_send_signal, fd, number, NULL, 0) == 0;
    close(fd);
    return sent;
}

/* stop: each before its children are listed, so that the list is their last. */
static bool walk(struct pid_list *list, const struct pid_list *except, bool stop)
{
    if (!add_children_of(getpid(), list, except))
        return false;
    /* A reused pid could make a cycle; no tree is larger than the kernel's number of pids. */
    for (size_t i = 0; i < list->count && i < (1u << 22); i++) {
        if (!stop || signal_listed(list, list->at[i], SIGSTOP))
            add_children_of(list->at[i], list, except);
    }
    return true;
}

static int by_pid(const void *a, const void *b)
{
    return *(const pid_t *)a - *(const pid_t *)b;
}

/* Whether the parent at index i is this process or one already found (their parent is 0). */
static bool parent_is_found(const struct pid_list *all, const struct pid_list *parents, size_t i)
{
    if (parents->at[i] == getpid())
        return true;
    const pid_t *parent = bsearch(&parents->at[i], all->at, all->count, sizeof *all->at, by_pid);
    return parent != NULL && parents->at[parent - all->at] == 0;
}

/* Repeated until none is added: a child may have a lower pid than its parent after a wrap. */
static void add_found(struct pid_list *list, const struct pid_list *all, struct pid_list *parents,
                      const struct pid_list *except)
{
    for (size_t known = (size_t)-1; known != list->count;) {
        known = list->count;
        for (size_t i = 0; i < all->count; i++) {
            if (parents->at[i] <= 0 || !parent_is_found(all, parents, i))
                continue;
            bool excepted = pid_list_has(except, all->at[i]);
            parents->at[i] = excepted ? -1 : 0;
            if (!excepted)
                pid_list_add(list, all->at[i]);
        }
    }
}

/* No descriptor or no memory: "there is none" would be wrong. With the first process of a pid
 * namespace all others end. */
static void end_if_first(void)
{
    if (getpid() == 1)
        _exit(INIT_LOST);
}

static void scan(struct pid_list *list, const struct pid_list *except)
{
    struct pid_list all = {0}, parents = {0};
    int proc = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (proc < 0) {
        end_if_first();
        return;
    }
    list_numbers(proc, &all, SIZE_MAX);
    close(proc);
    qsort(all.at, all.count, sizeof *all.at, by_pid);
    for (size_t i = 0; i < all.count; i++) {
        struct process_stat stat;
        bool alive = procstat_read(all.at[i], &stat) && stat.parent > 0;
        pid_list_add(&parents, alive ? stat.parent : -1);
    }
    if (parents.count == all.count)
        add_found(list, &all, &parents, except);
    else
        end_if_first();
    free(all.at);
    free(parents.at);
}

void procs_below(struct pid_list *list, const struct pid_list *except)
{
    list->count = 0;
    if (prefer_scan || !walk(list, except, false))
        scan(list, except);
}

void procs_stop_below(struct pid_list *list, const struct pid_list *except)
{
    list->count = 0;
    if (walk(list, except, true))
        return;
    scan(list, except);
    for (size_t i = 0; i < list->count; i++)
        signal_listed(list, list->at[i], SIGSTOP);
}
