/* beeyard-zygote STATE_DIR COMMAND…: the process that starts others for one life of an agent. Single-threaded and small, so
 * that a fork of it is cheap and safe.
 *
 * A request is one datagram on descriptor 3 with the descriptor of a socket on which its child answers, and perhaps more.
 * For a task, it is "beeyard-shim", the state directory and the task's id, each with a zero byte: the child is a fork of
 * this process in a PID namespace of its own that becomes the shim (main.c) without executing anything, and what it shows
 * as its command line. All else, which is seldom, goes on as it came to the helper (agent/executors/process/helper.py),
 * which COMMAND starts when there is something for it, and again when it was killed. No request waits for another.
 *
 * It ends when the agent does, and with it the helper; shims go on.
 */
#include "shim.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* 64 KiB: a request holds paths and an id, or the environment of a hook. */
#define DATAGRAM_BYTES_MAX 65536
#define FDS_MAX 4 /* a socket to answer on, and the streams of a hook */
#define HELPER_FD 3
static const char SHIM[] = "beeyard-shim"; /* with its zero byte */

struct message {
    size_t n_bytes;
    int n_fds;
    int fds[FDS_MAX];
    char data[DATAGRAM_BYTES_MAX];
};

static struct { char *begin, *end; } title; /* where this process's command line is, and a child's */
static char **helper_command;
static pid_t helper_pid;
static int helper_socket = -1, null;

/* --- shims --------------------------------------------------------------------------------------------------------- */

/* What `ps` shows, and by what tasks are found; as far as there is room. */
static void set_title(const char *text, size_t n_bytes) {
    size_t room = (size_t)(title.end - title.begin); /* the zero byte at the end stays */
    memset(title.begin, 0, room);
    memcpy(title.begin, text, n_bytes < room ? n_bytes : room);
    prctl(PR_SET_NAME, text, 0, 0, 0);
}

static _Noreturn void become_shim(const struct message *request) {
    for (int i = 0; i < 3; i++) dup2(null, i); /* a shim outlives whoever reads the agent's standard error */
    dup3(request->fds[0], AGENT_FD, O_CLOEXEC); /* in place of the zygote's own */
    syscall(SYS_close_range, AGENT_FD + 1u, ~0u, 0u);
    set_title(request->data, request->n_bytes);
    hold_task();
    _exit(0);
}

