/*
 * Limits for a whole tree, by looking at it every LIMITS_PERIOD_MS.
 *
 * Best effort where no cgroup is delegated: rlimits count each process alone. Memory is first
 * bounded from above cheaply; only what exceeds the limit is measured again with shared pages
 * divided among their users, since a fork's copy-on-write pages would count many times over.
 */
#include "init.h"

#include <stdlib.h>
#include <time.h>

/* Measuring shares walks page tables: a tree that was under its limit is not measured every time. */
#define SHARES_EVERY 4

bool limits_any(const struct tree_limits *limits)
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

int limits_timeout_ms(const struct limit_watch *watch)
{
    if (!limits_any(&watch->limits))
        return -1;
    uint64_t now = now_ms();
    return watch->next_check_ms > now ? (int)(watch->next_check_ms - now) : 0;
}

static bool cpu_exceeded(uint64_t limit_us, uint64_t used_us, const struct pid_list *tree)
{
    struct process_stat stat;
    for (size_t i = 0; i < tree->count; i++)
        if (procstat_read(tree->at[i], &stat))
            used_us += stat.own_cpu_us + stat.waited_cpu_us;
    return used_us > limit_us;
}

static bool memory_exceeded(struct limit_watch *watch, const struct pid_list *tree)
{
    uint64_t bound = 0, measured = 0;
    for (size_t i = 0; i < tree->count; i++)
        bound += procstat_memory_bound(tree->at[i]);
    if (bound <= watch->limits.memory_bytes) {
        watch->shares_skipped = 0;
        return false;
    }
    if (watch->shares_skipped > 0) {
        watch->shares_skipped--;
        return false;
    }
    for (size_t i = 0; i < tree->count; i++) {
        uint64_t share = 0;
        if (!procstat_memory_share(tree->at[i], &share))
            share = procstat_memory_bound(tree->at[i]);
        measured += share;
    }
    if (measured <= watch->limits.memory_bytes)
        watch->shares_skipped = SHARES_EVERY - 1;
    return measured > watch->limits.memory_bytes;
}

uint32_t limits_check(struct limit_watch *watch, uint64_t reaped_cpu_us,
                      const struct pid_list *except)
{
    const struct tree_limits *limits = &watch->limits;
    struct pid_list tree = {0};
    uint32_t exceeded = 0;
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
    watch->next_check_ms = now_ms() + LIMITS_PERIOD_MS;
    return exceeded;
}
