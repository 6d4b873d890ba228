/*
 * The parent of an init on another machine: what the daemon's control socket and pipes are elsewhere.
 *
 * A server's agent starts it once in each sandbox. It forks the init, and carries the messages of the
 * wire and the streams of commands between it and the daemon. It ends with the init or with the agent's
 * end of stdout; the init then ends every command.
 */
#include "remote.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define LOOK_MS 500 /* for files that no event has told of, and for dead children */

static int control = -1;

static bool on_frame(const struct frame *frame)
{
    if (frame->kind == FRAME_EXEC)
        return relay_start(frame, control);
    if (frame->kind == FRAME_CONTROL)
        return send(control, frame->data, frame->length, MSG_NOSIGNAL) == (ssize_t)frame->length;
    return relay_frame(frame);
}

/* False when the init has ended. */
static bool pass_on_control(void)
{
    static uint8_t message[WIRE_MESSAGE_MAX];
    for (;;) {
        ssize_t length = recv(control, message, sizeof message, MSG_DONTWAIT);
        if (length < 0 && (errno == EINTR || errno == ECONNRESET))
            continue; /* a reset comes once, before queued messages */
        if (length < 0)
            return errno == EAGAIN;
        if (length == 0)
            return false;
        link_tell(FRAME_CONTROL, 0, message, (size_t)length);
    }
}

static void wait_for_work(void)
{
    static struct pollfd fds[3 + RELAYS_MAX * RELAY_FDS];
    fds[0] = (struct pollfd){.fd = control, .events = POLLIN};
    fds[1] = (struct pollfd){.fd = link_watched(), .events = POLLIN};
    fds[2] = (struct pollfd){.fd = link_pending() > 0 ? 1 : -1, .events = POLLOUT};
    poll(fds, 3 + relays_to_poll(fds + 3), LOOK_MS);
    while (waitpid(-1, NULL, WNOHANG | __WALL) > 0)
        continue;
}

static noreturn void carry(void)
{
    for (;;) {
        bool goes_on = pass_on_control();
        relays_advance();
        if (!link_flush() || !goes_on)
            _exit(INIT_DONE); /* the init finds its socket closed, and ends every command */
        if (!link_receive(on_frame))
            _exit(INIT_PROTOCOL_ERROR);
        relays_advance();
        if (!link_flush())
            _exit(INIT_DONE);
        wait_for_work();
    }
}

int remote_bridge_open(const char *folder)
{
    sigset_t all;
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
        return -1;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    pid_t init = fork();
    if (init < 0)
        return -1;
    if (init == 0) {
        close(pair[0]);
        return pair[1];
    }
    close(pair[1]);
    control = pair[0];
    if (!link_open(folder))
        _exit(INIT_SETUP_FAILED);
    carry();
}
