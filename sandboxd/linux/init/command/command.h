/* A command of the sandbox: its table, reaper, child and reports. */
#ifndef SANDBOXD_COMMAND_H
#define SANDBOXD_COMMAND_H

#include "../init.h"
#include "../evidence/evidence.h"
#include "../process_tree/process_tree.h"

#include <poll.h>

struct start_state;

/* A short command has ended by then: its start is reported together with its end. */
#define START_AFTER_MS 3

/* report.c: messages on a command's channel to the daemon. The resource usage of wait4, as it is sent: */
struct usage {
    uint64_t user_us;
    uint64_t system_us;
    uint64_t maxrss_bytes;
};

struct usage usage_of(const struct rusage *rusage);
void usage_add(struct usage *total, const struct usage *more);
bool send_exited(int channel, int status, const struct usage *usage, bool may_block);
bool send_left(int channel, const struct left *left, bool may_block);
bool send_gone(int channel, const struct usage *usage, bool may_block);
bool send_started(int channel, pid_t pid, int master, bool may_block);
bool send_limit(int channel, uint32_t kind, bool may_block);
bool send_notified(int channel, const struct endpoint *end);
bool send_looked_up(int channel, const char *name);
bool send_refused_peer(int channel, const char *path);
bool send_refused_socket(int channel, uint32_t kind);
bool send_refused(int channel, uint32_t count, const uint8_t *items, size_t size);
bool send_killed_call(int channel, uint32_t number);
/* Private file systems without space, a bit for each: a write most likely failed. `before`: they had none when the
 * command began. */
void send_full(int channel, uint32_t full, bool before, bool may_block);
/* At the end of a command. */
void report_full(int channel, uint32_t before, int status, bool may_block);
bool send_exec_failed(int channel, uint32_t stage, int error, const char *path, bool may_block);

/* Then messages are handled: processes that fork and exit fast would keep the init and the reaper busy.
 * Many, because zombies make the next steps slow. */
#define REAPED_AT_ONCE 16384

/* reaper.c */

enum reaper_exit {
    REAPER_DONE = 0,
    REAPER_PROTOCOL_ERROR = 3,
    REAPER_UNUSED = 4,
    REAPER_LOST = 5,
};

noreturn void reaper_run(const struct exec_request *request, struct start_state *start_state, int signals,
                         pid_t init);

/* First, so that its processes stay below it. False with errno. */
bool reaper_subreaper(pid_t init);

/* file_server.c: what a process with EXEC_FILES does in place of a program */

noreturn void file_server(void);

/* child.c, path_search.c, pty.c */

/* link: to the reaper that will trace it; -1 unless EXPLAIN. */
noreturn void child_run(const struct exec_request *request, struct start_state *start_state, int terminal,
                        int report, int link);

/* The rest of it where there is a link, in a program of its own. The command line is behind the option. */
#define TRACED_OPTION "--traced"
noreturn void child_traced(char **argv);

struct exec_report {
    uint32_t stage;
    int32_t error;
    char path[WIRE_TEXT_MAX];
};

/* Returns when it was executed, or has failed: `failure` is NULL, or valid until the next one. -1 with errno.
 * Not for EXEC_EXPLAIN, whose child needs its reaper, nor for EXEC_FILES, which executes nothing. */
pid_t child_vfork(const struct exec_request *request, struct start_state *start_state, int terminal,
                  const struct exec_report **failure);

/* Returns only on failure, with errno; tried is the path that the error is about. */
void search_and_exec(char **argv, char **env, char *tried, size_t size);
bool pty_open(uint16_t rows, uint16_t columns, bool echo, int *master, int *terminal);

/* table.c: the commands of this sandbox, as the init sees them */

/* Far below the usual 1024 descriptors: receiving must never fail for lack of one. */
#define COMMANDS_MAX 512

struct command {
    struct command *next;
    pid_t reaper;
    int channel;
    uint32_t flags;
    struct start_state *start_state; /* in memory that the reaper shares */
    struct limit_watch watch;
    struct attempts *attempts;
    uint64_t look_due_ms; /* whether it was stopped before its exec */
    /* The rest is for a command without a reaper, which the init looks after. */
    bool lone;
    struct start_state own_state; /* if it never had one */
    bool verified;
    uint64_t start_due_ms; /* STARTED is sent then, unless it has ended */
    bool channel_ended;
    bool gone_reported;
    bool ending;
    uint64_t left_until_ms; /* what it left may end by itself */
    bool main_ended;
    bool failed;
    int main_status;
    struct usage main_usage;
    struct usage tree_usage;
};

/* Takes over the descriptors of the request. payload: the message as it came, or NULL. */
void commands_start(const struct exec_request *request, const uint8_t *payload, uint32_t length,
                    int signals);
/* NULL, or what is wrong: then the sandbox must end. */
/* `unreaped`: call it again. */
const char *commands_reap(bool *hole, bool *unreaped);
struct command *commands_first(void);
void command_drop(struct command *command);
/* Not among the commands yet, or no longer. */
struct command *command_new(bool lone);
void command_free(struct command *command);

/* prefork.c: the next command's reaper */

void prefork_permit(void);
void prefork_make(int signals);
struct command *prefork_waiting(void);
void prefork_lost(void);
/* The command that uses the prefork, or NULL: there is none, or it does not fit. */
struct command *prefork_use(const struct exec_request *request, const uint8_t *payload,
                          uint32_t length);
void prefork_soon(void);
/* Until prefork_make should be called; -1: not at all. */
int prefork_timeout_ms(void);

/* stopped_start.c: commands that another one stopped before their exec */

void stopped_start_watch(struct command *command);
void stopped_starts_end(void);
int stopped_starts_timeout_ms(void);

/* lone.c: commands that the init looks after itself, and those whose reaper was killed */

/* Whether this command needs no reaper. */
bool lone_fits(const struct exec_request *request);
bool lone_start(struct command *command, const struct exec_request *request);
void lone_take(struct command *command, const struct usage *reaper_usage);
void lone_reaped(pid_t pid, int status, const struct usage *usage);
/* Whether its channel is to be read. */
bool lone_polled(const struct command *command);
const char *lone_receive(struct command *command);
void lone_advance(void);
int lone_timeout_ms(void);

#endif
