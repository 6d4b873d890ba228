/*
 * Decodes the daemon's requests, and checks them in full before anything is done.
 *
 * Decoded strings point into the message, which must outlive the request.
 */
#include "init.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

static struct cursor cursor_over(struct message *message)
{
    return (struct cursor){.at = message->payload, .end = message->payload + message->length};
}

/* Ownership of the next descriptor passes to the request; the rest is closed with the message. */
static int take_descriptor(struct message *message)
{
    if (message->fd_count == 0)
        return -1;
    int fd = message->fds[0];
    message->fd_count--;
    memmove(message->fds, message->fds + 1, message->fd_count * sizeof message->fds[0]);
    return fd;
}

static void *allocate(struct cursor *cursor, size_t count, size_t size)
{
    void *items = calloc(count > 0 ? count : 1, size);
    if (items == NULL)
        cursor->bad = true;
    return items;
}

/* Paths of the file systems in memory that are this sandbox's own. */
static void take_scratch(struct cursor *cursor, struct setup_request *request)
{
    uint32_t count = take_count(cursor, 4);
    request->scratch = allocate(cursor, count, sizeof *request->scratch);
    for (uint32_t i = 0; i < count && !cursor->bad; i++)
        request->scratch[i] = take_string(cursor);
    request->scratch_count = count;
}

static struct inode_check *take_checks(struct cursor *cursor, uint32_t *count)
{
    *count = take_count(cursor, 20);
    struct inode_check *checks = allocate(cursor, *count, sizeof *checks);
    for (uint32_t i = 0; i < *count && !cursor->bad; i++) {
        checks[i].device = take_u64(cursor);
        checks[i].inode = take_u64(cursor);
        checks[i].path = take_string(cursor);
    }
    return checks;
}

static void take_rules(struct cursor *cursor, struct setup_request *request)
{
    uint32_t count = take_count(cursor, 12);
    request->rules = allocate(cursor, count, sizeof *request->rules);
    for (uint32_t i = 0; i < count && !cursor->bad; i++) {
        request->rules[i].path = take_string(cursor);
        request->rules[i].access = take_u64(cursor);
    }
    request->rule_count = count;
}

const char *decode_setup(struct message *message, struct setup_request *request)
{
    struct cursor cursor = cursor_over(message);
    memset(request, 0, sizeof *request);
    request->ruleset = request->cgroup = -1;
    request->flags = take_u32(&cursor);
    request->checks = take_checks(&cursor, &request->check_count);
    take_rules(&cursor, request);
    take_scratch(&cursor, request);
    request->sockets = take_checks(&cursor, &request->socket_count);
    if (!cursor_done(&cursor))
        return "malformed SETUP";
    if (request->flags & ~(uint32_t)(SETUP_WATCH_MOUNTS | SETUP_HAS_RULESET | SETUP_REQUIRE_PID1 |
                                     SETUP_GUARD | SETUP_NOTIFY | SETUP_PREFORK |
                                     SETUP_HAS_CGROUP | SETUP_UNIX_PEERS | SETUP_SHARED_NETWORK |
                                     SETUP_SET_GID | SETUP_NO_INET | SETUP_NO_UNIX))
        return "unknown flag in SETUP";
    if ((request->flags & SETUP_HAS_RULESET) == 0 && request->rule_count > 0)
        return "rules without a ruleset in SETUP";
    if ((request->flags & SETUP_HAS_RULESET) && (request->ruleset = take_descriptor(message)) < 0)
        return "no ruleset with SETUP";
    if ((request->flags & SETUP_HAS_CGROUP) && (request->cgroup = take_descriptor(message)) < 0)
        return "no cgroup with SETUP";
    return NULL;
}

void free_setup(struct setup_request *request)
{
    free(request->checks);
    free(request->rules);
    free(request->scratch);
    free(request->sockets);
    request->scratch = NULL;
    request->checks = request->sockets = NULL;
    request->rules = NULL;
}

static char **take_vector(struct cursor *cursor)
{
    uint32_t count = take_count(cursor, 4);
    char **strings = allocate(cursor, (size_t)count + 1, sizeof *strings);
    for (uint32_t i = 0; i < count && !cursor->bad; i++)
        strings[i] = take_string(cursor);
    return strings;
}

static void take_rlimits(struct cursor *cursor, struct exec_request *request)
{
    uint32_t count = take_count(cursor, 20);
    request->rlimits = allocate(cursor, count, sizeof *request->rlimits);
    for (uint32_t i = 0; i < count && !cursor->bad; i++) {
        request->rlimits[i].resource = take_u32(cursor);
        request->rlimits[i].soft = take_u64(cursor);
        request->rlimits[i].hard = take_u64(cursor);
        if (request->rlimits[i].resource >= RLIM_NLIMITS)
            cursor->bad = true;
    }
    request->rlimit_count = count;
}