static void start_shim(const struct message *request) {
    char text[128];
    /* As fork(2), but that the child is process 1 of a PID namespace. */
    long pid = syscall(SYS_clone, CLONE_NEWPID | SIGCHLD, 0, 0, 0, 0);
    if (pid == 0) become_shim(request);
    if (pid > 0) return;
    int n = snprintf(text, sizeof text, "{\"error\": \"cannot start a shim: %s\"}\n", strerror(errno));
    (void)!send(request->fds[0], text, (size_t)n, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* --- the helper ---------------------------------------------------------------------------------------------------- */

static void forget_helper(void) {
    if (helper_socket >= 0) close(helper_socket);
    helper_socket = -1;
}

static bool start_helper(void) {
    int ends[2];
    sigset_t none;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return false;
    helper_pid = fork();
    if (helper_pid == 0) {
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
        dup2(ends[1], HELPER_FD); /* never the same: the agent's is there */
        execv(helper_command[0], helper_command);
        _exit(127);
    }
    close(ends[1]);
    helper_socket = ends[0];
    if (helper_pid < 0) forget_helper();
    return helper_pid > 0;
}

static bool send_on(const struct message *request) {
    struct iovec data = {(void *)request->data, request->n_bytes};
    union { struct cmsghdr header; char room[CMSG_SPACE(sizeof request->fds)]; } control = {0};
    size_t fds_bytes = sizeof(int) * (size_t)request->n_fds;
    struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = CMSG_SPACE(fds_bytes)};
    control.header = (struct cmsghdr){CMSG_LEN(fds_bytes), SOL_SOCKET, SCM_RIGHTS};
    memcpy(CMSG_DATA(&control.header), request->fds, fds_bytes);
    return sendmsg(helper_socket, &message, MSG_NOSIGNAL) >= 0;
}

/* Whoever asked sees its socket end when this is in vain. */
static void pass_on(const struct message *request) {
    for (int tries = 0; tries < 2; tries++) {
        if (helper_socket < 0 && !start_helper()) return;
        if (send_on(request)) return;
        forget_helper(); /* it was killed */
    }
}

/* --- loop ---------------------------------------------------------------------------------------------------------- */

static bool receive_message(struct message *into) {
    struct iovec data = {into->data, sizeof into->data};
    union { struct cmsghdr header; char room[CMSG_SPACE(sizeof into->fds)]; } control;
    struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    ssize_t n = recvmsg(AGENT_FD, &message, MSG_CMSG_CLOEXEC);
    if (n < 0) return errno == EINTR;
    into->n_bytes = (size_t)n;
    into->n_fds = 0;
    for (struct cmsghdr *at = CMSG_FIRSTHDR(&message); at; at = CMSG_NXTHDR(&message, at)) {
        if (at->cmsg_level != SOL_SOCKET || at->cmsg_type != SCM_RIGHTS) continue;
        into->n_fds = (int)((at->cmsg_len - CMSG_LEN(0)) / sizeof(int));
        memcpy(into->fds, CMSG_DATA(at), sizeof(int) * (size_t)into->n_fds); /* no more than there was room for */
    }
    return n > 0;
}

static void reap_children(int signals) {
    struct signalfd_siginfo got;
    (void)!read(signals, &got, sizeof got);
    for (pid_t pid; (pid = waitpid(-1, NULL, WNOHANG)) > 0;) {
        if (pid == helper_pid) forget_helper();
    }
}

/* What the agent's parent may have ignored or blocked has its default again, here and in every child. */
static int set_signals(void) {
    sigset_t children;
    for (int i = 1; i < NSIG; i++) signal(i, SIG_DFL);
    for (int i = 0; i < N_IGNORED; i++) signal(IGNORED[i], SIG_IGN);
    signal(SIGTERM, SIG_IGN); /* at shutdown: shims stop their tasks, the zygote ends with the agent */
    sigemptyset(&children);
    sigaddset(&children, SIGCHLD);
    sigprocmask(SIG_SETMASK, &children, NULL);
    return signalfd(-1, &children, SFD_CLOEXEC | SFD_NONBLOCK);
}

int be_zygote(int n_arguments, char **arguments) {
    static struct message request;
    if (n_arguments < 3) return 2;
    title.begin = arguments[0];
    title.end = arguments[n_arguments - 1] + strlen(arguments[n_arguments - 1]);
    helper_command = arguments + 2;
    prctl(PR_SET_NAME, "beeyard-zygote", 0, 0, 0);
    setsid(); /* shims are in its session: to make one for each costs more than what that one is good for */
    umask(022);
    fcntl(AGENT_FD, F_SETFD, FD_CLOEXEC);
    int signals = set_signals();
    null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (chdir("/") != 0 || signals < 0 || null < 0) return 1;
    for (;;) {
        struct pollfd ready[] = {{.fd = AGENT_FD, .events = POLLIN}, {.fd = signals, .events = POLLIN}};
        if (poll(ready, 2, -1) < 0 && errno != EINTR) return 1;
        if (ready[1].revents) reap_children(signals);
        if (!ready[0].revents) continue;
        if (!receive_message(&request)) return 0;
        bool is_shim = request.n_bytes >= sizeof SHIM && memcmp(request.data, SHIM, sizeof SHIM) == 0;
        if (request.n_fds && is_shim) start_shim(&request);
        else if (request.n_fds) pass_on(&request);
        for (int i = 0; i < request.n_fds; i++) close(request.fds[i]);
    }
}
