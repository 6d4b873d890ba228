/*
 * PID 1 of a container that the daemon reaches only through an engine's attach API.
 *
 * There is no socket to the daemon. Its messages lie in a folder (setup, exec, and perhaps payload and
 * filter). This process forks an init and passes it the messages, with the container's stdio for the
 * command. Answers of the init and the command's reaper are written to the error stream (or the
 * terminal), each after a secret that only the daemon and this process know. The secret came in this
 * process's environment, which no process inside can read. The daemon sends a marker signal before each
 * signal to select its target; a SIGTERM without a marker comes from the engine, which stops the
 * container.
 */
#include "init.h"
#include "command/command.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define WORD_MAX 64
#define FROM_CONTROL 'c'
#define FROM_CHANNEL 'k'
#define NEXT_TO_MAIN 63
#define NEXT_TO_TREE 62

struct carrier {
    char word[WORD_MAX + 1];
    int folder;
    int control;
    int channel;
    int signals;
    int out;
    int next_to;
    bool terminal;
};

static uint8_t message[WIRE_MESSAGE_MAX];
static char line[WORD_MAX + 16 + 2 * WIRE_MESSAGE_MAX];

/* Without line ends, which a terminal would change; in one write, so that small ones stay whole. */
static void tell(const struct carrier *carrier, char from, size_t length)
{
    int at = snprintf(line, sizeof line, "%s%c%08zx", carrier->word, from, length);
    for (size_t i = 0; i < length; i++)
        at += snprintf(line + at, 3, "%02x", message[i]);
    for (int done = 0; done < at;) {
        ssize_t n = write(carrier->out, line + done, (size_t)(at - done));
        if (n < 0 && errno != EINTR)
            return;
        done += n > 0 ? (int)n : 0;
    }
}

static noreturn void leave(void)
{
    kill(-1, SIGKILL);
    _exit(INIT_DONE);
}

/* Forwards one message; false when the other side has closed. */
static bool pass_on(const struct carrier *carrier, int socket, char from)
{
    ssize_t length;
    do
        length = recv(socket, message, sizeof message, 0);
    while (length < 0 && errno == EINTR);
    if (length <= 0)
        return false;
    /* Evidence is not forwarded: it may be long. */
    if (from == FROM_CONTROL || message[0] <= MESSAGE_GONE)
        tell(carrier, from, (size_t)length);
    return true;
}

static int open_part(const struct carrier *carrier, const char *name)
{
    return openat(carrier->folder, name, O_RDONLY | O_CLOEXEC);
}

static bool send_part(const struct carrier *carrier, const char *name, const int *fds, size_t count)
{
    int fd = open_part(carrier, name);
    ssize_t length = fd < 0 ? -1 : read(fd, message, sizeof message);
    if (length < 0)
        return false;
    close(fd);
    union {
        char bytes[CMSG_SPACE(WIRE_FDS_MAX * sizeof(int))];
        struct cmsghdr align;
    } rights;
    struct iovec part = {.iov_base = message, .iov_len = (size_t)length};
    struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1};
    if (count > 0) {
        memset(&rights, 0, sizeof rights);
        header.msg_control = rights.bytes;
        header.msg_controllen = CMSG_SPACE(count * sizeof(int));
        struct cmsghdr *first = CMSG_FIRSTHDR(&header);
        first->cmsg_level = SOL_SOCKET;
        first->cmsg_type = SCM_RIGHTS;
        first->cmsg_len = CMSG_LEN(count * sizeof(int));
        memcpy(CMSG_DATA(first), fds, count * sizeof(int));
    }
    return sendmsg(carrier->control, &header, MSG_NOSIGNAL) == length;
}

/* The descriptors in the order in which the init takes them. */
static bool send_exec(const struct carrier *carrier, int theirs)
{
    int fds[WIRE_FDS_MAX];
    size_t count = 0;
    int payload = open_part(carrier, "payload");
    if (payload >= 0)
        fds[count++] = payload;
    fds[count++] = theirs;
    int filter = open_part(carrier, "filter");
    if (filter >= 0)
        fds[count++] = filter;
    for (int fd = 0; fd < (carrier->terminal ? 1 : 3); fd++)
        fds[count++] = fd;
    return send_part(carrier, "exec", fds, count);
}

