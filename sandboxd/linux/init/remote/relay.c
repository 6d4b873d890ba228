/*
 * One relay for each command: its channel and its streams, between the init and the daemon.
 *
 * Output is read as far as the daemon has room for it, so that a reader who is slow delays no other
 * command. An exit is told after the output that was there before it.
 */
#include "remote.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#define WINDOW (256u << 10) /* what each stream may send before the daemon gives more room */
#define INPUT_MAX (4u << 20)
#define PENDING_MAX (1u << 20)
#define PIECE (64u << 10)

struct relay {
    bool used;
    bool terminal;
    bool input_ends;
    uint32_t id;
    int channel;
    int input;
    int outputs[2];
    uint32_t room[2];
    uint8_t *queued; /* of stdin */
    size_t queued_length, untold;
    uint8_t *held; /* an exit that waits for the output */
    size_t held_length;
};

static struct relay relays[RELAYS_MAX];
static uint8_t piece[PIECE];

static struct relay *find(uint32_t id)
{
    for (int i = 0; i < RELAYS_MAX; i++)
        if (relays[i].used && relays[i].id == id)
            return &relays[i];
    return NULL;
}

static void shut(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

static void release(struct relay *relay)
{
    shut(&relay->channel);
    shut(&relay->input);
    shut(&relay->outputs[0]);
    shut(&relay->outputs[1]);
    free(relay->queued);
    free(relay->held);
    memset(relay, 0, sizeof *relay);
}

/* start */

static int part_descriptor(struct cursor *cursor, bool *there)
{
    uint32_t length = take_u32(cursor);
    *there = length != NO_PART;
    if (!*there)
        return -1;
    if (cursor->bad || length > (size_t)(cursor->end - cursor->at)) {
        cursor->bad = true;
        return -1;
    }
    int fd = memfd_create("part", MFD_CLOEXEC);
    if (fd < 0 || write(fd, cursor->at, length) != (ssize_t)length || lseek(fd, 0, SEEK_SET) != 0)
        cursor->bad = true;
    cursor->at += length;
    return fd;
}

static bool open_pipe(int *ours, int *theirs, bool we_read)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
        return false;
    *ours = ends[we_read ? 0 : 1];
    *theirs = ends[we_read ? 1 : 0];
    return fcntl(*ours, F_SETFL, O_NONBLOCK) == 0;
}

static bool send_message(int control, const uint8_t *message, size_t length, const int *fds, unsigned count)
{
    union {
        char bytes[CMSG_SPACE(WIRE_FDS_MAX * sizeof(int))];
        struct cmsghdr align;
    } rights = {0};
    struct iovec part = {.iov_base = (void *)message, .iov_len = length};
    struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = rights.bytes,
                            .msg_controllen = CMSG_SPACE(count * sizeof(int))};
    struct cmsghdr *first = CMSG_FIRSTHDR(&header);
    first->cmsg_level = SOL_SOCKET;
    first->cmsg_type = SCM_RIGHTS;
    first->cmsg_len = CMSG_LEN(count * sizeof(int));
    memcpy(CMSG_DATA(first), fds, count * sizeof(int));
    return sendmsg(control, &header, MSG_NOSIGNAL) == (ssize_t)length;
}

static struct relay *new_relay(uint32_t id)
{
    for (int i = 0; i < RELAYS_MAX; i++)
        if (!relays[i].used) {
            relays[i] = (struct relay){.used = true, .id = id, .channel = -1, .input = -1,
                                       .outputs = {-1, -1}, .room = {WINDOW, WINDOW}};
            return &relays[i];
        }
    return NULL;
}

