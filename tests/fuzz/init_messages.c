/*
 * The init's readers of messages, fed from stdin: built with the sanitizers, without the init.
 *
 * stdin: records of u32 size, u8 descriptors, u8 payload in a descriptor (0 or 1), bytes. A message
 * goes through a socket to wire_receive and then to the reader of its type, whatever that is; the
 * same bytes go to the reader of DNS queries. stdout: one line for each, "kind outcome fields".
 */
#include "evidence/evidence.h"
#include "init.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#define RECORD_MAX (1 << 20)

static unsigned count(char **strings)
{
    unsigned n = 0;
    size_t bytes = 0;
    for (; strings != NULL && strings[n] != NULL; n++)
        bytes += strlen(strings[n]); /* reads every byte of each */
    return n + (unsigned)(bytes & 0);
}

static void close_if(int fd)
{
    if (fd >= 0)
        close(fd);
}

static void read_setup(struct message *message)
{
    struct setup_request request;
    const char *why = decode_setup(message, &request);
    printf("setup %s", why != NULL ? why : "ok");
    if (why == NULL) {
        size_t bytes = 0;
        for (uint32_t i = 0; i < request.check_count; i++)
            bytes += strlen(request.checks[i].path);
        for (uint32_t i = 0; i < request.rule_count; i++)
            bytes += strlen(request.rules[i].path);
        printf(" %u %u %zu", (unsigned)request.check_count, (unsigned)request.rule_count, bytes);
    }
    putchar('\n');
    close_if(request.ruleset);
    close_if(request.cgroup);
    free_setup(&request);
}

static void read_exec(struct message *message)
{
    struct exec_request request;
    const char *why = decode_exec(message, &request);
    printf("exec %s", why != NULL ? why : "ok");
    if (why == NULL)
        printf(" %u %u %zu %u", count(request.argv), count(request.env), strlen(request.cwd),
               (unsigned)request.rlimit_count);
    putchar('\n');
    close_if(request.channel);
    close_if(request.filter);
    close_if(request.cgroup);
    close_if(request.terminal);
    for (int i = 0; i < 3; i++)
        close_if(request.stdio[i]);
    free_exec(&request);
}

static void read_message(int socket)
{
    struct message message;
    enum receipt receipt = wire_receive(socket, &message);
    if (receipt != RECEIPT_MESSAGE) {
        puts(receipt == RECEIPT_MALFORMED ? "malformed" : "nothing");
        return;
    }
    struct signal_request signal_request;
    const char *why;
    int passed;
    switch (message.type) {
    case MESSAGE_SETUP:
        read_setup(&message);
        break;
    case MESSAGE_EXEC:
        read_exec(&message);
        break;
    case MESSAGE_SIGNAL:
        why = decode_signal(&message, &signal_request);
        printf("signal %s\n", why != NULL ? why : "ok");
        break;
    case MESSAGE_CLONE:
    case MESSAGE_ENTER:
        why = decode_for_template(&message, &passed);
        printf("%s %s\n", message.type == MESSAGE_CLONE ? "clone" : "enter", why != NULL ? why : "ok");
        close_if(passed);
        break;
    default:
        puts("other");
    }
    wire_release(&message);
}

static void send_message(int socket, const uint8_t *bytes, size_t size, unsigned fds, bool in_fd)
{
    int passed[WIRE_FDS_MAX + 1];
    unsigned sent = 0;
    size_t head = size;
    if (in_fd && size > WIRE_HEADER_BYTES) {
        int payload = memfd_create("payload", MFD_CLOEXEC);
        head = WIRE_HEADER_BYTES;
        if (write(payload, bytes + head, size - head) != (ssize_t)(size - head))
            abort();
        passed[sent++] = payload;
    }
    while (sent < fds && sent < WIRE_FDS_MAX)
        passed[sent++] = open("/dev/null", O_RDONLY | O_CLOEXEC);
    union {
        char bytes[CMSG_SPACE(sizeof passed)];
        struct cmsghdr align;
    } control = {0};
    struct iovec part = {.iov_base = (void *)bytes, .iov_len = head};
    struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1};
    if (sent > 0) {
        header.msg_control = control.bytes;
        header.msg_controllen = CMSG_SPACE(sent * sizeof(int));
        struct cmsghdr *rights = CMSG_FIRSTHDR(&header);
        rights->cmsg_level = SOL_SOCKET;
        rights->cmsg_type = SCM_RIGHTS;
        rights->cmsg_len = CMSG_LEN(sent * sizeof(int));
        memcpy(CMSG_DATA(rights), passed, sent * sizeof(int));
    }
    sendmsg(socket, &header, MSG_DONTWAIT);
    for (unsigned i = 0; i < sent; i++)
        close(passed[i]);
}

int main(void)
{
    static uint8_t bytes[RECORD_MAX];
    char name[LOOKUP_NAME_MAX + 1];
    uint32_t size;
    uint8_t fds, in_fd;
    int room = 1 << 20;
    while (fread(&size, sizeof size, 1, stdin) == 1 && fread(&fds, 1, 1, stdin) == 1 &&
           fread(&in_fd, 1, 1, stdin) == 1) {
        int ends[2];
        if (size > sizeof bytes || fread(bytes, 1, size, stdin) != size ||
            socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
            return 3;
        setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
        /* A copy of exactly this size: a byte beyond it is the sanitizer's. */
        uint8_t *copy = malloc(size > 0 ? size : 1);
        memcpy(copy, bytes, size);
#ifdef PLANTED_FAULT
        if (size > 0 && copy[size] == 0) /* shows that a fault is found */
            putchar(0);
#endif
        if (lookup_name(copy, size, name) && strlen(name) > LOOKUP_NAME_MAX)
            abort();
        send_message(ends[0], copy, size, fds, in_fd != 0);
        free(copy);
        read_message(ends[1]);
        close(ends[0]);
        close(ends[1]);
    }
    return fflush(stdout) == 0 ? 0 : 4;
}
