/*
 * The memory of a process below us, while it waits in a system call.
 *
 * It may change what it has written there at any moment, and end: what is read serves as evidence
 * only. A parent may read its descendants also where Yama restricts tracing; one that is not dumpable
 * cannot be read, and then there is nothing to tell.
 */
#include "init.h"

#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#define PAGE 4096

size_t tracee_read(pid_t pid, uint64_t address, void *into, size_t size)
{
    struct iovec local = {into, size};
    struct iovec remote = {(void *)(uintptr_t)address, size};
    ssize_t length = address != 0 ? process_vm_readv(pid, &local, 1, &remote, 1, 0) : -1;
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
