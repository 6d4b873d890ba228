/*
 * What the files of the init share, one section for each file.
 *
 * Three kinds of processes run this program. The init holds the control socket and outlives every
 * command. It forks a keeper for each command: the subreaper of that command's tree. The keeper
 * forks the child that becomes the command. None of them is dumpable, so the command (same uid)
 * can take neither their memory nor their descriptors.
 */
#ifndef SANDBOXD_INIT_H
#define SANDBOXD_INIT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdnoreturn.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "wire.h"

/* wire.c: one message in, one message out, and bounded reading of what is in it */

struct message {
    uint8_t type;
    uint8_t *payload;
    uint32_t length;
    int fds[WIRE_FDS_MAX];
    unsigned fd_count;
    void *owned;
};

enum receipt { RECEIPT_MESSAGE, RECEIPT_NOTHING, RECEIPT_END, RECEIPT_MALFORMED };

enum receipt wire_receive(int socket, struct message *message);
void wire_release(struct message *message);
/* fd is passed along unless it is -1; a send that may not block gives up instead. */
bool wire_send(int socket, uint8_t type, const void *payload, size_t length, int fd, bool may_block);
bool wire_send_fds(int socket, uint8_t type, const void *payload, size_t length, const int *fds,
                   unsigned count, bool may_block);

struct cursor {
    uint8_t *at;
    uint8_t *end;
    bool bad;
};

uint16_t take_u16(struct cursor *cursor);
uint32_t take_u32(struct cursor *cursor);
uint64_t take_u64(struct cursor *cursor);
/* NUL-terminated in place; "" when the cursor is bad. */
char *take_string(struct cursor *cursor);
/* A count of items of at least item_bytes each: never more than the rest of the payload can hold. */
uint32_t take_count(struct cursor *cursor, size_t item_bytes);
bool cursor_done(const struct cursor *cursor);

struct writer {
    uint8_t bytes[WIRE_TEXT_MAX + 64];
    size_t length;
};

void put_u32(struct writer *writer, uint32_t value);
void put_u64(struct writer *writer, uint64_t value);
void put_text(struct writer *writer, const char *text);
void put_bytes(struct writer *writer, const void *bytes, size_t size);

/* messages.c: what the daemon asks for, decoded and checked */

struct inode_check {
    uint64_t device;
    uint64_t inode;
    const char *path;
};

struct path_rule {
    const char *path;
    uint64_t access;
};

struct setup_request {
    uint32_t flags;
    struct inode_check *checks;
    uint32_t check_count;
    struct path_rule *rules;
    uint32_t rule_count;
    int ruleset;
    int filter;
};

struct rlimit_request {
    uint32_t resource;
    uint64_t soft;
    uint64_t hard;
};

struct tree_limits {
    uint64_t memory_bytes;
    uint64_t cpu_us;
    uint32_t processes;
};

struct exec_request {
    uint32_t flags;
    uint16_t rows;
    uint16_t columns;
    const char *cwd;
    char **argv;
    char **env;
    struct rlimit_request *rlimits;
    uint32_t rlimit_count;
    struct tree_limits limits;
    int channel;
    int filter;
    int cgroup;
    int terminal;
    int stdio[3];
};

struct signal_request {
    int number;
    uint32_t scope;
};

/* Each answers NULL, or what is wrong with the message. */
const char *decode_setup(struct message *message, struct setup_request *request);
const char *decode_exec(struct message *message, struct exec_request *request);
const char *decode_signal(struct message *message, struct signal_request *request);
void free_setup(struct setup_request *request);
void free_exec(struct exec_request *request);

/* connect.c */

/* The control socket that the command line names; -1 when there is none. */
int control_open(int argc, char **argv);

/* carried.c */

/* In the init that is forked: its control socket. PID 1 stays behind and does not return. */
int carried_open(int argc, char **argv);

/* descriptors.c */

void close_from(unsigned first);
/* Closes everything above stderr but these; -1 entries are ignored, the array is sorted in place. */
void close_all_but(int *keep, size_t count);
void stdio_to_null(void);

/* setup.c: the once-only part: is this the sandbox that was meant, then Landlock */

struct setup_failure {
    uint32_t stage;
    int error;
    const char *detail;
};

bool setup_apply(const struct setup_request *request, struct setup_failure *failure);

/* guard.c */

/* The caller goes on as a child, the init; its parent watches over it. False with errno. */
bool guard_stay_behind(int control, int signals);

/* mounts.c */

/* Both answer a descriptor to poll for POLLPRI, or -1 with errno. */
int mounts_open(void);
bool mounts_snapshot(int mountinfo);
/* NULL while the mounts are those of the snapshot; else the mount point that was lost or added. */
const char *mounts_changed(int mountinfo);

