/*
 * The process whose system call the init answers.
 *
 * It may end at any moment, and its pid may be reused: facts about it are valid only if its
 * notification is still pending afterwards.
 */
#include "../process_tree/process_tree.h"
#include "notify.h"

#include <fcntl.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

bool caller_still_asks(const struct asked_call *call)
{
    return ioctl(call->listener, SECCOMP_IOCTL_NOTIF_ID_VALID, &call->id) == 0;
}

void caller_answer(const struct asked_call *call, int error)
{
    union {
        struct seccomp_notif_resp answer;
        uint8_t room[256];
    } told;
    memset(&told, 0, sizeof told);
    told.answer.id = call->id;
    told.answer.error = -error;
    ioctl(call->listener, SECCOMP_IOCTL_NOTIF_SEND, &told.answer);
}

static bool same_place(const char *one, const char *other)
{
    struct statx a, b;
    return statx(AT_FDCWD, one, 0, STATX_INO | STATX_MNT_ID, &a) == 0 &&
           statx(AT_FDCWD, other, 0, STATX_INO | STATX_MNT_ID, &b) == 0 && a.stx_ino == b.stx_ino &&
           a.stx_dev_major == b.stx_dev_major && a.stx_dev_minor == b.stx_dev_minor &&
           a.stx_mnt_id == b.stx_mnt_id;
}

bool caller_has_our_root(pid_t pid)
{
    char place[64];
    proc_path(place, pid, "root", -1);
    return same_place(place, "/");
}

bool caller_status(pid_t pid, const char *name, char *into, size_t size)
{
    char text[4096], start[32];
    if (procstat_text(pid, "status", text, sizeof text) < 0)
        return false;
    snprintf(start, sizeof start, "\n%s:", name);
    const char *line = strstr(text, start);
    if (line == NULL)
        return false;
    line += strlen(start);
    snprintf(into, size, "%.*s", (int)strcspn(line, "\n"), line);
    return true;
}
