/*
 * Reads the memory of a descendant while it waits in a system call.
 *
 * The process may change its memory at any moment, or end: what is read serves as evidence only. A
 * parent may read its descendants also where Yama restricts tracing. A process that is not dumpable
 * cannot be read; nothing is reported for it.
 */
#include "../process_tree/process_tree.h"
#include "evidence.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#define PAGE 4096

/* The same through /proc/PID/mem: container engines forbid the system call. */
static ssize_t read_file(pid_t pid, uint64_t address, void *into, size_t size)
{
    char path[64];
    proc_path(path, pid, "mem", -1);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    ssize_t length = pread(fd, into, size, (off_t)address);
    close(fd);
    return length;
}

size_t tracee_read(pid_t pid, uint64_t address, void *into, size_t size)
{
    struct iovec local = {into, size};
    struct iovec remote = {(void *)(uintptr_t)address, size};
    if (address == 0)
        return 0;
    ssize_t length = process_vm_readv(pid, &local, 1, &remote, 1, 0);
    if (length < 0 && (errno == EPERM || errno == ENOSYS))
        length = read_file(pid, address, into, size);
    return length > 0 ? (size_t)length : 0;
}

/* Page by page: the string may end just before memory that does not exist. */
bool tracee_string(pid_t pid, uint64_t address, char *into, size_t size)
{
    size_t length = 0;
    while (length < size) {
        size_t part = PAGE - (address + length) % PAGE;
        if (part > size - length)
            part = size - length;
        part = tracee_read(pid, address + length, into + length, part);
        if (part == 0)
            return false;
        if (memchr(into + length, 0, part) != NULL)
            return true;
        length += part;
    }
    return false;
}