static bool every_variable_has_a_name(char **env)
{
    for (; *env != NULL; env++)
        if ((*env)[0] == '=' || strchr(*env, '=') == NULL)
            return false;
    return true;
}

static const char *take_exec_descriptors(struct message *message, struct exec_request *request)
{
    request->channel = take_descriptor(message);
    if (request->flags & EXEC_HAS_FILTER)
        request->filter = take_descriptor(message);
    if (request->flags & EXEC_HAS_CGROUP)
        request->cgroup = take_descriptor(message);
    if (request->flags & EXEC_HAS_TERMINAL)
        request->terminal = take_descriptor(message);
    if ((request->flags & EXEC_PTY) == 0)
        for (int i = 0; i < 3; i++)
            request->stdio[i] = take_descriptor(message);
    if (request->flags & EXEC_HAS_STDERR)
        request->stdio[2] = take_descriptor(message);
    bool complete = request->channel >= 0 &&
                    ((request->flags & EXEC_HAS_FILTER) == 0 || request->filter >= 0) &&
                    ((request->flags & EXEC_HAS_CGROUP) == 0 || request->cgroup >= 0) &&
                    ((request->flags & EXEC_HAS_TERMINAL) == 0 || request->terminal >= 0) &&
                    ((request->flags & (EXEC_PTY | EXEC_HAS_STDERR)) == EXEC_PTY ||
                     request->stdio[2] >= 0);
    return complete ? NULL : "descriptors missing with EXEC";
}

static void take_exec_fields(struct cursor *cursor, struct exec_request *request)
{
    request->flags = take_u32(cursor);
    request->rows = take_u16(cursor);
    request->columns = take_u16(cursor);
    request->cwd = take_string(cursor);
    request->argv = take_vector(cursor);
    request->env = take_vector(cursor);
    take_rlimits(cursor, request);
    request->limits.memory_bytes = take_u64(cursor);
    request->limits.cpu_us = take_u64(cursor);
    request->limits.processes = take_u32(cursor);
    request->limits.wall_ms = take_u64(cursor);
}

const char *decode_exec(struct message *message, struct exec_request *request)
{
    struct cursor cursor = cursor_over(message);
    memset(request, 0, sizeof *request);
    request->channel = request->filter = request->cgroup = request->terminal = -1;
    request->stdio[0] = request->stdio[1] = request->stdio[2] = -1;
    take_exec_fields(&cursor, request);
    if (!cursor_done(&cursor))
        return "malformed EXEC";
    if (request->flags & ~(uint32_t)(EXEC_PTY | EXEC_HAS_FILTER | EXEC_KEEP_BACKGROUND |
                                     EXEC_HAS_CGROUP | EXEC_HAS_TERMINAL | EXEC_EXPLAIN |
                                     EXEC_FILES | EXEC_NO_ECHO | EXEC_HAS_STDERR))
        return "unknown flag in EXEC";
    if ((request->flags & (EXEC_HAS_TERMINAL | EXEC_HAS_STDERR)) &&
        (request->flags & EXEC_PTY) == 0)
        return "terminal without PTY in EXEC";
    if (request->argv[0] == NULL)
        return "empty argv in EXEC";
    if (!every_variable_has_a_name(request->env))
        return "environment entry without a name in EXEC";
    return take_exec_descriptors(message, request);
}

void free_exec(struct exec_request *request)
{
    free(request->argv);
    free(request->env);
    free(request->rlimits);
    request->argv = request->env = NULL;
    request->rlimits = NULL;
}

const char *decode_signal(struct message *message, struct signal_request *request)
{
    struct cursor cursor = cursor_over(message);
    request->number = (int)take_u32(&cursor);
    request->scope = take_u32(&cursor);
    if (!cursor_done(&cursor))
        return "malformed SIGNAL";
    if (request->number < 1 || request->number > 64)
        return "no such signal in SIGNAL";
    return request->scope > SCOPE_TREE ? "unknown scope in SIGNAL" : NULL;
}

const char *decode_for_template(struct message *message, int *passed)
{
    *passed = -1;
    if ((message->type != MESSAGE_CLONE && message->type != MESSAGE_ENTER) || message->length != 0)
        return "malformed CLONE or ENTER";
    if (message->fd_count != 1)
        return "not one descriptor with CLONE or ENTER";
    *passed = take_descriptor(message);
    return NULL;
}
