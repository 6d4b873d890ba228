/*
 * What the files of the init share, one section for each file.
 *
 * Three kinds of processes run this program. The init holds the control socket and outlives every
 * command. It forks a reaper for each command: the subreaper of that command's tree. The reaper
 * starts the child that becomes the command; in a pid namespace the init does it itself for a command
 * that is alone. None of them is dumpable, so the command (same uid) can take neither their memory nor
 * their descriptors.
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

#if defined __x86_64__
#define NATIVE_ARCH AUDIT_ARCH_X86_64
#elif defined __aarch64__
#define NATIVE_ARCH AUDIT_ARCH_AARCH64
#endif

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
/* A count of items of at least item_bytes each, bounded by the rest of the payload. */
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

/* Where no message is being handled. */
void wire_forget(void);

/* memory.c */

/* Of a buffer that is empty now and then: no page of it has anything else. */
#define OWN_PAGES __attribute__((aligned(4096)))

/* Those pages that lie in it wholly are zero afterwards. */
void memory_forget(void *at, size_t size);
void memory_give_back(void);

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
    const char **scratch;
    uint32_t scratch_count;
    struct inode_check *sockets;
    uint32_t socket_count;
    int ruleset;
    int cgroup;
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
    /* From the start to the kill, if the daemon has not ended the command by then. */
    uint64_t wall_ms;
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
/* `passed`: with CLONE the control socket of the new sandbox, with ENTER a cgroup.procs. */
const char *decode_for_template(struct message *message, int *passed);
void free_setup(struct setup_request *request);
void free_exec(struct exec_request *request);

/* control.c */

/* The control socket that the command line names; -1 when there is none. */
int control_open(int argc, char **argv);

/* attach_bridge.c */

/* In the init that is forked: its control socket. PID 1 stays behind and does not return. */
int attach_bridge_open(int argc, char **argv);

/* template.c */

/* Returns in each clone, with its control socket; in the template it ends with the daemon's end. */
int template_serve(int argc, char **argv);
/* In a clone, last: nothing has happened in its network namespace (template_networks.c). */
void networks_return(void);

/* devices.c */

/* Each is a mount already. */
bool devices_protect(void);
/* Executes argv where they are. */
noreturn void devices_run(char **argv);

/* fds.c */

void close_from(unsigned first);
/* Closes everything above stderr but these; -1 entries are ignored, the array is sorted in place. */
void close_all_but(int *keep, size_t count);
void stdio_to_null(void);

/* setup.c: checks that the sandbox is the planned one, then applies Landlock */

struct setup_failure {
    uint32_t stage;
    int error;
    const char *detail;
};

bool setup_apply(const struct setup_request *request, struct setup_failure *failure);

/* mount_watch.c */

/* Both answer a descriptor to poll for POLLPRI, or -1 with errno. */
int mounts_open(void);
bool mounts_snapshot(int mountinfo);
/* The id of the mount that the snapshot has at this path, and that nothing covers; 0 where it has none. */
uint64_t mounts_id(const char *point);
/* NULL while the mounts are those of the snapshot; else the mount point that was lost or added. */
const char *mounts_changed(int mountinfo);

/* Of a template. Reads its table; false without one, or where it is not like the one before. */
bool mounts_keep(int mountinfo, bool same_as_before);
size_t mounts_kept(void);
/* Its mounts at this path and below are hidden in clones, without those that are moved: these and what is
 * in them. */
void mounts_hide(const char *folder, char *const *moved, int moved_count);
bool mounts_hidden(size_t number);
const char *mounts_point(size_t number);

/* mount_copies.c */

enum { LISTED_MAX = 4096 };

/* In a clone, before it mounts anything. */
void copies_begin(void);
/* When its mounts are known. */
void copies_forget(void);
/* Whether the mounts with these ids are the template's in their order, and then those of the clone. */
bool copies_known(const uint64_t *listed, long count);
/* As mounts_changed, by what is listed `now`. */
const char *copies_changed(const uint64_t *listed, long count, const uint64_t *now, long now_count);

/* mount_check.c */

/* The ids of all mounts, which are never used twice; -1 where the kernel has no listmount, or there are as many
 * as there is room for. */
long list_mounts(uint64_t *ids, size_t most);
/* Begins to watch; `on_lost` is called in the init when a report finds a hole. `count` paths are to be
 * added. `private`: mounts of the host do not get in, so the snapshot can be taken later. */
bool mount_check_begin(int mountinfo, uint32_t count, bool private, void (*on_lost)(const char *what));
/* Whether the path is the root of a mount, and the inode that is named unless both numbers are 0.
 * It is checked again by each of the functions below. */
bool mount_check_add(const struct inode_check *check);
/* The path at which a planned mount is missing or replaced, or a new one appeared; else NULL. */
const char *mount_check_hole(void);
/* The same after an event of the descriptor. */
const char *mount_check_event(int mountinfo);
/* The same for what the table of mounts shows, right after each path was added. */
const char *mount_check_table(void);
/* Takes the snapshot, unless it was: right after READY. Does not return with a hole. */
void mount_check_settle(void);
/* Before an exit is reported. Does not return with a hole: a reaper ends, and the init then ends
 * the sandbox. */
void mount_check_demand(void);

/* main.c */

/* In a pid namespace, exiting kills all processes; otherwise they are killed before this returns. */
void kill_everything(void);
/* Of its descriptors, session and name; a clone has let go of them in its template. */
void let_go_of_caller(int control);

enum init_exit { INIT_DONE = 0, INIT_SETUP_FAILED = 1, INIT_PROTOCOL_ERROR = 2, INIT_LOST = 3 };

#endif
