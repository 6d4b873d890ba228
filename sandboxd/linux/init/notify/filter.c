/*
 * The seccomp filters that the init loads for itself, and so for all processes that it forks.
 *
 * One notifies the init of the calls that it answers; the others refuse the same calls where the kernel
 * cannot notify. The init is under the filter too. Its own connect() and fchmodat() have a random key in
 * two registers behind their arguments, which the kernel ignores and the filter compares. No process of a
 * command can read it: the init and what it forks are not dumpable.
 */
#include "notify.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/netlink.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV
#define SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV (1UL << 5)
#endif

#define ARGUMENT(number, half) (offsetof(struct seccomp_data, args) + 8 * (number) + 4 * (half))

struct program {
    struct sock_filter at[160];
    unsigned short length;
};

static void add(struct program *program, struct sock_filter instruction)
{
    program->at[program->length++] = instruction;
}

static void load(struct program *program, size_t offset)
{
    add(program, (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (uint32_t)offset));
}

static void answer_with(struct program *program, uint32_t action)
{
    add(program, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, action));
}

/* If what is loaded equals value. */
static void answer_if(struct program *program, uint32_t value, uint32_t action)
{
    add(program, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, 1));
    answer_with(program, action);
}

/* Goes on behind the next `count` instructions unless what is loaded equals value. */
static void unless(struct program *program, uint32_t value, uint8_t count)
{
    add(program, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, count));
}

#define REFUSE (SECCOMP_RET_ERRNO | EPERM)
#define X32_BIT 0x40000000u

/* socket, socketpair, connect, listen, and io_uring, of the 32-bit programs that such a kernel runs. */
static const uint32_t foreign_calls[] = {
#if defined __x86_64__
    102, 359, 360, 362, 363,
#elif defined __aarch64__
    281, 283, 284, 288,
#endif
    425, 426, 427,
};

static void add_foreign(struct program *program)
{
    uint8_t count = 2 * sizeof foreign_calls / sizeof foreign_calls[0] + 2;
    load(program, offsetof(struct seccomp_data, arch));
    add(program, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, NATIVE_ARCH, count, 0));
    load(program, offsetof(struct seccomp_data, nr));
    for (size_t i = 0; i < sizeof foreign_calls / sizeof foreign_calls[0]; i++)
        answer_if(program, foreign_calls[i], REFUSE);
    answer_with(program, SECCOMP_RET_ALLOW);
    load(program, offsetof(struct seccomp_data, nr));
#if defined __x86_64__
    add(program, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, X32_BIT, 0, 1));
    answer_with(program, SECCOMP_RET_ERRNO | ENOSYS);
#endif
    for (uint32_t call = 425; call <= 427; call++)
        answer_if(program, call, REFUSE);
}

/* After the number is loaded. The kernel turns SOCK_RAW into SOCK_DGRAM. `others`: for all but Unix sockets and
 * NETLINK_SOCK_DIAG, which the init itself uses and which changes nothing. NETLINK_ROUTE leaves cached routes. */
static void add_families(struct program *program, uint32_t call, uint32_t others)
{
    unless(program, call, 14);
    load(program, ARGUMENT(0, 0));
    unless(program, AF_UNIX, 7);
    load(program, ARGUMENT(1, 0));
    add(program, (struct sock_filter)BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 0xf));
    answer_if(program, SOCK_DGRAM, REFUSE);
    answer_if(program, SOCK_RAW, REFUSE);
    answer_with(program, SECCOMP_RET_ALLOW);
    unless(program, AF_NETLINK, 3);
    load(program, ARGUMENT(2, 0));
    answer_if(program, NETLINK_SOCK_DIAG, SECCOMP_RET_ALLOW);
    answer_with(program, others);
}

static uint64_t key[2];

bool filter_make_key(void)
{
    return getrandom(key, sizeof key, 0) == (ssize_t)sizeof key;
}

int notify_connect(int fd, const void *address, unsigned length)
{
    return (int)syscall(SYS_connect, fd, address, length, key[0], key[1]);
}

int notify_chmod(const char *path, unsigned mode)
{
    return (int)syscall(SYS_fchmodat, AT_FDCWD, path, mode, key[0], key[1]);
}

/* Nine instructions. The halves of an argument are in the order of the machine. */
static void add_key(struct program *program)
{
    for (int i = 0; i < 4; i++) {
        load(program, ARGUMENT(3 + i / 2, i % 2));
        unless(program, (uint32_t)(key[i / 2] >> (i % 2 * 32)), (uint8_t)(7 - 2 * i));
    }
    answer_with(program, SECCOMP_RET_ALLOW);
}

/* After the number is loaded. */
static void add_connect(struct program *program, bool peers)
{
    unless(program, SYS_connect, peers ? 10 : 1);
    if (peers)
        add_key(program);
    answer_with(program, SECCOMP_RET_USER_NOTIF);
}

