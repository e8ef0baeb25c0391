/* The shim: the process that holds one task. It outlives the agent, keeps the lease, and knows how the task ended.
 *
 * Theory of operation
 * -------------------
 * Birth. It is a fork of the zygote (zygote.c), process 1 of a PID namespace, with one end of a socket pair on descriptor
 * 3, on which the agent sends an order: what to make, what the program is, what to undo, and the sentences that go with it.
 * All that needs thinking was thought when the order was written (script.py); here it is checked for its form and done. The
 * shim makes everything (directories, cgroup, network namespace, its listening socket), says "prepared", and waits for
 * "keep", which may have come with the order. A connection that ends before that (the agent was cancelled, or killed) means that nobody knows of this task: the
 * shim removes all that it made.
 *
 * Life. It lives in the task's network namespace; its files are the host's, and it is outside the task's cgroup. Agents
 * connect to its socket; a request is one line of JSON, the answer another. One loop over poll, no thread. See task.c.
 *
 * Death. `remove` is its last act. When it is killed, the kernel kills the whole PID namespace with it; the agent (or the
 * next one) finds the rest by the task id in the command line, the cgroup's name and the directories'.
 *
 * Why C: a task is started and ended by this process and the program's own, and as forks of a Python process those two cost
 * several times as much processor time.
 *
 * beeyard-shim --check reads an order from its standard input and says what it has understood; with --check-requests,
 * lines. Neither does anything. They are for tests, which want to be wrong without a host that pays for it.
 */
#include "shim.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

static void stand_apart(void) {
    sigset_t mine;
    sigemptyset(&mine);
    sigaddset(&mine, SIGCHLD);
    sigaddset(&mine, SIGTERM);
    sigprocmask(SIG_SETMASK, &mine, NULL); /* read from a descriptor, see task.c */
    signal(SIGTERM, SIG_DFL);
    /* -900: under pressure the kernel takes the task, whose end a shim can tell, long before the shim. In a container without
     * CAP_SYS_RESOURCE it stays as it is. */
    write_file("/proc/self/oom_score_adj", "-900", 4, 0);
}

/* Do what comes before "begin". 0: done; 1: the task is here already; -1: `failure` says why not. */
static int prepare(const struct order *order) {
    bool claimed = false;
    for (int i = 0; i < order->first_of_start; i++) {
        const struct record *step = &order->records[i];
        bool done = true;
        if (step->op == OP_CLAIM) {
            if (mkdir(step->fields[0], 0700) != 0) return errno == EEXIST ? 1 : (fail_errno(step->fields[0]), -1);
            claimed = true;
        } else if (step->op == OP_BLOB) {
            done = write_file(step->fields[0], order->blob, order->blob_bytes, O_CREAT | O_EXCL) || fail_errno(step->fields[0]);
        } else {
            done = run_step(step);
        }
        if (done) continue;
        if (claimed) { /* what cannot be undone now is found by the agent's next life */
            char why[FAILURE_BYTES];
            memcpy(why, failure, sizeof why);
            undo(order);
            memcpy(failure, why, sizeof why);
        }
        return -1;
    }
    return 0;
}

/* The task's socket. Its path goes through a descriptor: a socket's path may have 107 bytes only. */
static int listen_in(const char *directory) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    int fd = open(directory, O_PATH | O_DIRECTORY | O_CLOEXEC);
    snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/sock", fd);
    bool done = listener >= 0 && fd >= 0 && bind(listener, (struct sockaddr *)&address, sizeof address) == 0 &&
                listen(listener, 64) == 0;
    if (!done) fail("cannot listen in %s: %s", directory, strerror(errno));
    if (fd >= 0) close(fd);
    return done ? listener : -1;
}

static int start_lease(uint64_t lease_ns) {
    /* This clock also counts the time that the machine is suspended. */
    int timer = timerfd_create(CLOCK_BOOTTIME, TFD_NONBLOCK | TFD_CLOEXEC);
    if (timer < 0) fail_errno("timerfd_create");
    else set_lease(timer, lease_ns);
    return timer;
}

