/*
 * File operations for the daemon's file methods, and connections for its forwards, carried out by a
 * process of the sandbox.
 *
 * The process went through everything that a command goes through (rlimits, Landlock, seccomp,
 * credentials) and serves requests instead of executing a program: it can do nothing that a command
 * could not do. It reads requests on its stdin and answers on its stdout, one at a time. It is not
 * dumpable, like the init that it was forked from.
 *
 * A request is u32 length, u8 operation and the fields; an answer u32 length, u32 errno and the
 * fields. Numbers are little-endian; a string is u32 length and bytes without NUL.
 */
#include "file_server.h"
#include "../notify/notify.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define REQUEST_MAX (17u << 20)
#define ANSWER_MAX (9u << 20)
#define CONNECT_MS 5000

enum file_operation {
    FILE_READ = 1,
    FILE_WRITE = 2,
    FILE_STAT = 3,
    FILE_LIST = 4,
    FILE_MKDIR = 5,
    FILE_REMOVE = 6,
    FILE_RENAME = 7,
    FILE_COPY = 8,
    FILE_REALPATH = 9,
    FILE_CONNECT = 10,
};

struct answer {
    uint8_t *bytes;
    size_t length;
    size_t room;
};

static struct answer answer;
/* Goes with the answer; -1 for none. */
static int passed = -1;

/* False when the answer would be too large. */
bool answer_add(const void *bytes, size_t size)
{
    if (size > ANSWER_MAX - answer.length)
        return false;
    if (answer.length + size > answer.room) {
        size_t room = (answer.length + size) * 2;
        uint8_t *grown = realloc(answer.bytes, room);
        if (grown == NULL)
            return false;
        answer.bytes = grown;
        answer.room = room;
    }
    memcpy(answer.bytes + answer.length, bytes, size);
    answer.length += size;
    return true;
}

bool answer_u32(uint32_t value)
{
    return answer_add(&value, sizeof value);
}

bool answer_u64(uint64_t value)
{
    return answer_add(&value, sizeof value);
}

bool answer_string(const char *text, size_t length)
{
    return answer_u32((uint32_t)length) && answer_add(text, length);
}

static uint8_t type_of(mode_t mode)
{
    return (uint8_t)((mode & S_IFMT) >> 12);
}

bool answer_status(const struct stat *status)
{
    uint8_t type = type_of(status->st_mode);
    int64_t mtime_ms = (int64_t)status->st_mtim.tv_sec * 1000 + status->st_mtim.tv_nsec / 1000000;
    return answer_add(&type, 1) && answer_u64((uint64_t)status->st_size) && answer_u32(status->st_mode & 07777) &&
           answer_u32(status->st_uid) && answer_u64((uint64_t)mtime_ms);
}

size_t answer_length(void)
{
    return answer.length;
}

void answer_cut(size_t length)
{
    answer.length = length;
}

void answer_patch(size_t at, const void *bytes, size_t size)
{
    memcpy(answer.bytes + at, bytes, size);
}

static int connect_to(int family, const void *address, unsigned length)
{
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    /* Past the filter that lets the init make connections for commands: this is its own code. */
    int done = notify_connect(fd, address, length);
    if (done != 0 && errno == EINPROGRESS) {
        struct pollfd ready = {.fd = fd, .events = POLLOUT};
        int error = 0;
        socklen_t size = sizeof error;
        if (poll(&ready, 1, CONNECT_MS) == 1 &&
            getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error == 0)
            done = 0;
        else
            errno = error != 0 ? error : ETIMEDOUT;
    }
    if (done == 0)
        return fd;
    int error = errno;
    close(fd);
    errno = error;
    return -1;
}

/* A connection to a port of this machine's loopback, handed to the daemon. */
static int do_connect(struct cursor *cursor)
{
    uint32_t port = take_u32(cursor);
    if (cursor->bad || port == 0 || port > 65535)
        return EINVAL;
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port),
                               .sin_addr = {htonl(INADDR_LOOPBACK)}};
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port),
                               .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    passed = connect_to(AF_INET, &four, sizeof four);
    if (passed < 0 && errno == ECONNREFUSED)
        passed = connect_to(AF_INET6, &six, sizeof six);
    return passed >= 0 ? 0 : errno;
}

static int carry_out(uint8_t operation, struct cursor *cursor)
{
    switch (operation) {
    case FILE_READ:
        return do_read(cursor);
    case FILE_WRITE:
        return do_write(cursor);
    case FILE_STAT:
        return do_stat(cursor);
    case FILE_LIST:
        return do_list(cursor);
    case FILE_MKDIR:
        return do_mkdir(cursor);
    case FILE_REMOVE:
        return do_remove(cursor);
    case FILE_RENAME:
        return do_rename(cursor);
    case FILE_COPY:
        return do_copy(cursor);
    case FILE_REALPATH:
        return do_realpath(cursor);
    case FILE_CONNECT:
        return do_connect(cursor);
    default:
        return ENOSYS;
    }
}

static bool read_exactly(void *into, size_t size)
{
    for (size_t got = 0; got < size;) {
        ssize_t count = read(0, (uint8_t *)into + got, size - got);
        if (count < 0 && errno == EINTR)
            continue;
        if (count <= 0)
            return false;
        got += (size_t)count;
    }
    return true;
}

/* The first byte carries the descriptor, if there is one. */
static bool send_answer(void)
{
    size_t sent = 0;
    if (passed >= 0) {
        char control[CMSG_SPACE(sizeof passed)] = {0};
        struct iovec first = {.iov_base = answer.bytes, .iov_len = 1};
        struct msghdr message = {.msg_iov = &first, .msg_iovlen = 1, .msg_control = control,
                                 .msg_controllen = sizeof control};
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(sizeof passed);
        memcpy(CMSG_DATA(header), &passed, sizeof passed);
        sent = sendmsg(1, &message, 0) == 1;
        close(passed);
        passed = -1;
        if (sent == 0)
            return false;
    }
    return write_all(1, answer.bytes + sent, answer.length - sent, -1) == 0;
}

noreturn void file_server(void)
{
    uint32_t length;
    file_content_begin();
    file_remove_begin();
    signal(SIGXFSZ, SIG_IGN); /* a file above the limit is EFBIG */
    while (read_exactly(&length, sizeof length) && length > 0 && length <= REQUEST_MAX) {
        uint8_t *request = malloc(length + 1);
        if (request == NULL || !read_exactly(request, length))
            break;
        struct cursor cursor = {.at = request + 1, .end = request + length, .bad = false};
        answer.length = 0;
        answer_u32(0);
        answer_u32(0);
        uint32_t error = (uint32_t)carry_out(request[0], &cursor);
        if (error != 0)
            answer.length = 8;
        uint32_t size = (uint32_t)answer.length - 4;
        memcpy(answer.bytes, &size, 4);
        memcpy(answer.bytes + 4, &error, 4);
        free(request);
        if (!send_answer())
            break;
        if (answer.room > 1u << 20) {
            free(answer.bytes);
            memset(&answer, 0, sizeof answer);
        }
    }
    _exit(0);
}
