/*
 * Notices when a mount of the sandbox is lost, or a new one appears.
 *
 * A rename on the host over a path that is a mount point inside detaches the mount: what it masked
 * or protected is exposed. New host mounts show up below a bind. The kernel marks mountinfo with
 * POLLPRI after each change. Compared are the fields that say what is mounted where, and how: mount
 * id, parent id, root, mount point and the options of the mount. A mount that another one covers cannot
 * be reached from inside and may change: containers of the host below the private /tmp.
 */
#include "init.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define TABLE_MAX (4u << 20)
#define RAW_ROOM (64u << 10)

struct mount {
    const char *id;
    const char *parent;
    const char *root;
    const char *point;
    const char *options;
    bool hidden; /* no path leads to it */
};

/* `text`: what the mounts point to. */
struct mount_table {
    char *text;
    struct mount *mounts;
    size_t count;
};

/* As the kernel writes it: for a moment, in pages of its own. */
struct raw_table {
    char *text;
    size_t room;
};

static struct mount_table snapshot;
static struct mount_table kept; /* the template's */

int mounts_open(void)
{
    return open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC);
}

static void unmap(struct raw_table *raw)
{
    if (raw->text != MAP_FAILED)
        munmap(raw->text, raw->room);
}

static bool read_all(int fd, struct raw_table *raw)
{
    size_t length = 0;
    *raw = (struct raw_table){.room = RAW_ROOM};
    raw->text = mmap(NULL, raw->room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    while (raw->text != MAP_FAILED) {
        ssize_t n = pread(fd, raw->text + length, raw->room - length - 1, (off_t)length);
        if (n == 0)
            return true;
        if (n < 0 && errno != EINTR)
            break;
        length += n > 0 ? (size_t)n : 0;
        if (raw->room - length > 1)
            continue;
        void *larger = raw->room < TABLE_MAX
                           ? mremap(raw->text, raw->room, raw->room * 2, MREMAP_MAYMOVE)
                           : MAP_FAILED;
        if (larger == MAP_FAILED)
            break;
        raw->text = larger;
        raw->room *= 2;
    }
    unmap(raw);
    return false;
}

static const char *next_field(char **line)
{
    char *field = strsep(line, " ");
    return field != NULL ? field : "";
}

/* A bound source that was unlinked on the host keeps its mount; only its name gains this suffix. */
static void drop_deleted(const char *root)
{
    static const char suffix[] = "//deleted";
    size_t length = strlen(root);
    if (length >= sizeof suffix - 1 && strcmp(root + length - (sizeof suffix - 1), suffix) == 0)
        ((char *)root)[length - (sizeof suffix - 1)] = 0;
}

static struct mount split(char *line)
{
    struct mount mount;
    mount.id = next_field(&line);
    mount.parent = next_field(&line);
    next_field(&line);
    mount.root = next_field(&line);
    mount.point = next_field(&line);
    mount.options = next_field(&line);
    drop_deleted(mount.root);
    return mount;
}

static void free_table(struct mount_table *table)
{
    free(table->text);
    free(table->mounts);
    memset(table, 0, sizeof *table);
}

static const char *copied(char **end, const char *field)
{
    char *copy = *end;
    *end = stpcpy(copy, field) + 1;
    return copy;
}

static size_t size_of(const struct mount *mount)
{
    return strlen(mount->id) + strlen(mount->parent) + strlen(mount->root) + strlen(mount->point) +
           strlen(mount->options) + 5;
}

/* Only what is compared stays. */
static bool fill(struct mount_table *table, char *rest, size_t lines)
{
    size_t size = 1;
    table->mounts = calloc(lines + 1, sizeof *table->mounts);
    if (table->mounts == NULL)
        return false;
    for (char *line; (line = strsep(&rest, "\n")) != NULL && table->count < lines;) {
        table->mounts[table->count] = split(line);
        size += size_of(&table->mounts[table->count++]);
    }
    char *end = table->text = malloc(size);
    if (table->text == NULL)
        return false;
    for (struct mount *mount = table->mounts; mount < table->mounts + table->count; mount++)
        *mount = (struct mount){copied(&end, mount->id), copied(&end, mount->parent),
                                copied(&end, mount->root), copied(&end, mount->point),
                                copied(&end, mount->options), false};
    return true;
}

static bool read_table(int fd, struct mount_table *table)
{
    struct raw_table raw;
    memset(table, 0, sizeof *table);
    if (!read_all(fd, &raw))
        return false;
    size_t lines = 0;
    for (const char *p = raw.text; *p != 0; p++)
        lines += *p == '\n';
    bool filled = fill(table, raw.text, lines);
    unmap(&raw);
    if (!filled)
        free_table(table);
    return filled;
}

static const struct mount *find(const struct mount_table *table, const char *id)
{
    for (size_t i = 0; i < table->count; i++)
        if (strcmp(table->mounts[i].id, id) == 0)
            return &table->mounts[i];
    return NULL;
}

static bool same(const struct mount *a, const struct mount *b)
{
    return b != NULL && strcmp(a->parent, b->parent) == 0 && strcmp(a->root, b->root) == 0 &&
           strcmp(a->point, b->point) == 0 && strcmp(a->options, b->options) == 0;
}

static bool is_below(const char *point, const char *folder)
{
    size_t length = strlen(folder);
    return strncmp(point, folder, length) == 0 && point[length] == '/';
}

/* On the same parent, a mount hides everything further down; and so what is mounted on that. */
static bool covered_by(const struct mount_table *above, const struct mount_table *table,
                       const struct mount *mount)
{
    for (size_t depth = 0; mount != NULL && depth <= table->count; depth++) {
        for (size_t i = 0; i < above->count; i++)
            if (strcmp(above->mounts[i].parent, mount->parent) == 0 &&
                is_below(mount->point, above->mounts[i].point))
                return true;
        mount = find(table, mount->parent);
    }
    return false;
}

static bool covered(const struct mount_table *table, const struct mount *mount)
{
    return covered_by(&snapshot, table, mount);
}

/* mountinfo writes space, tab, newline and backslash as a backslash and three octal digits. */
static const char *readable(const char *point)
{
    static char text[WIRE_TEXT_MAX];
    size_t length = 0;
    while (*point != 0 && length < sizeof text - 1) {
        bool octal = point[0] == '\\' && point[1] >= '0' && point[1] <= '3' && point[2] >= '0' &&
                     point[2] <= '7' && point[3] >= '0' && point[3] <= '7';
        text[length++] = octal ? (char)((point[1] - '0') * 64 + (point[2] - '0') * 8 + point[3] - '0')
                               : *point;
        point += octal ? 4 : 1;
    }
    text[length] = 0;
    return text;
}

/* Whether another mount lies on top of this one, at the same path. */
static bool is_stacked_on(const struct mount *mount)
{
    for (size_t i = 0; i < snapshot.count; i++)
        if (strcmp(snapshot.mounts[i].parent, mount->id) == 0 &&
            strcmp(snapshot.mounts[i].point, mount->point) == 0 && &snapshot.mounts[i] != mount)
            return true;
    return false;
}

uint64_t mounts_id(const char *point)
{
    for (size_t i = 0; i < snapshot.count; i++) {
        const struct mount *mount = &snapshot.mounts[i];
        if (strcmp(readable(mount->point), point) == 0 && !is_stacked_on(mount) &&
            !covered(&snapshot, mount))
            return strtoull(mount->id, NULL, 10);
    }
    return 0;
}

bool mounts_snapshot(int mountinfo)
{
    free_table(&snapshot);
    return read_table(mountinfo, &snapshot);
}

const char *mounts_changed(int mountinfo)
{
    struct mount_table now;
    const char *what = NULL;
    if (!read_table(mountinfo, &now))
        return "/proc/self/mountinfo";
    for (size_t i = 0; i < snapshot.count && what == NULL; i++)
        if (!same(&snapshot.mounts[i], find(&now, snapshot.mounts[i].id)) &&
            !covered(&snapshot, &snapshot.mounts[i]))
            what = readable(snapshot.mounts[i].point);
    /* Mount ids are reused: an id of the snapshot can be another mount by now. */
    for (size_t i = 0; i < now.count && what == NULL; i++)
        if (!same(&now.mounts[i], find(&snapshot, now.mounts[i].id)) &&
            !covered(&now, &now.mounts[i]))
            what = readable(now.mounts[i].point);
    free_table(&now);
    return what;
}

/* Their ids aside. */
static bool alike(const struct mount_table *a, const struct mount_table *b)
{
    for (size_t i = 0; i < a->count && a->count == b->count; i++)
        if (strcmp(a->mounts[i].root, b->mounts[i].root) != 0 ||
            strcmp(a->mounts[i].point, b->mounts[i].point) != 0 ||
            strcmp(a->mounts[i].options, b->mounts[i].options) != 0)
            return false;
    return a->count == b->count;
}

bool mounts_keep(int mountinfo, bool same_as_before)
{
    struct mount_table now;
    if (!read_table(mountinfo, &now))
        return false;
    bool good = !same_as_before || alike(&kept, &now);
    free_table(&kept);
    kept = now;
    for (size_t i = 0; i < kept.count; i++)
        kept.mounts[i].hidden = covered_by(&kept, &kept, &kept.mounts[i]);
    return good;
}

size_t mounts_kept(void)
{
    return kept.count;
}

static bool is_within(const char *point, const char *folder)
{
    return strcmp(point, folder) == 0 || is_below(point, folder);
}

void mounts_hide(const char *folder, char *const *moved, int moved_count)
{
    for (size_t i = 0; i < kept.count; i++) {
        const char *point = readable(kept.mounts[i].point);
        bool stays = is_within(point, folder);
        for (int j = 0; j < moved_count && stays; j++)
            stays = !is_within(point, moved[j]);
        if (stays)
            kept.mounts[i].hidden = true;
    }
}

bool mounts_hidden(size_t number)
{
    return kept.mounts[number].hidden;
}

const char *mounts_point(size_t number)
{
    return readable(kept.mounts[number].point);
}
