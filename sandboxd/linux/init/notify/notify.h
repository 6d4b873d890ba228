/* Calls of commands that the kernel hands to the init (seccomp notifications), which answers them. */
#ifndef SANDBOXD_NOTIFY_H
#define SANDBOXD_NOTIFY_H

#include "../evidence/evidence.h"
#include "../init.h"

#include <sys/syscall.h>

/* Newer than the headers of some systems. */
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif
#ifndef SYS_pidfd_getfd
#define SYS_pidfd_getfd 438
#endif
#ifndef SYS_fchmodat2
#define SYS_fchmodat2 452
#endif

/* listener.c */

struct notify_wish {
    bool evidence;
    bool gated; /* the daemon's gate reports IPv4: only connect() to IPv6 addresses is evidence */
    bool peers;
    bool set_gid;
    bool no_inet;
    bool no_unix;
    bool space; /* fallocate; only if anything else is asked about */
    bool sockets; /* whether something is left in the network namespace, or may hold it */
};

/* listener: the descriptor to poll, or -1 where the kernel does not ask (or asks another process
 * already). False: what `peers`, `set_gid`, `no_inet` and `no_unix` are to close could not be
 * closed. */
bool notify_listen(const struct notify_wish *wish, int *listener);
/* What it needs to know of the host, and otherwise finds out: a template does it for its clones. */
void notify_look_ahead(void);
void notify_serve(int listener);
/* Whether the kernel asks about all that a command could leave in its network namespace, or hold it with, and
 * has not asked. */
bool notify_network_untouched(void);
void notify_network_touched(void);

/* filter.c */

bool filter_make_key(void);
/* False: the kernel does not notify, or another process of the sandbox has a listener. */
bool filter_listen(const struct notify_wish *wish, int *listener);
/* Where there is no listener. */
bool filter_refuse_unix_sockets(void);
bool filter_refuse_set_gid(void);
bool filter_refuse_inet(void);
/* connect() of this process, past its own filter. */
int notify_connect(int fd, const void *address, unsigned length);
/* fchmodat() of this process, past its own filter. */
int notify_chmod(const char *path, unsigned mode);

/* caller.c: the process whose call is answered */

/* A call of a process that waits for the answer. */
struct asked_call {
    int listener;
    uint64_t id;
    pid_t pid;
};

bool caller_still_asks(const struct asked_call *call);
void caller_answer(const struct asked_call *call, int error);
/* Its root is ours, so that an absolute path means the same. */
bool caller_has_our_root(pid_t pid);
/* What stands behind the name in the status file of a process; false if it cannot be read. */
bool caller_status(pid_t pid, const char *name, char *into, size_t size);

/* set_gid_chmod.c */

/* Answers chmod and its kind with the set-group-ID bit. */
void set_gid_chmod(const struct asked_call *call, long number, const uint64_t *args);

/* proxied_connect.c */

bool proxied_connect_set_up(bool network_is_closed);
/* Answers the call, or starts a process that does. */
void proxied_connect(int listener, uint64_t id, pid_t caller, const uint64_t *args);
/* Whether it was such a process. */
bool proxied_connect_reaped(pid_t pid);
struct pid_list;
/* Adds these processes, which belong to no command. */
void proxied_connect_list(struct pid_list *pids);

/* unix_peers.c */

/* Keeps a copy of the list. */
bool unix_peers_set_up(const struct inode_check *sockets, uint32_t count, bool shared_network);
/* fd: the file of the address, opened with O_PATH. */
bool unix_peer_allowed(int fd);
/* The name of a socket without a file, which begins with NUL. */
bool unix_name_allowed(const char *name, size_t length);
/* Whether the one that a connected socket leads to began to listen in this sandbox. */
bool unix_peer_is_inside(int fd);

/* unix_listeners.c */

#define LISTENERS_MAX 16

/* A name, or else a file. */
struct listening_place {
    const char *name;
    size_t name_length;
    uint32_t inode;
    uint32_t device;
};

/* The numbers of the sockets that listen there; one unless 32 bits are too few for an inode. */
size_t unix_listeners(const struct listening_place *place, uint32_t found[LISTENERS_MAX]);

#endif
