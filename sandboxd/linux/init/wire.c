/*
 * One message in, one message out.
 *
 * A received message is copied into private memory before it is parsed, and every field is read through
 * a cursor that knows its end: memory that the other side still shares is never parsed.
 */
#include "init.h"

#include <endian.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Static, so that an idle init holds only the pages that a message has touched. */
static uint8_t inbox[WIRE_MESSAGE_MAX + 1] OWN_PAGES;

void wire_forget(void)
{
    memory_forget(inbox, sizeof inbox);
}

static void collect_descriptors(struct msghdr *header, struct message *message)
{
    for (struct cmsghdr *c = CMSG_FIRSTHDR(header); c != NULL; c = CMSG_NXTHDR(header, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
            if (message->fd_count < WIRE_FDS_MAX)
                message->fds[message->fd_count++] = fd;
            else
                close(fd);
        }
    }
}

static bool read_whole(int fd, uint8_t *buffer, uint32_t length)
{
    uint32_t done = 0;
    while (done < length) {
        ssize_t n = pread(fd, buffer + done, length - done, done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        done += (uint32_t)n;
    }
    return true;
}

/* Reads the payload from the first descriptor, and removes it from the list. */
static bool fetch_payload(struct message *message)
{
    if (message->fd_count == 0 || message->length > WIRE_PAYLOAD_MAX)
        return false;
    int fd = message->fds[0];
    message->fd_count--;
    memmove(message->fds, message->fds + 1, message->fd_count * sizeof message->fds[0]);
    message->owned = malloc(message->length > 0 ? message->length : 1);
    bool whole = message->owned != NULL && read_whole(fd, message->owned, message->length);
    close(fd);
    message->payload = message->owned;
    return whole;
}

static bool open_message(struct message *message, size_t received)
{
    uint16_t zero;
    uint32_t length;
    if (received < WIRE_HEADER_BYTES || received > WIRE_MESSAGE_MAX)
        return false;
    memcpy(&zero, inbox + 2, sizeof zero);
    memcpy(&length, inbox + 4, sizeof length);
    uint8_t flags = inbox[1];
    message->type = inbox[0];
    message->length = le32toh(length);
    message->payload = inbox + WIRE_HEADER_BYTES;
    if (zero != 0 || (flags & ~HEADER_PAYLOAD_IN_FD) != 0)
        return false;
    if (flags & HEADER_PAYLOAD_IN_FD)
        return received == WIRE_HEADER_BYTES && fetch_payload(message);
    return message->length == received - WIRE_HEADER_BYTES;
}

enum receipt wire_receive(int socket, struct message *message)
{
    union {
        char bytes[CMSG_SPACE(WIRE_FDS_MAX * sizeof(int))];
        struct cmsghdr align;
    } control;
    struct iovec part = {.iov_base = inbox, .iov_len = sizeof inbox};
    struct msghdr header = {
        .msg_iov = &part,
        .msg_iovlen = 1,
        .msg_control = control.bytes,
        .msg_controllen = sizeof control.bytes,
    };
    memset(message, 0, sizeof *message);
    ssize_t received = recvmsg(socket, &header, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (received < 0)
        return errno == EAGAIN || errno == EINTR ? RECEIPT_NOTHING : RECEIPT_END;
    collect_descriptors(&header, message);
    if (received == 0 && message->fd_count == 0)
        return RECEIPT_END;
    if ((header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) == 0 && open_message(message, (size_t)received))
        return RECEIPT_MESSAGE;
    wire_release(message);
    return RECEIPT_MALFORMED;
}

void wire_release(struct message *message)
{
    for (unsigned i = 0; i < message->fd_count; i++)
        close(message->fds[i]);
    message->fd_count = 0;
    free(message->owned);
    message->owned = NULL;
}

static void attach(struct msghdr *header, char *control, const int *fds, unsigned count)
{
    size_t size = count * sizeof *fds;
    header->msg_control = control;
    header->msg_controllen = CMSG_SPACE(size);
    memset(control, 0, header->msg_controllen);
    struct cmsghdr *c = CMSG_FIRSTHDR(header);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(size);
    memcpy(CMSG_DATA(c), fds, size);
}

bool wire_send(int socket, uint8_t type, const void *payload, size_t length, int fd, bool may_block)
{
    return wire_send_fds(socket, type, payload, length, &fd, fd >= 0, may_block);
}

bool wire_send_fds(int socket, uint8_t type, const void *payload, size_t length, const int *fds,
                   unsigned count, bool may_block)
{
    uint8_t head[WIRE_HEADER_BYTES] = {type};
    uint32_t size = htole32((uint32_t)length);
    memcpy(head + 4, &size, sizeof size);
    struct iovec parts[2] = {{head, sizeof head}, {(void *)payload, length}};
    struct msghdr header = {.msg_iov = parts, .msg_iovlen = 2};
    union {
        char bytes[CMSG_SPACE(WIRE_FDS_MAX * sizeof(int))];
        struct cmsghdr align;
    } control;
    if (count > 0)
        attach(&header, control.bytes, fds, count);
    for (;;) {
        if (sendmsg(socket, &header, MSG_NOSIGNAL | (may_block ? 0 : MSG_DONTWAIT)) >= 0)
            return true;
        if (errno == EINTR)
            continue;
        if (errno != EAGAIN || !may_block)
            return false;
        struct pollfd room = {.fd = socket, .events = POLLOUT};
        poll(&room, 1, -1);
    }
}

static void take_bytes(struct cursor *cursor, void *into, size_t size)
{
    memset(into, 0, size);
    if (cursor->bad || (size_t)(cursor->end - cursor->at) < size) {
        cursor->bad = true;
        return;
    }
    memcpy(into, cursor->at, size);
    cursor->at += size;
}

uint16_t take_u16(struct cursor *cursor)
{
    uint16_t value;
    take_bytes(cursor, &value, sizeof value);
    return le16toh(value);
}

uint32_t take_u32(struct cursor *cursor)
{
    uint32_t value;
    take_bytes(cursor, &value, sizeof value);
    return le32toh(value);
}

uint64_t take_u64(struct cursor *cursor)
{
    uint64_t value;
    take_bytes(cursor, &value, sizeof value);
    return le64toh(value);
}

char *take_string(struct cursor *cursor)
{
    static char nothing[1];
    uint32_t length = take_u32(cursor);
    if (cursor->bad || (size_t)(cursor->end - cursor->at) < length ||
        memchr(cursor->at, 0, length) != NULL) {
        cursor->bad = true;
        return nothing;
    }
    /* The length before the string has been read: its last byte makes room for the NUL. */
    char *string = (char *)cursor->at - 1;
    memmove(string, cursor->at, length);
    string[length] = 0;
    cursor->at += length;
    return string;
}

uint32_t take_count(struct cursor *cursor, size_t item_bytes)
{
    uint32_t count = take_u32(cursor);
    if (!cursor->bad && count > (size_t)(cursor->end - cursor->at) / item_bytes)
        cursor->bad = true;
    return cursor->bad ? 0 : count;
}

bool cursor_done(const struct cursor *cursor)
{
    return !cursor->bad && cursor->at == cursor->end;
}

void put_bytes(struct writer *writer, const void *bytes, size_t size)
{
    if (sizeof writer->bytes - writer->length < size)
        return;
    memcpy(writer->bytes + writer->length, bytes, size);
    writer->length += size;
}

void put_u32(struct writer *writer, uint32_t value)
{
    value = htole32(value);
    put_bytes(writer, &value, sizeof value);
}

void put_u64(struct writer *writer, uint64_t value)
{
    value = htole64(value);
    put_bytes(writer, &value, sizeof value);
}

void put_text(struct writer *writer, const char *text)
{
    size_t length = strnlen(text, WIRE_TEXT_MAX);
    put_u32(writer, (uint32_t)length);
    put_bytes(writer, text, length);
}
