/*
 * The numbers of the wire between sandboxd and the init.
 *
 * Both sides of the wire state them once: here, and in sandboxd/linux/init_client/codec.py. A test parses
 * this file and compares.
 *
 * SOCK_SEQPACKET, little-endian. A message is a header (u8 type, u8 flags, u16 zero, u32 payload
 * length) and the payload. A string is u32 length and bytes without NUL; an array is u32 count and
 * the items.
 */
#ifndef SANDBOXD_INIT_WIRE_H
#define SANDBOXD_INIT_WIRE_H

#define WIRE_VERSION 1

#define WIRE_HEADER_BYTES 8
#define WIRE_MESSAGE_MAX 65536
#define WIRE_PAYLOAD_MAX 8388608
#define WIRE_FDS_MAX 8
#define WIRE_FILTER_MAX 4096
#define WIRE_TEXT_MAX 4000

enum header_flag {
    HEADER_PAYLOAD_IN_FD = 1,
};

enum message_type {
    /* daemon to init, on the control socket */
    MESSAGE_SETUP = 1,
    MESSAGE_EXEC = 2,
    /* daemon to reaper, on a command's channel */
    MESSAGE_SIGNAL = 3,
    MESSAGE_KILL = 4,
    /* daemon to template */
    MESSAGE_CLONE = 5,
    MESSAGE_ENTER = 6,
    /* init to daemon, on the control socket */
    MESSAGE_READY = 65,
    MESSAGE_SETUP_FAILED = 66,
    MESSAGE_ISOLATION_LOST = 67,
    MESSAGE_PROTOCOL_ERROR = 68,
    /* template to daemon, with the pidfd of the new init */
    MESSAGE_CLONED = 69,
    /* reaper to daemon, on a command's channel */
    MESSAGE_STARTED = 80,
    MESSAGE_EXEC_FAILED = 81,
    MESSAGE_EXITED = 82,
    MESSAGE_LIMIT = 83,
    MESSAGE_GONE = 84,
    /* init to daemon, on a command's channel, at any time before GONE */
    MESSAGE_NOTIFIED = 85,
    MESSAGE_LOOKED_UP = 86,
    MESSAGE_REFUSED_PEER = 90,
    MESSAGE_REFUSED_SOCKET = 91,
    /* reaper to daemon, in explain mode */
    MESSAGE_REFUSED = 87,
    MESSAGE_KILLED_CALL = 88,
    /* before EXITED: a private file system is full, or lacks the space that was asked for */
    MESSAGE_NO_SPACE = 89,
    /* between EXITED and GONE: processes that were alive then, and were killed */
    MESSAGE_LEFT = 92,
};

enum setup_flag {
    SETUP_WATCH_MOUNTS = 1,
    SETUP_HAS_RULESET = 2,
    SETUP_REQUIRE_PID1 = 4,
    SETUP_GUARD = 8,
    SETUP_NOTIFY = 16,
    SETUP_PREFORK = 64,
    SETUP_HAS_CGROUP = 128,
    SETUP_UNIX_PEERS = 256,
    SETUP_SHARED_NETWORK = 512,
    SETUP_SET_GID = 1024,
    SETUP_NO_INET = 2048,
    SETUP_NO_UNIX = 4096,
};

enum exec_flag {
    EXEC_PTY = 1,
    EXEC_HAS_FILTER = 2,
    EXEC_KEEP_BACKGROUND = 4,
    EXEC_HAS_CGROUP = 8,
    EXEC_HAS_TERMINAL = 16,
    EXEC_EXPLAIN = 32,
    EXEC_FILES = 128,
    EXEC_NO_ECHO = 256,
    EXEC_HAS_STDERR = 512,
};

/* What a command wanted of a path. PROBE: it asked whether it may write. */
enum wanted {
    WANTED_LOOK = 1,
    WANTED_READ = 2,
    WANTED_EXEC = 3,
    WANTED_ENTER = 4,
    WANTED_WRITE = 5,
    WANTED_CREATE = 6,
    WANTED_REMOVE = 7,
    WANTED_CHANGE = 8,
    WANTED_PROBE = 9,
    WANTED_RENAME = 10,
};

enum signal_scope {
    SCOPE_MAIN = 0,
    SCOPE_TREE = 1,
};

enum limit_kind {
    LIMIT_MEMORY = 1,
    LIMIT_CPU = 2,
    LIMIT_PROCESSES = 3,
    LIMIT_TIMEOUT = 4,
};

enum setup_stage {
    SETUP_STAGE_PID1 = 1,
    SETUP_STAGE_CHECK = 2,
    SETUP_STAGE_RULE = 3,
    SETUP_STAGE_LANDLOCK = 4,
    SETUP_STAGE_PROC = 5,
    SETUP_STAGE_MOUNTS = 6,
    SETUP_STAGE_GUARD = 7,
    SETUP_STAGE_CGROUP = 8,
    SETUP_STAGE_UNIX_PEERS = 9,
    SETUP_STAGE_TEMPLATE = 10,
};

/* In the order in which a command goes through them; CGROUP comes first in the child,
 * TRACE after SECCOMP. */
enum exec_stage {
    EXEC_STAGE_FORK = 1,
    EXEC_STAGE_PTY = 2,
    EXEC_STAGE_STDIO = 3,
    EXEC_STAGE_DESCRIPTORS = 4,
    EXEC_STAGE_CHDIR = 5,
    EXEC_STAGE_RLIMIT = 6,
    EXEC_STAGE_KEYRING = 7,
    EXEC_STAGE_NO_NEW_PRIVS = 8,
    EXEC_STAGE_SECCOMP = 9,
    EXEC_STAGE_EXEC = 10,
    EXEC_STAGE_CGROUP = 11,
    EXEC_STAGE_TRACE = 12,
};

#endif
