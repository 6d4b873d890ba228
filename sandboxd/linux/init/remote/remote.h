/*
 * The bridge of an init that the daemon reaches only over a server's HTTP API. Both ends of it are in
 * docs/opensandbox.md; the daemon's is sandboxd/backends/opensandbox/remote_init.
 */
#ifndef SANDBOXD_INIT_REMOTE_H
#define SANDBOXD_INIT_REMOTE_H

#include "../init.h"

/* The kinds of frames. `id` names a command; the daemon chooses it. */
enum frame_kind {
    FRAME_CONTROL = 'c', /* a message of the control socket, both ways */
    FRAME_CHANNEL = 'k', /* a message of a command's channel, both ways */
    FRAME_EXEC = 'x',    /* from the daemon: EXEC, its payload and its filter */
    FRAME_INPUT = 'i',   /* from the daemon: stdin, empty at its end. To it: u32 taken bytes */
    FRAME_OUTPUT = 'o',  /* to the daemon: stdout or a terminal, empty at its end */
    FRAME_ERRORS = 'e',  /* the same for stderr */
    FRAME_CREDIT = 'a',  /* from the daemon: u32 stream, u32 bytes that it has room for */
    FRAME_DISCARD = 'd', /* from the daemon: u32 stream, which nobody reads any more */
    FRAME_SIZE = 's',    /* from the daemon: u16 rows, u16 columns */
    FRAME_CLOSE = 'q',   /* from the daemon: it closed the channel. To it: the reaper did */
};

#define INPUT_CLOSED UINT32_MAX /* of FRAME_INPUT: nobody reads stdin */
#define NO_PART UINT32_MAX      /* of FRAME_EXEC: a part that it does not have */

struct frame {
    uint8_t kind;
    uint32_t id;
    uint8_t *data;
    uint32_t length;
};

/* link.c: frames out as lines on stdout, frames in as files of a folder */

bool link_open(const char *folder);
/* To poll for POLLIN; a file system may report nothing, so link_receive is called now and then too. */
int link_watched(void);
/* False for what is no frame of the daemon. */
bool link_receive(bool (*on_frame)(const struct frame *frame));
void link_tell(uint8_t kind, uint32_t id, const void *data, size_t length);
size_t link_pending(void);
/* False when nobody reads them any more. */
bool link_flush(void);

/* relay.c: the channel and the streams of each command */

enum { RELAYS_MAX = 128, RELAY_FDS = 4 };

struct pollfd;
/* Both false for what the daemon never sends. */
bool relay_start(const struct frame *frame, int control);
bool relay_frame(const struct frame *frame);
size_t relays_to_poll(struct pollfd *fds);
void relays_advance(void);

/* bridge.c */

/* In the init that is forked: its control socket. The bridge stays behind and does not return. */
int remote_bridge_open(const char *folder);

#endif
