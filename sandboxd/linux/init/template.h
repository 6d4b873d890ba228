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
    bool ahead;            /* it is in the namespaces of the next clone */
    uint64_t idle_due_ms;  /* when it has been idle for long enough; 0: never */
};

/* Tells the daemon at the other end of a clone's socket. */
noreturn void template_fail(int socket, const char *what);

/* Mounts what sandboxes of one plan must not share. Returns a /proc that can be written. */
int template_mount(const struct template *template, int socket);
/* bwrap's covers in /proc would forbid to mount another one. */
void template_uncover(void);

/* template_networks.c */

bool networks_prepare(void);
/* The network namespace of the next clone, with a loopback that is up. False with errno. */
bool networks_enter(void);
/* Those of clones that have ended, when the next one has its own. */
void networks_forget_ended(void);
/* Before a clone is made, and after; whether the pidfd is kept. */
void networks_lend(void);
bool networks_lent(int pidfd);

/* mount_copies.c: once all that clones share is mounted. It enters another mount namespace. */
void copies_prepare(const struct template *template);
/* Mounts of the host that no path leads to may have gone since. */
void copies_renew(const struct template *template);

#endif
