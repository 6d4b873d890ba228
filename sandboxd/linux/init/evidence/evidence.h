/* Evidence from the kernel about refused accesses: connections, names, paths. */
#ifndef SANDBOXD_EVIDENCE_H
#define SANDBOXD_EVIDENCE_H

#include "../init.h"

/* tracee.c */

/* How much could be read, 0 if nothing. */
size_t tracee_read(pid_t pid, uint64_t address, void *into, size_t size);
/* False if it is longer, or not there. */
bool tracee_string(pid_t pid, uint64_t address, char *into, size_t size);

/* addresses.c, dns_query.c, listening.c, attempts.c: connections where the network is closed */

#define DNS_PORT 53
#define LOOKUP_NAME_MAX 253

struct endpoint {
    uint32_t family;
    uint32_t port;
    uint8_t address[16];
};

/* A call to connect, sendto or sendmmsg. */
void attempt_note(pid_t pid, long number, const uint64_t *args);
/* A call to connect where the daemon's gate sees IPv4 only. */
void attempt_note_ipv6(pid_t pid, const uint64_t *args);
bool lookup_name(const uint8_t *packet, size_t size, char name[LOOKUP_NAME_MAX + 1]);
bool port_is_served(uint16_t port);

/* On the wire, too. */
enum refused_socket {
    REFUSED_STREAM = 1,
    REFUSED_DATAGRAM = 2,
    REFUSED_BLOCKING_DATAGRAM = 3,
    REFUSED_UNIX = 4,
};

struct command;
struct command *command_of(pid_t pid);
void command_notified(struct command *command, const struct endpoint *end);
void command_looked_up(struct command *command, const char *name);
/* family, type: the arguments of socket(). */
void command_refused_socket(struct command *command, int family, int type);
/* fd: the socket file, opened with O_PATH. */
void command_refused_peer(struct command *command, int fd);

/* args: of fallocate(). */
void command_allocates(pid_t pid, const uint64_t *args);

#define ATTEMPTS_MAX 64
#define PEERS_MAX 16

struct attempts {
    unsigned end_count;
    unsigned name_count;
    unsigned peer_count;
    unsigned sockets_refused; /* a bit for each refused_socket */
    uint32_t full;            /* a bit for each file system that lacked the space */
    struct endpoint ends[ATTEMPTS_MAX];
    char names[ATTEMPTS_MAX][LOOKUP_NAME_MAX + 1];
    struct inode_check peers[PEERS_MAX];
};

/* path_syscalls.c, denied_paths.c, tracer.c: explain mode */

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
/* Milliseconds until pending reports should be sent; -1: there are none. */
int refusals_timeout_ms(void);

bool trace_load_filter(void);
/* The child's and the reaper's side of PTRACE_SEIZE. */
bool trace_offer(int link);
bool trace_seize(pid_t pid, int link);
void trace_stopped(int channel, pid_t thread, int status);
void trace_forget(pid_t thread);

#endif
