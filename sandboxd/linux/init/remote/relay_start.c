/* The start of a relay: what the daemon sends as descriptors elsewhere is made of its parts here. */
#include "remote.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

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

/* u32 flags of EXEC, EXEC itself, then its payload and its filter. */
bool relay_start(const struct frame *frame, int control)
{
    struct cursor cursor = {.at = frame->data, .end = frame->data + frame->length};
    uint32_t flags = take_u32(&cursor), length = take_u32(&cursor);
    if (cursor.bad || length > (size_t)(cursor.end - cursor.at) || relay_find(frame->id) != NULL)
        return false;
    const uint8_t *message = cursor.at;
    cursor.at += length;
    bool has_payload, has_filter;
    int payload = part_descriptor(&cursor, &has_payload), pair[2] = {-1, -1};
    int filter = part_descriptor(&cursor, &has_filter), theirs[3] = {-1, -1, -1};
    struct relay *relay = relay_new(frame->id);
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
            relay_release(relay);
        link_tell(FRAME_CLOSE, frame->id, NULL, 0);
    }
    int spare[] = {payload, filter, pair[1], theirs[0], theirs[1], theirs[2]};
    for (size_t i = 0; i < sizeof spare / sizeof spare[0]; i++)
        relay_shut(&spare[i]);
    return true;
}
