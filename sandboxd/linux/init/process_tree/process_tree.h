/* The processes below one process: reading, killing, limits. */
#ifndef SANDBOXD_PROCESS_TREE_H
#define SANDBOXD_PROCESS_TREE_H

#include "../init.h"

/* watchdog.c */

/* Forks: the child continues as the init, the parent becomes its watchdog. False with errno. */
bool guard_stay_behind(int control, int signals);

/* stat.c: one process as /proc shows it */

struct process_stat {
    char state;
    pid_t parent;
    pid_t group;
    pid_t foreground_group;
    uint64_t own_cpu_us;
    uint64_t waited_cpu_us;
};

bool procstat_read(pid_t pid, struct process_stat *stat);
struct process_memory {
    uint64_t anonymous;
    uint64_t shared;
};

/* Anonymous and shared-memory pages, every mapping counted in full. */
struct process_memory procstat_memory_bound(pid_t pid);
/* The same with each page divided by its users; false where the kernel does not tell. */
bool procstat_memory_share(pid_t pid, struct process_memory *memory);
/* "/proc/PID/name", and after it the number unless it is negative. */
void proc_path(char into[64], pid_t pid, const char *name, int number);
/* A whole small file of /proc, NUL-terminated; -1 when it cannot be read. */
ssize_t procstat_text(pid_t pid, const char *name, char *buffer, size_t size);

/* walk.c: everything below this process */

struct pid_list {
    pid_t *at;
    size_t count;
    size_t room;
};

/* In a pid namespace of our own /proc lists nothing but the sandbox: one scan is cheaper. */
void procs_prefer_scan(void);
/* Whether that is so: then kill(-1) reaches the sandbox and nothing else. */
bool procs_have_namespace(void);
/* Parents before their children. Trees that start at a pid in except are left out. */
void procs_below(struct pid_list *list, const struct pid_list *except);
/* The same, and each is stopped on sight. */
void procs_stop_below(struct pid_list *list, const struct pid_list *except);
void pid_list_add(struct pid_list *list, pid_t pid);
bool pid_list_has(const struct pid_list *list, pid_t pid);
bool signal_listed(const struct pid_list *list, pid_t pid, int number);

/* A look at a descriptor of another process takes microseconds, and a command can have millions of them: so many
 * are looked at, and the init is not kept from its other work. */
enum { DESCRIPTORS_MAX = 16384 };
/* The entries of a directory that are numbers; not many more than `most`. */
void list_numbers(int directory, struct pid_list *numbers, size_t most);

/* shm.c: memory that belongs to no process: files in memory, memfds, System V segments */

/* The sandbox's own file systems in memory. Called before Landlock is applied. */
/* What is the same for all clones of a template. */
void shm_look_ahead(void);
void shm_set_up(const char **scratch, uint32_t count);
/* Used in the scratch file systems, and by System V segments of the sandbox (or of the tree). */
uint64_t shm_shared_bytes(const struct pid_list *tree);
/* Held by descriptors of the tree. */
uint64_t shm_memfd_bytes(const struct pid_list *tree);
/* The scratch file systems that have no space left, a bit for each. */
uint32_t shm_full(void);
const char *shm_path(uint32_t number);
/* Whether there are any. */
bool shm_is_limited(void);
/* The one that lacks the space for a range of an open file; 0: it has it, or the file is elsewhere. */
uint32_t shm_cannot_hold(int fd, uint64_t offset, uint64_t length);

/* kill.c */

/* Stops all processes, until a walk finds no new one: a stopped process does not fork. */
void tree_freeze(struct pid_list *list, const struct pid_list *except);
void tree_kill(const struct pid_list *except);
/* Kills all processes of the pid namespace except PID 1 and the caller, in one atomic call. */
bool namespace_stop(void);
/* To the main process's group, and for a pty to the group in the foreground; or to the tree. */
void tree_signal(const struct signal_request *request, pid_t main_pid, bool main_ended, bool pty,
                 const struct pid_list *except);

/* left.c: what a command leaves when it ends */

#define LEFT_GRACE_MS 30

enum { LEFT_NAMES_MAX = 4, LEFT_NAME_MAX = 16 };

/* The different names among them, the first ones. */
struct left {
    uint32_t count;
    uint32_t name_count;
    char names[LEFT_NAMES_MAX][LEFT_NAME_MAX + 1];
};

/* A process, which may be a zombie. */
void left_add(struct left *left, pid_t pid);
/* All that are alive below this process. */
void left_look(struct left *left, const struct pid_list *except);

/* limits.c */

struct limit_watch {
    struct tree_limits limits;
    uint64_t next_check_ms;
    uint64_t deadline_ms;
    unsigned shares_skipped;
    unsigned objects_skipped;
    /* Bytes in memory that belong to no process, as last counted; and those from before. */
    uint64_t objects;
    uint64_t objects_before;
};

/* The command starts now. */
void limits_begin(struct limit_watch *watch, const struct tree_limits *limits);
void limits_postpone(struct limit_watch *watch);
/* The main process has ended: background processes have no deadline. */
void limits_no_deadline(struct limit_watch *watch);
uint64_t now_ms(void);
/* Of two timeouts for poll, where -1 is none. */
int sooner(int a_ms, int b_ms);
int limits_timeout_ms(const struct limit_watch *watch);
/* 0, or the limit_kind that is exceeded; reaped_cpu_us is what no live process accounts for. */
uint32_t limits_check(struct limit_watch *watch, uint64_t reaped_cpu_us,
                      const struct pid_list *except);

/* A page shared by init, reaper and child until the command is executed. */
struct start_state {
    _Atomic pid_t main_pid;
    _Atomic uint32_t stage;
    /* The reaper knows that the program was executed. */
    _Atomic bool executed;
    _Atomic bool started;
    _Atomic bool exit_reported;
    /* The main process has ended with this wait status; the reaper may have reaped it. */
    _Atomic bool status_known;
    _Atomic int main_status;
    /* The sandbox has, or had, other commands at the same time. */
    _Atomic bool shared;
};

#endif
