/*
 * What a clone knows of its mounts from its template, so that it need not read the table of mounts.
 *
 * That takes the kernel longer than all other checks of a clone. A clone has the template's mounts, in the
 * order of their ids: both are copies of one tree, which the kernel copies in one order. The template reads its
 * table once, and marks the mounts that no path of a clone leads to: those may go, every other one may not. Of its
 * mounts a clone then needs no more than their ids, which are never used twice. None can be added, nor changed:
 * the namespace is private, and nobody in it has a capability.
 */
#include "init.h"
#include "template.h"

#include <sched.h>
#include <string.h>
#include <unistd.h>

static size_t copy_count; /* 0: not known */
static uint64_t first_ids[LISTED_MAX] OWN_PAGES;

/* Whether the kernel keeps the order is seen, not assumed: the copy of a copy must be like it. */
static bool read_copied_table(void)
{
    for (int round = 0; round < 2; round++) {
        if (unshare(CLONE_NEWNS) != 0)
            return false;
        int mountinfo = mounts_open();
        bool alike = mountinfo >= 0 && mounts_keep(mountinfo, round > 0);
        if (mountinfo >= 0)
            close(mountinfo);
        if (!alike)
            return false;
    }
    return true;
}

static void mark(const struct template *template)
{
    long count = list_mounts(first_ids, LISTED_MAX);
    copy_count = count > 0 && (size_t)count == mounts_kept() ? (size_t)count : 0;
    for (int i = 0; i < template->fresh_count; i += 3)
        mounts_hide(template->fresh[i + 2], template->moved, template->moved_count);
    mounts_hide("/dev/pts", NULL, 0);
    mounts_hide("/proc", NULL, 0);
}

void copies_prepare(const struct template *template)
{
    if (list_mounts(first_ids, LISTED_MAX) > 0 && read_copied_table())
        mark(template);
}

void copies_renew(const struct template *template)
{
    if (copy_count == 0 || list_mounts(first_ids, copy_count + 1) == (long)copy_count)
        return;
    int mountinfo = mounts_open();
    copy_count = 0;
    if (mountinfo >= 0 && mounts_keep(mountinfo, false))
        mark(template);
    if (mountinfo >= 0)
        close(mountinfo);
}

/* If one was lost already there are fewer. */
void copies_begin(void)
{
    if (copy_count > 0 && list_mounts(first_ids, copy_count + 1) != (long)copy_count)
        copy_count = 0;
}

void copies_forget(void)
{
    memory_forget(first_ids, sizeof first_ids);
}

bool copies_known(const uint64_t *listed, long count)
{
    return copy_count > 0 && count >= (long)copy_count &&
           memcmp(listed, first_ids, copy_count * sizeof listed[0]) == 0;
}

const char *copies_changed(const uint64_t *listed, long count, const uint64_t *now, long now_count)
{
    long at = 0;
    for (long i = 0; i < count; i++) {
        if (at < now_count && now[at] == listed[i])
            at++;
        else if (i >= (long)copy_count)
            return "a mount point";
        else if (!mounts_hidden((size_t)i))
            return mounts_point((size_t)i);
    }
    return at == now_count ? NULL : "a mount point";
}
