/*
 * x86-64 only. A system call through a door that a filter for 64-bit calls does not watch:
 * "int80" is the 32-bit entry, "x32" the 64-bit one with the x32 bit. Both make a keyring call
 * (keyctl GET_KEYRING_ID) that the filter denies by its ordinary number.
 */
#include "attack.h"

static long int80(long number, long a, long b, long c)
{
    long result;
    __asm__ volatile("int $0x80"
                     : "=a"(result)
                     : "a"(number), "b"(a), "c"(b), "d"(c)
                     : "memory", "r8", "r9", "r10", "r11");
    return result;
}

static long entry64(long number, long a, long b, long c)
{
    long result;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c)
                     : "memory", "rcx", "r11");
    return result;
}

int main(int argc, char **argv)
{
    const long session_keyring = -3, get_id = 0;
    long result = argc > 1 && strcmp(argv[1], "x32") == 0
                      ? entry64(0x40000000 | 250, get_id, session_keyring, 1)
                      : int80(288, get_id, session_keyring, 1);
    if (result < 0) {
        errno = (int)-result;
        blocked("keyctl");
    }
    worked();
}
