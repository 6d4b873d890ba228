/*
 * What an init that waits for a command gives back to the kernel: pages that the next one needs may be
 * empty or read from the program again. It does so once it has waited for a while, because each page costs
 * a fault when it is used again.
 *
 * Pages that it has written are its own: what is left in buffers and below the stack. Those of the program are the
 * same for all inits, but each has them in a page table, where they count as its memory.
 */
#include "init.h"

#include <link.h>
#include <sys/auxv.h>
#include <sys/mman.h>

enum { STACK_USED = 1024, STACK_BELOW = 256 << 10 };

/* Of the linker: where the program is in memory. */
extern const ElfW(Ehdr) __ehdr_start __attribute__((visibility("hidden")));

/* Kernels for arm64 have pages of 4, 16 or 64 KiB. */
static uintptr_t page_below(uintptr_t at)
{
    return at & ~(uintptr_t)(getauxval(AT_PAGESZ) - 1);
}

/* The pages that lie in it wholly. */
static void give_back(uintptr_t from, uintptr_t to)
{
    from = page_below(from + getauxval(AT_PAGESZ) - 1);
    to = page_below(to);
    if (from < to)
        madvise((void *)from, to - from, MADV_DONTNEED);
}

void memory_forget(void *at, size_t size)
{
    give_back((uintptr_t)at, (uintptr_t)at + size);
}

/* Not what may be written: relocated addresses are nowhere else. The first part, which has the table, is last. */
static void give_back_program(void)
{
    uintptr_t base = (uintptr_t)&__ehdr_start;
    const ElfW(Phdr) *part = (const void *)(base + __ehdr_start.e_phoff);
    for (int i = __ehdr_start.e_phnum - 1; i >= 0; i--) {
        uintptr_t from = page_below(base + part[i].p_vaddr);
        uintptr_t to = base + part[i].p_vaddr + part[i].p_memsz + getauxval(AT_PAGESZ) - 1;
        if (part[i].p_type == PT_LOAD && (part[i].p_flags & PF_W) == 0)
            give_back(from, to);
    }
}

void memory_give_back(void)
{
    uintptr_t used = (uintptr_t)__builtin_frame_address(0) - STACK_USED;
    give_back(used - STACK_BELOW, used);
    give_back_program();
}
