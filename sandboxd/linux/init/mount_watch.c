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
#include <unistd.h>

#define TABLE_MAX (4u << 20)

struct mount {
    const char *id;
    const char *parent;
    const char *root;
    const char *point;
    const char *options;
};

struct mount_table {
    char *text;
    struct mount *mounts;
    size_t count;
};

static struct mount_table snapshot;

int mounts_open(void)
{
    return open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC);
}

static char *read_all(int fd)
{
    size_t room = 16384, length = 0;
    char *text = malloc(room);
    while (text != NULL) {
        ssize_t n = pread(fd, text + length, room - length - 1, (off_t)length);
        if (n == 0) {
            text[length] = 0;
            return text;
        }
        if (n < 0 && errno != EINTR)
            break;
        length += n > 0 ? (size_t)n : 0;
        if (room - length > 1)
            continue;
        char *larger = room < TABLE_MAX ? realloc(text, room * 2) : NULL;
        if (larger == NULL)
            break;
        text = larger;
        room *= 2;
    }
    free(text);
    return NULL;
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

static bool read_table(int fd, struct mount_table *table)
{
    memset(table, 0, sizeof *table);
    table->text = read_all(fd);
    if (table->text == NULL)
        return false;
    size_t lines = 0;
    for (const char *p = table->text; *p != 0; p++)
        lines += *p == '\n';
    table->mounts = calloc(lines + 1, sizeof *table->mounts);
    if (table->mounts == NULL) {
        free_table(table);
        return false;
    }
    char *rest = table->text;
    for (char *line; (line = strsep(&rest, "\n")) != NULL && table->count < lines;)
        table->mounts[table->count++] = split(line);
    return true;
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
static bool covered(const struct mount_table *table, const struct mount *mount)
{
    for (size_t depth = 0; mount != NULL && depth <= table->count; depth++) {
        for (size_t i = 0; i < snapshot.count; i++)
            if (strcmp(snapshot.mounts[i].parent, mount->parent) == 0 &&
                is_below(mount->point, snapshot.mounts[i].point))
                return true;
        mount = find(table, mount->parent);
    }
    return false;
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

bool mounts_has(const char *point)
{
    for (size_t i = 0; i < snapshot.count; i++)
        if (strcmp(readable(snapshot.mounts[i].point), point) == 0)
            return true;
    return false;
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
