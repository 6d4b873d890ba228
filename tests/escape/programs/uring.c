/*
 * Operations through io_uring: the kernel does them without the system call that a filter sees.
 *
 *   uring open PATH    open a file for writing and truncate it
 *   uring socket N     make a socket of family N
 */
#include "attack.h"
#include <fcntl.h>
#include <linux/io_uring.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#define SOCKET_OPERATION 45 /* IORING_OP_SOCKET, Linux 5.19; headers are often older */

static struct io_uring_params params;
static int ring;

static int submit(const struct io_uring_sqe *entry)
{
    size_t sq_size = params.sq_off.array + params.sq_entries * sizeof(uint32_t);
    size_t cq_size = params.cq_off.cqes + params.cq_entries * sizeof(struct io_uring_cqe);
    int prot = PROT_READ | PROT_WRITE, flags = MAP_SHARED | MAP_POPULATE;
    char *sq = mmap(NULL, sq_size, prot, flags, ring, IORING_OFF_SQ_RING);
    char *cq = mmap(NULL, cq_size, prot, flags, ring, IORING_OFF_CQ_RING);
    struct io_uring_sqe *entries =
        mmap(NULL, params.sq_entries * sizeof *entries, prot, flags, ring, IORING_OFF_SQES);
    if (sq == MAP_FAILED || cq == MAP_FAILED || entries == MAP_FAILED)
        blocked("mmap");
    uint32_t *tail = (uint32_t *)(sq + params.sq_off.tail);
    uint32_t index = *tail & *(uint32_t *)(sq + params.sq_off.ring_mask);
    entries[index] = *entry;
    ((uint32_t *)(sq + params.sq_off.array))[index] = index;
    __atomic_store_n(tail, *tail + 1, __ATOMIC_RELEASE);
    if (syscall(SYS_io_uring_enter, ring, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0) < 0)
        blocked("io_uring_enter");
    return ((struct io_uring_cqe *)(cq + params.cq_off.cqes))->res;
}

int main(int argc, char **argv)
{
    struct io_uring_sqe entry = {0};
    if (argc != 3)
        return 1;
    ring = (int)syscall(SYS_io_uring_setup, 4, &params);
    if (ring < 0)
        blocked("io_uring_setup");
    if (strcmp(argv[1], "open") == 0) {
        entry.opcode = IORING_OP_OPENAT;
        entry.fd = AT_FDCWD;
        entry.addr = (uint64_t)(uintptr_t)argv[2];
        entry.open_flags = O_WRONLY | O_TRUNC;
    } else {
        entry.opcode = SOCKET_OPERATION;
        entry.fd = atoi(argv[2]);
        entry.off = SOCK_STREAM;
    }
    int result = submit(&entry);
    if (result < 0) {
        errno = -result;
        blocked(argv[1]);
    }
    worked();
}
