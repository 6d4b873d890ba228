/* One process as /proc shows it. A process may end at any moment; then reading fails. */
#include "process_tree.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

static char *append(char *at, const char *text)
{
    size_t length = strlen(text);
    memcpy(at, text, length + 1);
    return at + length;
}

static char *append_number(char *at, uint32_t number)
{
    char digits[12], *p = digits + sizeof digits - 1;
    *p = 0;
    do
        *--p = (char)('0' + number % 10);
    while ((number /= 10) > 0);
    return append(at, p);
}

void proc_path(char into[64], pid_t pid, const char *name, int number)
{
    char *at = append(append(append_number(append(into, "/proc/"), (uint32_t)pid), "/"), name);
    if (number >= 0)
        append_number(at, (uint32_t)number);
}

ssize_t procstat_text(pid_t pid, const char *name, char *buffer, size_t size)
{
    char path[64];
    proc_path(path, pid, name, -1);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    ssize_t length = read(fd, buffer, size - 1);
    int error = errno;
    close(fd);
    errno = error;
    if (length >= 0)
        buffer[length] = 0;
    return length;
}

static uint64_t parse_number(const char **at)
{
    const char *p = *at;
    uint64_t value = 0;
    while (*p == ' ' || *p == '\t')
        p++;
    bool negative = *p == '-';
    p += negative;
    while (*p >= '0' && *p <= '9')
        value = value * 10 + (uint64_t)(*p++ - '0');
    *at = p;
    return negative ? (uint64_t)0 - value : value;
}

static uint64_t ticks_to_us(uint64_t ticks)
{
    static uint64_t us_per_tick;
    if (us_per_tick == 0)
        us_per_tick = 1000000u / (uint64_t)sysconf(_SC_CLK_TCK);
    return ticks * us_per_tick;
}

bool procstat_read(pid_t pid, struct process_stat *stat)
{
    char text[1024];
    if (procstat_text(pid, "stat", text, sizeof text) <= 0)
        return false;
    /* The name in parentheses may itself contain any of ") S 1". */
    const char *p = strrchr(text, ')');
    if (p == NULL || p[1] != ' ' || p[2] == 0)
        return false;
    stat->state = p[2];
    p += 3;
    stat->parent = (pid_t)parse_number(&p);
    stat->group = (pid_t)parse_number(&p);
    parse_number(&p); /* session */
    parse_number(&p); /* terminal */
    stat->foreground_group = (pid_t)parse_number(&p);
    for (int skipped = 0; skipped < 5; skipped++)
        parse_number(&p); /* flags and page faults */
    stat->own_cpu_us = ticks_to_us(parse_number(&p));
    stat->own_cpu_us += ticks_to_us(parse_number(&p));
    stat->waited_cpu_us = ticks_to_us(parse_number(&p));
    stat->waited_cpu_us += ticks_to_us(parse_number(&p));
    return true;
}

static bool field_kib(const char *text, const char *name, uint64_t *bytes)
{
    const char *p = strstr(text, name);
    if (p == NULL)
        return false;
    p += strlen(name);
    *bytes = parse_number(&p) * 1024;
    return true;
}

/* Shared memory counts: pages mapped MAP_SHARED are memory like any other, and statm hides them. */
struct process_memory procstat_memory_bound(pid_t pid)
{
    char text[4096];
    struct process_memory memory = {0};
    if (procstat_text(pid, "status", text, sizeof text) <= 0)
        return memory;
    field_kib(text, "\nRssAnon:", &memory.anonymous);
    field_kib(text, "\nRssShmem:", &memory.shared);
    return memory;
}

bool procstat_memory_share(pid_t pid, struct process_memory *memory)
{
    char text[2048];
    *memory = (struct process_memory){0};
    if (procstat_text(pid, "smaps_rollup", text, sizeof text) <= 0)
        return false;
    if (field_kib(text, "\nPss_Anon:", &memory->anonymous) &&
        field_kib(text, "\nPss_Shmem:", &memory->shared))
        return true;
    return field_kib(text, "\nPss:", &memory->anonymous);
}
