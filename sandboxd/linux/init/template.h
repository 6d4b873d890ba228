/* A template (template.c) and what is mounted in each of its clones (template_mounts.c). */
#ifndef SANDBOXD_TEMPLATE_H
#define SANDBOXD_TEMPLATE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdnoreturn.h>

enum { MOVED_MAX = 512 };

/* The command line, in its order, and the namespaces of the next clone. `fresh`: size, mode and path of each private file system.
 * `moved`: the mounts that lie in one of them, without those below another mount. */
struct template {
    int control;
    bool own_network;
    bool cover_kernel_files;
    char **fresh;
    int fresh_count;
    char **moved;
    int moved_count;
    uint64_t namespaces;   /* those that can be made ahead */
    bool ahead;            /* the template is in new ones, for the next clone */
    uint64_t ahead_due_ms; /* when it makes them; 0: not now */
};

/* Tells the daemon at the other end of a clone's socket. */
noreturn void template_fail(int socket, const char *what);

/* Mounts what sandboxes of one plan must not share. Returns a /proc that can be written. */
int template_mount(const struct template *template, int socket);
/* The host's own device nodes: as root, their modes, owners and times could be changed. */
bool template_protect_devices(void);
/* bwrap's covers in /proc would forbid to mount another one. */
void template_uncover(void);

#endif