/* tracee.c */

/* How much could be read, 0 if nothing. */
size_t tracee_read(pid_t pid, uint64_t address, void *into, size_t size);
/* False if it is longer, or not there. */
bool tracee_string(pid_t pid, uint64_t address, char *into, size_t size);

/* notify.c, lookups.c, ports.c, noticed.c: connections where the network is closed */

#if defined __x86_64__
#define NATIVE_ARCH AUDIT_ARCH_X86_64
#elif defined __aarch64__
#define NATIVE_ARCH AUDIT_ARCH_AARCH64
#endif

#define LOOKUP_NAME_MAX 253

struct endpoint {
    uint32_t family;
    uint32_t port;
    uint8_t address[16];
};

/* The descriptor to poll, or -1: a kernel without notifications, or somebody listens already. */
int notify_listen(void);
void notify_serve(int listener);
bool lookup_name(const uint8_t *packet, size_t size, char name[LOOKUP_NAME_MAX + 1]);
bool port_is_served(uint16_t port);

struct command;
struct command *command_of(pid_t pid);
void command_notified(struct command *command, const struct endpoint *end);
void command_looked_up(struct command *command, const char *name);

#define NOTICED_MAX 64

struct noticed {
    unsigned end_count;
    unsigned name_count;
    struct endpoint ends[NOTICED_MAX];
    char names[NOTICED_MAX][LOOKUP_NAME_MAX + 1];
};

/* calls.c, refusals.c, trace.c: explain mode */

#define NO_ARGUMENT (-1)
#define SOCKET_ADDRESS (-2)

/* What a call wants when that depends on its arguments. */
enum { WANTS_BY_FLAGS = 100, WANTS_BY_HOW, WANTS_BY_MODE };

/* Numbers of arguments; a second path only if something is wanted of it. */
struct call_shape {
    long number;
    uint32_t wanted;
    int directory;
    int path;
    uint32_t second_wanted;
    int second_directory;
    int second_path;
};

const struct call_shape *call_shapes(size_t *count);
const struct call_shape *call_shape_of(uint64_t number);
uint32_t call_wants(const struct call_shape *shape, pid_t pid, const uint64_t *args);

void refusals_failed(int channel, pid_t pid, const struct call_shape *shape, const uint64_t *args,
                     int error);
void refusals_opened(int channel, pid_t pid, const struct call_shape *shape, const uint64_t *args,
                     int fd);
void refusals_flush(int channel);
/* Until what is held back should be told; -1: nothing is. */
int refusals_timeout_ms(void);

bool trace_load_filter(void);
/* The child's side and the keeper's of the moment at which it is seized. */
bool trace_offer(int link);
void trace_seize(pid_t pid, int link);
void trace_stopped(int channel, pid_t thread, int status);
void trace_forget(pid_t thread);

/* procstat.c: one process as /proc shows it */

struct process_stat {
    char state;
    pid_t parent;
    pid_t group;
    pid_t foreground_group;
    uint64_t own_cpu_us;
    uint64_t waited_cpu_us;
};

bool procstat_read(pid_t pid, struct process_stat *stat);
/* Anonymous and shared-memory pages, every mapping counted in full. */
uint64_t procstat_memory_bound(pid_t pid);
/* The same with each page divided by its users; false where the kernel does not tell. */
bool procstat_memory_share(pid_t pid, uint64_t *bytes);
/* "/proc/PID/name", and after it the number unless it is negative. */
void proc_path(char into[64], pid_t pid, const char *name, int number);
/* A whole small file of /proc, NUL-terminated; -1 when it cannot be read. */
ssize_t procstat_text(pid_t pid, const char *name, char *buffer, size_t size);

/* procs.c: everything below this process */

struct pid_list {
    pid_t *at;
    size_t count;
    size_t room;
};

/* In a pid namespace of our own /proc lists nothing but the sandbox: one scan is cheaper. */
void procs_prefer_scan(void);
/* Parents before their children. Trees that start at a pid in except are left out. */
void procs_below(struct pid_list *list, const struct pid_list *except);
void pid_list_add(struct pid_list *list, pid_t pid);
bool pid_list_has(const struct pid_list *list, pid_t pid);

/* kill.c */

/* Stops all, until a walk finds nobody new: what is stopped does not fork. */
void tree_freeze(struct pid_list *list, const struct pid_list *except);
void tree_kill(const struct pid_list *except);
/* To the main process's group, and for a pty to the group in the foreground; or to the tree. */
void tree_signal(const struct signal_request *request, pid_t main_pid, bool main_ended, bool pty,
                 const struct pid_list *except);

/* limits.c */

#define LIMITS_PERIOD_MS 50

struct limit_watch {
    struct tree_limits limits;
    uint64_t next_check_ms;
    unsigned shares_skipped;
};