/* After the number is loaded. `mode`: the number of the argument. */
static void add_chmod(struct program *program, uint32_t call, int mode, uint32_t action)
{
    bool ours = call == SYS_fchmodat && action == SECCOMP_RET_USER_NOTIF;
    unless(program, call, ours ? 13 : 4);
    load(program, ARGUMENT(mode, 0));
    add(program, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, S_ISGID, 0, ours ? 10 : 1));
    if (ours)
        add_key(program);
    answer_with(program, action);
    answer_with(program, SECCOMP_RET_ALLOW);
}

/* After the number is loaded, and it is afterwards. */
static void add_family(struct program *program, uint32_t family, uint32_t action)
{
    unless(program, SYS_socket, 4);
    load(program, ARGUMENT(0, 0));
    answer_if(program, family, action);
    load(program, offsetof(struct seccomp_data, nr));
}

static void add_inet(struct program *program, uint32_t action)
{
    add_family(program, AF_INET, action);
    add_family(program, AF_INET6, action);
}

static void add_set_gid(struct program *program, uint32_t action)
{
#ifdef SYS_chmod
    add_chmod(program, SYS_chmod, 1, action);
#endif
    add_chmod(program, SYS_fchmod, 1, action);
    add_chmod(program, SYS_fchmodat, 2, action);
    add_chmod(program, SYS_fchmodat2, 2, action);
}

static void add_evidence(struct program *program)
{
    answer_if(program, SYS_sendmmsg, SECCOMP_RET_USER_NOTIF);
    unless(program, SYS_sendto, 6);
    load(program, ARGUMENT(4, 0));
    unless(program, 0, 3);
    load(program, ARGUMENT(4, 1));
    answer_if(program, 0, SECCOMP_RET_ALLOW);
    answer_with(program, SECCOMP_RET_USER_NOTIF);
}

static bool load_program(const struct program *program, unsigned long flags, int *fd)
{
    struct sock_fprog loaded = {program->length, (struct sock_filter *)program->at};
    *fd = (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &loaded);
    return *fd >= 0;
}

static void add_native(struct program *program)
{
    load(program, offsetof(struct seccomp_data, arch));
    add(program, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, NATIVE_ARCH, 1, 0));
    answer_with(program, SECCOMP_RET_ALLOW);
    load(program, offsetof(struct seccomp_data, nr));
}

/* Where the number alone decides, the kernel remembers "allow": other calls cost nothing. */
static void compose(struct program *program, const struct notify_wish *wish)
{
    if (wish->peers)
        add_foreign(program);
    else
        add_native(program);
    if (wish->set_gid)
        add_set_gid(program, SECCOMP_RET_USER_NOTIF);
    if (wish->evidence || wish->peers)
        add_connect(program, wish->peers);
    if (wish->no_inet)
        add_inet(program, SECCOMP_RET_USER_NOTIF);
    if (wish->no_unix)
        add_family(program, AF_UNIX, SECCOMP_RET_USER_NOTIF);
    uint32_t others = wish->sockets ? SECCOMP_RET_USER_NOTIF : SECCOMP_RET_ALLOW;
    if (wish->peers) {
        add_families(program, SYS_socketpair, others);
        add_families(program, SYS_socket, others);
        if (wish->sockets)
            answer_if(program, SYS_listen, SECCOMP_RET_USER_NOTIF);
    }
    if (wish->space)
        answer_if(program, SYS_fallocate, SECCOMP_RET_USER_NOTIF);
    if (wish->evidence)
        add_evidence(program);
    answer_with(program, SECCOMP_RET_ALLOW);
}

bool filter_refuse_unix_sockets(void)
{
    struct program program = {.length = 0};
    int ignored;
    add_foreign(&program);
    add_families(&program, SYS_socketpair, SECCOMP_RET_ALLOW);
    unless(&program, SYS_socket, 4);
    load(&program, ARGUMENT(0, 0));
    answer_if(&program, AF_UNIX, REFUSE);
    answer_with(&program, SECCOMP_RET_ALLOW);
    answer_with(&program, SECCOMP_RET_ALLOW);
    return load_program(&program, 0, &ignored);
}

bool filter_refuse_set_gid(void)
{
    struct program program = {.length = 0};
    int ignored;
    add_native(&program);
    add_set_gid(&program, REFUSE);
    answer_with(&program, SECCOMP_RET_ALLOW);
    return load_program(&program, 0, &ignored);
}

bool filter_refuse_inet(void)
{
    struct program program = {.length = 0};
    int ignored;
    add_native(&program);
    add_inet(&program, REFUSE);
    answer_with(&program, SECCOMP_RET_ALLOW);
    return load_program(&program, 0, &ignored);
}

bool filter_listen(const struct notify_wish *wish, int *listener)
{
    struct program program = {.length = 0};
    unsigned long flags = SECCOMP_FILTER_FLAG_NEW_LISTENER;
    compose(&program, wish);
    /* Killable only, once we have taken it: a signal (Go sends itself many) would repeat it. */
    if (load_program(&program, flags | SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV, listener) ||
        (errno == EINVAL && load_program(&program, flags, listener)))
        return true;
    *listener = -1;
    return false;
}