static void pass_signal(struct carrier *carrier, uint32_t number)
{
    struct writer writer;
    writer.length = 0;
    put_u32(&writer, number);
    put_u32(&writer, carrier->next_to == NEXT_TO_TREE ? SCOPE_TREE : SCOPE_MAIN);
    wire_send(carrier->channel, MESSAGE_SIGNAL, writer.bytes, writer.length, -1, false);
    carrier->next_to = 0;
}

static bool is_marker(const struct signalfd_siginfo *info)
{
    return info->ssi_signo == NEXT_TO_MAIN || info->ssi_signo == NEXT_TO_TREE;
}

/* Reads all pending signals: the kernel returns lower numbers first, and markers are high. */
static void on_signals(struct carrier *carrier)
{
    struct signalfd_siginfo infos[32];
    ssize_t size = read(carrier->signals, infos, sizeof infos);
    size_t count = size > 0 ? (size_t)size / sizeof infos[0] : 0;
    for (size_t i = 0; i < count; i++)
        if (infos[i].ssi_pid == 0 && carrier->next_to == 0 && is_marker(&infos[i]))
            carrier->next_to = (int)infos[i].ssi_signo;
    for (size_t i = 0; i < count; i++) {
        bool outside = infos[i].ssi_pid == 0; /* signals from commands are ignored */
        if (infos[i].ssi_signo == SIGCHLD)
            while (waitpid(-1, NULL, WNOHANG | __WALL) > 0)
                continue;
        else if (outside && carrier->next_to != 0 && !is_marker(&infos[i]))
            pass_signal(carrier, infos[i].ssi_signo);
        else if (outside && infos[i].ssi_signo == SIGTERM)
            leave();
    }
}

static noreturn void carry(struct carrier *carrier)
{
    int pair[2];
    if (!send_part(carrier, "setup", NULL, 0) ||
        !pass_on(carrier, carrier->control, FROM_CONTROL) || message[0] != MESSAGE_READY ||
        socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
        leave();
    carrier->channel = pair[0];
    /* PID 1 owns the terminal; the command's session can take it only after it is released. */
    if (carrier->terminal)
        ioctl(0, TIOCNOTTY);
    if (!send_exec(carrier, pair[1]))
        leave();
    close(pair[1]);
    close(0); /* only the command reads it; a copy here would keep its input open */
    for (;;) {
        struct pollfd fds[] = {
            {.fd = carrier->channel, .events = POLLIN},
            {.fd = carrier->control, .events = POLLIN},
            {.fd = carrier->signals, .events = POLLIN},
        };
        if (poll(fds, 3, -1) < 0)
            continue;
        if (fds[2].revents != 0)
            on_signals(carrier);
        if (fds[1].revents != 0 && !pass_on(carrier, carrier->control, FROM_CONTROL))
            leave();
        if (fds[0].revents != 0 && !pass_on(carrier, carrier->channel, FROM_CHANNEL))
            leave();
    }
}

/* Engines before 23 give a terminal its size only after the start. */
static void size_terminal(const char *rows, const char *columns)
{
    struct winsize size = {.ws_row = (unsigned short)atoi(rows),
                           .ws_col = (unsigned short)atoi(columns)};
    ioctl(0, TIOCSWINSZ, &size);
}

int attach_bridge_open(int argc, char **argv)
{
    struct carrier carrier = {.out = 2};
    const char *word = getenv("SANDBOXD_WORD");
    sigset_t all;
    int pair[2];
    if (word == NULL || strlen(word) > WORD_MAX || getpid() != 1)
        return -1;
    strcpy(carrier.word, word);
    carrier.folder = open(argv[2], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (carrier.folder < 0 || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
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
    carrier.control = pair[0];
    carrier.terminal = isatty(0) != 0;
    if (carrier.terminal && argc > 4)
        size_terminal(argv[3], argv[4]);
    carrier.signals = signalfd(-1, &all, SFD_CLOEXEC | SFD_NONBLOCK);
    carry(&carrier);
}