bool limits_any(const struct tree_limits *limits);
uint64_t now_ms(void);
/* Of two timeouts for poll, where -1 is none. */
int sooner(int a_ms, int b_ms);
int limits_timeout_ms(const struct limit_watch *watch);
/* 0, or the limit_kind that is exceeded; reaped_cpu_us is what no live process accounts for. */
uint32_t limits_check(struct limit_watch *watch, uint64_t reaped_cpu_us,
                      const struct pid_list *except);

/* A page shared by init, keeper and child until the command is executed. */
struct slot {
    _Atomic pid_t main_pid;
    _Atomic uint32_t stage;
    _Atomic bool started;
    _Atomic bool exit_reported;
};

/* reports.c: what a command's channel carries to the daemon. What wait4 says about resources, as it goes over the
 * wire: */
struct usage {
    uint64_t user_us;
    uint64_t system_us;
    uint64_t maxrss_bytes;
};

struct usage usage_of(const struct rusage *rusage);
void usage_add(struct usage *total, const struct usage *more);
bool send_exited(int channel, int status, const struct usage *usage, bool may_block);
bool send_gone(int channel, const struct usage *usage, bool may_block);
bool send_started(int channel, pid_t pid, int master, bool may_block);
bool send_limit(int channel, uint32_t kind, bool may_block);
bool send_notified(int channel, const struct endpoint *end);
bool send_looked_up(int channel, const char *name);
bool send_refused(int channel, uint32_t count, const uint8_t *items, size_t size);
bool send_killed_call(int channel, uint32_t number);
bool send_exec_failed(int channel, uint32_t stage, int error, const char *path, bool may_block);

/* keeper.c */

enum keeper_exit { KEEPER_DONE = 0, KEEPER_PROTOCOL_ERROR = 3, KEEPER_UNUSED = 4 };

noreturn void keeper_run(const struct exec_request *request, struct slot *slot, int signals,
                         pid_t init);

/* The steps of keeper_run, for a keeper that was there before its command. False with errno. */
bool keeper_subreaper(pid_t init);
noreturn void keeper_go_on(const struct exec_request *request, struct slot *slot, int signals,
                           pid_t init, pid_t child, int report);

/* child.c, search.c, pty.c */

/* link: to the keeper that will trace it; -1 unless EXPLAIN. */
noreturn void child_run(const struct exec_request *request, struct slot *slot, int terminal,
                        int report, int link);

/* Loads the filter ahead of the request, which must then have the same one. False with errno. */
bool child_load_ahead(int filter);

struct exec_report {
    uint32_t stage;
    int32_t error;
    char path[WIRE_TEXT_MAX];
};

/* Returns only on failure, with errno; tried is the path that the error is about. */
void search_and_exec(char **argv, char **env, char *tried, size_t size);
bool pty_open(uint16_t rows, uint16_t columns, int *master, int *terminal);

/* commands.c: the commands of this sandbox, as the init sees them */

/* Far below the usual 1024 descriptors: receiving must never fail for want of one. */
#define COMMANDS_MAX 512

struct command {
    struct command *next;
    pid_t keeper;
    int channel;
    uint32_t flags;
    struct slot *slot;
    struct limit_watch watch;
    struct noticed *noticed;
    /* The rest is used when the keeper was killed and the init has taken the command over. */
    bool adopted;
    bool channel_ended;
    bool ending;
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
const char *commands_reap(void);
struct command *commands_first(void);
void command_drop(struct command *command);
/* Not among the commands yet, or no longer. */
struct command *command_new(void);
void command_free(struct command *command);

/* spare.c: the next command's keeper and child */

/* There may be spares; filter: what commands are expected to have, or -1. Takes it over. */
void spare_permit(int filter);
void spare_make(int signals);
struct command *spare_waiting(void);
void spare_lost(void);
/* The command that it has become, or NULL: there is none, or it does not fit. */
struct command *spare_use(const struct exec_request *request, const uint8_t *payload,
                          uint32_t length);
void spare_soon(void);
/* Until spare_make should be called; -1: not at all. */
int spare_timeout_ms(void);

/* adopted.c: commands whose keeper was killed */

void adopted_take(struct command *command, const struct usage *keeper_usage);
void adopted_orphan_reaped(pid_t pid, int status, const struct usage *usage);
const char *adopted_receive(struct command *command);
void adopted_advance(void);
int adopted_timeout_ms(void);

/* main.c */

/* In a pid namespace, exiting kills everybody in it; otherwise nobody is left before this returns. */
void kill_everything(void);

enum init_exit { INIT_DONE = 0, INIT_SETUP_FAILED = 1, INIT_PROTOCOL_ERROR = 2, INIT_LOST = 3 };

#endif
