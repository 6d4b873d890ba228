/* Whether anything in this network namespace listens at a port, on any address. */
#include "evidence.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define TABLE_MAX 65536
#define TCP_LISTEN 0x0a

static char table[TABLE_MAX];

static size_t read_table(const char *path)
{
    size_t length = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    for (ssize_t n; length < sizeof table - 1; length += (size_t)n) {
        n = read(fd, table + length, sizeof table - 1 - length);
        if (n <= 0)
            break;
    }
    close(fd);
    table[length] = 0;
    return length;
}

static unsigned hex(const char *at)
{
    unsigned value = 0;
    for (; (*at >= '0' && *at <= '9') || (*at >= 'A' && *at <= 'F'); at++)
        value = value * 16 + (unsigned)(*at <= '9' ? *at - '0' : *at - 'A' + 10);
    return value;
}

/* A row: "  0: LOCAL:PORT REMOTE:PORT STATE …", after a row of headings. */
static bool table_has(const char *path, uint16_t port, bool any_state)
{
    if (read_table(path) == 0)
        return false;
    for (const char *row = strchr(table, '\n'); row != NULL; row = strchr(row + 1, '\n')) {
        const char *number = strchr(row, ':');
        const char *local = number != NULL ? strchr(number + 1, ':') : NULL;
        const char *remote = local != NULL ? strchr(local, ' ') : NULL;
        const char *state = remote != NULL ? strchr(remote + 1, ' ') : NULL;
        if (state == NULL)
            return false;
        if (hex(local + 1) == port && (any_state || hex(state + 1) == TCP_LISTEN))
            return true;
    }
    return false;
}

bool port_is_served(uint16_t port)
{
    return table_has("/proc/self/net/tcp", port, false) ||
           table_has("/proc/self/net/tcp6", port, false) ||
           table_has("/proc/self/net/udp", port, true) ||
           table_has("/proc/self/net/udp6", port, true);
}