static int host_pid(void) {
    char pid[32] = "";
    return readlink("/proc/self", pid, sizeof pid - 1) > 0 ? atoi(pid) : 0; /* /proc is the host's here */
}

/* Whether the agent has gone on without waiting to hear that the task is prepared. */
static bool is_hasty(struct peer *agent) {
    (void)!receive(agent);
    return memchr(agent->received, '\n', agent->n_received);
}

/* Whether the agent takes the task over. */
static bool is_kept(struct peer *agent) {
    const char *line;
    size_t n_bytes;
    struct request request;
    int found;
    fcntl(agent->fd, F_SETFL, 0);
    while ((found = next_line(agent, &line, &n_bytes)) == 0) {
        char *room = agent->received + agent->n_received;
        ssize_t n = recv(agent->fd, room, sizeof agent->received - agent->n_received, 0);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        agent->n_received += (size_t)n;
    }
    if (found > 0 && parse_request(line, n_bytes, &request) && request.operation == OP_KEEP) return true;
    answer_error(agent, "malformed request: a task that was prepared is kept, or it is undone");
    return false;
}

void hold_task(void) {
    struct order order;
    stand_apart();
    struct peer *agent = add_peer(AGENT_FD);
    int got = read_order(AGENT_FD, &order);
    if (got == 0) return; /* the agent gave up before it had asked for anything */
    int prepared = got < 0 ? -1 : prepare(&order);
    if (prepared > 0) {
        answer(agent, "{\"stale\": true}");
        return;
    }
    if (prepared < 0) {
        answer_error(agent, failure);
        return;
    }
    int listener = listen_in(order.task.fields[TASK_DIRECTORY]), lease = -1;
    if (listener >= 0) lease = start_lease(number(&order.task, TASK_LEASE_NS));
    if (lease >= 0) {
        introduce(&order, host_pid());
        if (!is_hasty(agent)) tell(agent);
        if (is_kept(agent)) serve(listener, lease, agent);
        undo(&order);
        return;
    }
    char why[FAILURE_BYTES];
    memcpy(why, failure, sizeof why);
    undo(&order);
    answer_error(agent, why);
}

/* --- for tests ----------------------------------------------------------------------------------------------------- */

static int check_order(void) {
    struct order order;
    int got = read_order(0, &order);
    if (got == 0) fail("malformed order: it has no end");
    if (got <= 0) {
        puts(failure);
        return 1;
    }
    printf("%d records, %d before the program, %zu bytes of blob\n", order.n_records, order.first_of_start, order.blob_bytes);
    return 0;
}

static int check_requests(void) {
    char *line = NULL;
    size_t room = 0;
    for (ssize_t n; (n = getline(&line, &room, stdin)) > 0;) {
        struct request request = {0};
        char quoted[6 * FAILURE_BYTES + 8];
        if (line[n - 1] == '\n') line[--n] = 0;
        if (parse_request(line, (size_t)n, &request)) {
            printf("%d %d %lu\n", request.operation, request.links_first, (unsigned long)request.remaining_ns);
        } else {
            quote(quoted, sizeof quoted, failure);
            puts(quoted);
        }
    }
    free(line);
    return 0;
}

#ifdef __SANITIZE_ADDRESS__
/* What is reserved is kept to the end of the process, which gives it back. */
const char *__asan_default_options(void);
const char *__asan_default_options(void) { return "detect_leaks=0"; }
#endif

int main(int n_arguments, char **arguments) {
    if (n_arguments > 2 && strcmp(arguments[0], "beeyard-zygote") == 0) return be_zygote(n_arguments, arguments);
    if (n_arguments == 2 && strcmp(arguments[1], "--check") == 0) return check_order();
    if (n_arguments == 2 && strcmp(arguments[1], "--check-requests") == 0) return check_requests();
    fputs("beeyard-shim: agents start it, as beeyard-zygote, with a socket on descriptor 3\n", stderr);
    return 2;
}