/* u32 flags of EXEC, EXEC itself, then its payload and its filter. */
bool relay_start(const struct frame *frame, int control)
{
    struct cursor cursor = {.at = frame->data, .end = frame->data + frame->length};
    uint32_t flags = take_u32(&cursor), length = take_u32(&cursor);
    if (cursor.bad || length > (size_t)(cursor.end - cursor.at) || find(frame->id) != NULL)
        return false;
    const uint8_t *message = cursor.at;
    cursor.at += length;
    bool has_payload, has_filter;
    int payload = part_descriptor(&cursor, &has_payload), pair[2] = {-1, -1};
    int filter = part_descriptor(&cursor, &has_filter), theirs[3] = {-1, -1, -1};
    struct relay *relay = new_relay(frame->id);
    if (cursor.bad)
        return false;
    int fds[WIRE_FDS_MAX];
    unsigned count = 0;
    bool made = relay != NULL && socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0;
    if (made) {
        relay->channel = pair[0];
        relay->terminal = flags & EXEC_PTY;
        if (has_payload)
            fds[count++] = payload;
        fds[count++] = pair[1];
        if (has_filter)
            fds[count++] = filter;
        if (!relay->terminal) {
            made = open_pipe(&relay->input, &theirs[0], false) &&
                   open_pipe(&relay->outputs[0], &theirs[1], true) &&
                   open_pipe(&relay->outputs[1], &theirs[2], true);
            for (int i = 0; i < 3; i++)
                fds[count++] = theirs[i];
        }
    }
    if (!made || !send_message(control, message, length, fds, count)) {
        if (relay != NULL)
            release(relay);
        link_tell(FRAME_CLOSE, frame->id, NULL, 0);
    }
    int spare[] = {payload, filter, pair[1], theirs[0], theirs[1], theirs[2]};
    for (size_t i = 0; i < sizeof spare / sizeof spare[0]; i++)
        shut(&spare[i]);
    return true;
}

/* from the daemon */

static void queue_input(struct relay *relay, const struct frame *frame)
{
    uint8_t *larger = realloc(relay->queued, relay->queued_length + frame->length + 1);
    if (larger == NULL)
        _exit(INIT_LOST);
    relay->queued = larger;
    memcpy(relay->queued + relay->queued_length, frame->data, frame->length);
    relay->queued_length += frame->length;
    if (frame->length == 0 && !relay->terminal)
        relay->input_ends = true;
}

static void resize(struct relay *relay, struct cursor *cursor)
{
    struct winsize size = {0};
    size.ws_row = take_u16(cursor);
    size.ws_col = take_u16(cursor);
    if (relay->input >= 0 && !cursor->bad)
        ioctl(relay->input, TIOCSWINSZ, &size);
}

bool relay_frame(const struct frame *frame)
{
    struct relay *relay = find(frame->id);
    struct cursor cursor = {.at = frame->data, .end = frame->data + frame->length};
    if (relay == NULL)
        return true; /* it has ended meanwhile */
    uint32_t stream;
    switch (frame->kind) {
    case FRAME_CHANNEL:
        if (relay->channel >= 0)
            send(relay->channel, frame->data, frame->length, MSG_NOSIGNAL | MSG_DONTWAIT);
        return true;
    case FRAME_INPUT:
        queue_input(relay, frame);
        return relay->queued_length <= INPUT_MAX;
    case FRAME_CREDIT:
        stream = take_u32(&cursor);
        if (stream > 1)
            return false;
        relay->room[stream] += take_u32(&cursor);
        return cursor_done(&cursor) && relay->room[stream] <= WINDOW;
    case FRAME_DISCARD:
        stream = take_u32(&cursor);
        if (!cursor_done(&cursor) || stream > 1)
            return false;
        shut(&relay->outputs[stream]);
        return true;
    case FRAME_SIZE:
        resize(relay, &cursor);
        return cursor_done(&cursor);
    case FRAME_CLOSE:
        release(relay);
        return true;
    default:
        return false;
    }
}

/* from the command */

/* Whether everything was read that is there now. */
static bool read_output(struct relay *relay, int stream)
{
    int *fd = &relay->outputs[stream];
    uint8_t kind = stream == 0 ? FRAME_OUTPUT : FRAME_ERRORS;
    while (*fd >= 0) {
        size_t most = relay->room[stream] < PIECE ? relay->room[stream] : PIECE;
        if (most == 0 || link_pending() > PENDING_MAX)
            return false;
        ssize_t n = read(*fd, piece, most);
        if (n < 0 && errno == EAGAIN)
            return true;
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            shut(fd);
        else
            relay->room[stream] -= (uint32_t)n;
        link_tell(kind, relay->id, piece, n > 0 ? (size_t)n : 0);
    }
    return true;
}

