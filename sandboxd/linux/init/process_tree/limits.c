/*
 * Limits for a whole tree, checked periodically, and its deadline.
 *
 * Best effort without a cgroup: rlimits count each process alone. Memory is first estimated from above,
 * which is cheap. Only above the limit it is measured with shared pages divided among their users,
 * because copy-on-write pages of forks would count several times.
 */
#include "process_tree.h"

#include <stdlib.h>
#include <time.h>

#define PERIOD_MS 50
/* The interval for a number of processes that only a fork bomb reaches. */
#define SLOW_PERIOD_MS 500
#define MANY_PROCESSES 1024
/* Measuring shares walks page tables: a tree that was under its limit is not measured every time. */
#define SHARES_EVERY 4
/* Looking for memfds means a look at every descriptor. */
#define OBJECTS_EVERY 4

static bool counted(const struct tree_limits *limits)
{
    return limits->memory_bytes > 0 || limits->cpu_us > 0 || limits->processes > 0;
}

uint64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

int sooner(int a_ms, int b_ms)
{
    if (a_ms < 0 || b_ms < 0)
        return a_ms < 0 ? b_ms : a_ms;
    return a_ms < b_ms ? a_ms : b_ms;
}

void limits_postpone(struct limit_watch *watch)
{
    const struct tree_limits *limits = &watch->limits;
    bool slow = limits->memory_bytes == 0 && limits->cpu_us == 0 &&
                limits->processes >= MANY_PROCESSES;
    watch->next_check_ms = counted(limits) ? now_ms() + (slow ? SLOW_PERIOD_MS : PERIOD_MS) : 0;
}

void limits_begin(struct limit_watch *watch, const struct tree_limits *limits)
{
    struct pid_list empty = {0};
    *watch = (struct limit_watch){.limits = *limits};
    if (limits->wall_ms > 0)
        watch->deadline_ms = now_ms() + limits->wall_ms;
    if (limits->memory_bytes > 0)
        watch->objects_before = shm_shared_bytes(&empty);
    limits_postpone(watch);
}

void limits_no_deadline(struct limit_watch *watch)
{
    watch->deadline_ms = 0;
}

/* Until a moment, as a timeout for poll; 0 stands for no moment. */
static int until(uint64_t moment_ms)
{
    if (moment_ms == 0)
        return -1;
    uint64_t now = now_ms(), left = moment_ms > now ? moment_ms - now : 0;
    return left < 1u << 30 ? (int)left : 1 << 30;
}

int limits_timeout_ms(const struct limit_watch *watch)
{
    if (watch->next_check_ms == 0 && watch->deadline_ms == 0)
        return -1;
    return sooner(until(watch->next_check_ms), until(watch->deadline_ms));
}

static bool cpu_exceeded(uint64_t limit_us, uint64_t used_us, const struct pid_list *tree)
{
    struct process_stat stat;
    for (size_t i = 0; i < tree->count; i++)
        if (procstat_read(tree->at[i], &stat))
            used_us += stat.own_cpu_us + stat.waited_cpu_us;
    return used_us > limit_us;
}

static void count_objects(struct limit_watch *watch, const struct pid_list *tree)
{
    if (watch->objects_skipped > 0) {
        watch->objects_skipped--;
        return;
    }
    uint64_t shared = shm_shared_bytes(tree);
    shared -= shared < watch->objects_before ? shared : watch->objects_before;
    watch->objects = shared + shm_memfd_bytes(tree);
    watch->objects_skipped = OBJECTS_EVERY - 1;
}

/* What is mapped of an object is also among the shared pages: the larger of the two counts. */
static uint64_t measured(const struct limit_watch *watch, const struct pid_list *tree)
{
    struct process_memory total = {0};
    for (size_t i = 0; i < tree->count; i++) {
        struct process_memory share;
        if (!procstat_memory_share(tree->at[i], &share))
            share = procstat_memory_bound(tree->at[i]);
        total.anonymous += share.anonymous;
        total.shared += share.shared;
    }
    return total.anonymous + (total.shared > watch->objects ? total.shared : watch->objects);
}

static bool memory_exceeded(struct limit_watch *watch, const struct pid_list *tree)
{
    uint64_t limit = watch->limits.memory_bytes;
    count_objects(watch, tree);
    uint64_t bound = watch->objects;
    for (size_t i = 0; i < tree->count; i++) {
        struct process_memory memory = procstat_memory_bound(tree->at[i]);
        bound += memory.anonymous + memory.shared;
    }
    if (bound <= limit) {
        watch->shares_skipped = 0;
        return false;
    }
    if (watch->shares_skipped > 0) {
        watch->shares_skipped--;
        return false;
    }
    if (measured(watch, tree) > limit)
        return true;
    watch->shares_skipped = SHARES_EVERY - 1;
    return false;
}

uint32_t limits_check(struct limit_watch *watch, uint64_t reaped_cpu_us,
                      const struct pid_list *except)
{
    const struct tree_limits *limits = &watch->limits;
    struct pid_list tree = {0};
    uint32_t exceeded = 0;
    if (until(watch->deadline_ms) == 0)
        return LIMIT_TIMEOUT;
    procs_below(&tree, except);
    /* A walk may meet a process twice when its parent ends meanwhile: count again before killing. */
    if (limits->processes > 0 && tree.count > limits->processes)
        procs_below(&tree, except);
    if (limits->processes > 0 && tree.count > limits->processes)
        exceeded = LIMIT_PROCESSES;
    else if (limits->memory_bytes > 0 && memory_exceeded(watch, &tree))
        exceeded = LIMIT_MEMORY;
    else if (limits->cpu_us > 0 && cpu_exceeded(limits->cpu_us, reaped_cpu_us, &tree))
        exceeded = LIMIT_CPU;
    free(tree.at);
    limits_postpone(watch);
    return exceeded;
}