static void write_input(struct relay *relay)
{
    size_t done = 0;
    while (relay->input >= 0 && done < relay->queued_length) {
        ssize_t n = write(relay->input, relay->queued + done, relay->queued_length - done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno != EAGAIN) {
            uint32_t closed = INPUT_CLOSED;
            shut(&relay->input);
            link_tell(FRAME_INPUT, relay->id, &closed, 4);
        }
        if (n < 0)
            break;
        done += (size_t)n;
    }
    if (done > 0)
        memmove(relay->queued, relay->queued + done, relay->queued_length -= done);
    relay->untold += done;
    if (relay->untold > 0 && (relay->queued_length == 0 || relay->untold >= WINDOW / 4)) {
        uint32_t taken = (uint32_t)relay->untold;
        link_tell(FRAME_INPUT, relay->id, &taken, 4);
        relay->untold = 0;
    }
    if (relay->input_ends && relay->queued_length == 0)
        shut(&relay->input);
}

static void take_terminal(struct relay *relay, struct msghdr *header)
{
    struct cmsghdr *rights = CMSG_FIRSTHDR(header);
    if (rights == NULL || rights->cmsg_type != SCM_RIGHTS)
        return;
    int fd = -1;
    memcpy(&fd, CMSG_DATA(rights), sizeof fd);
    if (!relay->terminal || relay->input >= 0) {
        shut(&fd);
        return;
    }
    fcntl(fd, F_SETFL, O_RDWR | O_NONBLOCK);
    relay->input = fd;
    relay->outputs[0] = fcntl(fd, F_DUPFD_CLOEXEC, 3);
}

/* One message of the reaper; false when there is none now. */
static bool read_channel(struct relay *relay)
{
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } rights = {0};
    struct iovec part = {.iov_base = piece, .iov_len = WIRE_MESSAGE_MAX};
    struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = rights.bytes,
                            .msg_controllen = sizeof rights.bytes};
    ssize_t length = recvmsg(relay->channel, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (length < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    if (length < 0 && errno == ECONNRESET)
        return true; /* comes once, before queued messages */
    if (length <= 0) {
        shut(&relay->channel);
        link_tell(FRAME_CLOSE, relay->id, NULL, 0);
        return false;
    }
    take_terminal(relay, &header);
    if (piece[0] != MESSAGE_EXITED && piece[0] != MESSAGE_GONE) {
        link_tell(FRAME_CHANNEL, relay->id, piece, (size_t)length);
        return true;
    }
    relay->held = malloc((size_t)length);
    if (relay->held == NULL)
        _exit(INIT_LOST);
    memcpy(relay->held, piece, (size_t)length);
    relay->held_length = (size_t)length;
    return true;
}

static void advance(struct relay *relay)
{
    while (relay->channel >= 0 && relay->held == NULL && read_channel(relay))
        continue;
    bool drained = read_output(relay, 0);
    drained = read_output(relay, 1) && drained;
    write_input(relay);
    if (relay->held == NULL || !drained)
        return;
    link_tell(FRAME_CHANNEL, relay->id, relay->held, relay->held_length);
    free(relay->held);
    relay->held = NULL;
}

void relays_advance(void)
{
    for (int i = 0; i < RELAYS_MAX; i++) {
        bool again = relays[i].used;
        while (again) { /* an exit that was held back is followed by further messages */
            again = relays[i].held != NULL;
            advance(&relays[i]);
            again = again && relays[i].held == NULL;
        }
    }
}

size_t relays_to_poll(struct pollfd *fds)
{
    size_t count = 0;
    for (int i = 0; i < RELAYS_MAX; i++) {
        struct relay *relay = &relays[i];
        if (!relay->used)
            continue;
        if (relay->channel >= 0 && relay->held == NULL)
            fds[count++] = (struct pollfd){.fd = relay->channel, .events = POLLIN};
        for (int stream = 0; stream < 2; stream++)
            if (relay->outputs[stream] >= 0 && relay->room[stream] > 0 &&
                link_pending() <= PENDING_MAX)
                fds[count++] = (struct pollfd){.fd = relay->outputs[stream], .events = POLLIN};
        if (relay->input >= 0 && relay->queued_length > 0)
            fds[count++] = (struct pollfd){.fd = relay->input, .events = POLLOUT};
    }
    return count;
}
