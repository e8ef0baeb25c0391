/* One task's phases, and the loop that moves them.
 *
 * Phases are those of `runtime.host.Controller`: prepared → (starting →) started → exited, or prepared → exited when the
 * task is stopped first or its program cannot run. The end of a task that had started is in its file before anybody hears
 * of it.
 *
 * The answer to `start` comes when the program runs or cannot, that to `wait` and `stop` when the task has ended. Who starts
 * it with patience hears of both ends of a short task at once: each answer costs its agent more than a task its shim.
 *
 * Links go down when asked, when the lease has lapsed, and whenever the task ends; never up again. In a task that uses its
 * host's network nothing is touched. If they do not go down where nobody could be told, this process ends and takes the
 * task with it: its agent knows what to do with a task whose shim is gone.
 */
#include "shim.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define NEVER UINT64_MAX
/* More than most ends take; a longer one is written all the same. */
#define END_BYTES 200
static const char FULL[] = "{\"error\": \"its shim has no room for one more connection\"}\n";

static const struct order *order;
static enum { PREPARED, STARTING, STARTED, EXITED } phase;
static const char *const PHASES[] = {"prepared", "prepared", "started", "exited"};
static bool lapsed, stopping, has_ended; /* the last: with an exit code */
static char exit_text[2048] = "null";
static char no_start[FAILURE_BYTES] = "the task was stopped before it started"; /* why `start` is refused once it is over */
static const char *stopped_because = "", *killed_because = "";
static uint64_t kill_at = NEVER, tell_start_at = NEVER; /* CLOCK_MONOTONIC, ns */
static uint64_t patience_ns; /* of who had the program started */
static int lease_timer, program_pid, shim_pid;
static bool takes_output;

static const char *said(int field) { return order->say.fields[field]; }
static const char *of_task(int field) { return order->task.fields[field]; }

static uint64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

void set_lease(int timer, uint64_t remaining_ns) {
    struct itimerspec at = {.it_value = {(time_t)(remaining_ns / 1000000000u), (long)(remaining_ns % 1000000000u)}};
    if (!remaining_ns) at.it_value.tv_nsec = 1; /* zero would mean never */
    timerfd_settime(timer, 0, &at, NULL);
}

/* Answer with all that is known of the task. */
void tell(struct peer *peer) {
    if (phase == STARTED && !program_pid) program_pid = program_host_pid();
    answer(peer, "{\"phase\": \"%s\", \"pid\": %d, \"shim_pid\": %d, \"exit\": %s, \"lapsed\": %s}", PHASES[phase],
           program_pid, shim_pid, exit_text, lapsed ? "true" : "false");
}

/* Those that wait for the start hear of it now. */
static void tell_start(void) {
    tell_start_at = NEVER;
    for (struct peer *peer = peers; peer < peers + n_peers; peer++) {
        if (peer->fd && peer->starting) tell(peer);
        peer->starting = false;
    }
}

static bool links_down(void) {
    return !number(&order->task, TASK_OWN_NETWORK) || silence_links();
}

static void links_down_or_die(void) {
    if (!links_down()) _exit(1);
}

/* The file with the end of a task that has started. Who finds it without its shim takes it for the truth, so it is written
 * when the program is about to start, with what is true if this process is killed, and in place when more is known. */
static const char *end_path(void) {
    static char path[PATH_BYTES];
    if (!*path) snprintf(path, sizeof path, "%s/exit.json", of_task(TASK_DIRECTORY));
    return path;
}

/* Write it at once and with the same length, whole or not at all. Not synced, for a power cut ends every task of the host
 * anyway. */
static bool keep_end(const char *text) {
    char padded[sizeof exit_text];
    snprintf(padded, sizeof padded, "%-*s\n", END_BYTES, text);
    return write_file(end_path(), padded, strlen(padded), O_CREAT) || fail_errno(end_path());
}

/* --- ends ---------------------------------------------------------------------------------------------------------- */

/* The task is over; with an exit code when `has_ended`. */
static void end(void) {
    links_down_or_die();
    kill_at = tell_start_at = NEVER;
    if (has_ended) keep_end(exit_text); /* in vain on a full disk: this process still knows it */
    phase = EXITED;
    program_pid = 0;
    for (struct peer *peer = peers; peer < peers + n_peers; peer++) {
        if (peer->fd && peer->starting) has_ended ? tell(peer) : answer_error(peer, no_start);
        if (peer->fd && peer->waiting) tell(peer);
        peer->starting = peer->waiting = false;
    }
}

static void end_unstarted(const char *why) {
    snprintf(no_start, sizeof no_start, "%s", why);
    unlink(end_path());
    end();
}

/* How often the kernel killed something because the memory limit was reached: is it ever? */
static bool ran_out_of_memory(void) {
    char text[1024];
    int fd = open(of_task(TASK_OOM_FILE), O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0) close(fd);
    if (n <= 0) return false;
    text[n] = 0;
    for (char *line = text; line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
        if (strncmp(line, "oom_kill ", 9) == 0) return strtol(line + 9, NULL, 10) > 0;
    }
    return false;
}

/* What the child tells: it runs the program, or could not. */
static void report_came(void) {
    if (!program_reported() || *program_failure()) return; /* the child's end tells the rest */
    phase = STARTED;
    if (patience_ns) tell_start_at = now() + patience_ns;
    else tell_start();
    if (stopping) signal_program((int)number(&order->task, TASK_STOP_SIGNAL));
}

/* None of the task's processes is left. */
static void program_ended(void) {
    while (report_descriptor() >= 0) report_came();
    drain_output();
    takes_output = false;
    if (*program_failure()) {
        end_unstarted(program_failure());
        return;
    }
    int status = program_wait_status();
    int signal_number = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    int code = signal_number ? 128 + signal_number : WEXITSTATUS(status);
    const char *reason = *stopped_because ? stopped_because : killed_because;
    if (!*reason && code && ran_out_of_memory()) reason = said(SAY_OOM);
    char quoted[1800];
    quote(quoted, sizeof quoted, reason);
    snprintf(exit_text, sizeof exit_text, "{\"code\": %d, \"signal\": %d, \"reason\": %s}", code, signal_number, quoted);
    has_ended = true;
    end();
}

static void begin_stop(const char *reason) {
    if (phase == PREPARED) end();
    if (phase == EXITED || stopping) return;
    stopping = true;
    stopped_because = reason;
    kill_at = now() + number(&order->task, TASK_GRACE_NS);
    /* A program that is just being started gets it as soon as it runs. */
    if (phase == STARTED) signal_program((int)number(&order->task, TASK_STOP_SIGNAL));
}

/* --- requests ------------------------------------------------------------------------------------------------------ */

static void start(struct peer *peer, uint64_t patience) {
    if (phase == STARTED || has_ended) {
        tell(peer);
    } else if (phase == EXITED) {
        answer_error(peer, no_start);
    } else if (lapsed) { /* with the links that came after the lapse */
        end_unstarted("the lease lapsed before the task started");
        answer_error(peer, no_start);
    } else if (phase == STARTING) {
        peer->starting = true;
    } else if (!keep_end(said(SAY_SHIM_GONE)) || !start_program(order)) {
        /* No room on the disk, no process more: it is over, links down and all. */
        end_unstarted(failure);
        answer_error(peer, no_start);
    } else {
        phase = STARTING;
        patience_ns = patience;
        takes_output = peer->starting = true;
    }
}

static void wait_for_end(struct peer *peer) {
    if (phase == EXITED) tell(peer);
    else peer->waiting = true;
}

static void remove_task(struct peer *peer) {
    if (phase != EXITED && !links_down()) { /* they went down when it ended */
        answer_error(peer, failure);
        return;
    }
    if (phase == STARTING || phase == STARTED) {
        kill_all();
        reap(true);
        drain_output();
        takes_output = false;
    }
    phase = EXITED;
    program_pid = 0;
    if (!undo(order)) {
        answer_error(peer, failure);
        return;
    }
    tell(peer);
    _exit(0);
}

static void serve_request(struct peer *peer, const struct request *request) {
    switch (request->operation) {
    case OP_KEEP: /* said once more: nobody waits for an answer */
        break;
    case OP_STATUS:
        tell(peer);
        break;
    case OP_START:
        start(peer, request->patience_ns);
        break;
    case OP_STOP:
        if (request->links_first && !links_down()) {
            answer_error(peer, failure);
            break;
        }
        begin_stop("");
        wait_for_end(peer);
        break;
    case OP_WAIT:
        wait_for_end(peer);
        break;
    case OP_LINKS_DOWN:
        if (links_down()) tell(peer);
        else answer_error(peer, failure);
        break;
    case OP_LEASE:
        set_lease(lease_timer, request->remaining_ns);
        tell(peer);
        break;
    case OP_REMOVE:
        remove_task(peer);
        break;
    }
}

static void serve_lines(struct peer *peer) {
    const char *line;
    size_t n_bytes;
    struct request request;
    for (int found; (found = next_line(peer, &line, &n_bytes)) != 0;) {
        if (found < 0) answer_error(peer, "malformed request: it is too long");
        else if (parse_request(line, n_bytes, &request)) serve_request(peer, &request);
        else answer_error(peer, failure);
    }
}

/* --- events -------------------------------------------------------------------------------------------------------- */

static void lease_lapsed(void) {
    uint64_t times;
    if (read(lease_timer, &times, sizeof times) < 0) return; /* it was renewed in this very moment */
    lapsed = true;
    links_down_or_die();
    if (number(&order->task, TASK_FENCE)) begin_stop(said(SAY_FENCE));
}

/* A child ended, or this host shuts down. */
static void signalled(int signals) {
    struct signalfd_siginfo got;
    while (read(signals, &got, sizeof got) == sizeof got) {
        if (got.ssi_signo == SIGTERM) begin_stop("");
    }
    if ((phase == STARTING || phase == STARTED) && reap(false)) program_ended();
}

static void accept_peer(int listener) {
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0 || add_peer(fd)) return;
    /* Hung up on without a word, an agent would take this process for gone, and end the task. */
    (void)!send(fd, FULL, sizeof FULL - 1, MSG_DONTWAIT | MSG_NOSIGNAL);
    close(fd);
}

static int until_next_ms(void) {
    uint64_t next = kill_at < tell_start_at ? kill_at : tell_start_at;
    if (next == NEVER) return -1;
    uint64_t at = now();
    if (at >= next) return 0;
    uint64_t ms = (next - at) / 1000000u + 1;
    return ms > INT_MAX ? INT_MAX : (int)ms;
}

static void watched(int fd, struct pollfd *place) {
    *place = (struct pollfd){.fd = fd, .events = POLLIN}; /* a negative one is passed over */
}

static int watch_signals(void) {
    sigset_t mine;
    sigemptyset(&mine);
    sigaddset(&mine, SIGCHLD);
    sigaddset(&mine, SIGTERM);
    return signalfd(-1, &mine, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* What the answers below are about. */
void introduce(const struct order *mine, int host_pid) {
    order = mine;
    shim_pid = host_pid;
}

/* Until it is removed. `first` is the agent that had it made, with what it has said already. */
_Noreturn void serve(int listener, int lease, struct peer *first) {
    enum { SIGNALS, LISTENER, LEASE, OUTPUT, REPORT, FIRST_PEER };
    struct pollfd ready[FIRST_PEER + PEERS_MAX];
    int signals = watch_signals();
    if (signals < 0) _exit(1);
    lease_timer = lease;
    serve_lines(first);
    for (;;) {
        watched(signals, &ready[SIGNALS]);
        watched(listener, &ready[LISTENER]);
        watched(lease_timer, &ready[LEASE]);
        watched(takes_output ? output_reader() : -1, &ready[OUTPUT]);
        watched(report_descriptor(), &ready[REPORT]);
        int n_watched = n_peers;
        for (int i = 0; i < n_watched; i++) watched(peers[i].fd ? peers[i].fd : -1, &ready[FIRST_PEER + i]);
        if (poll(ready, (nfds_t)(FIRST_PEER + n_watched), until_next_ms()) < 0 && errno != EINTR) _exit(1);
        if (ready[LEASE].revents) lease_lapsed();
        if (ready[OUTPUT].revents && takes_output && take_output() < 0) takes_output = false;
        if (ready[REPORT].revents && report_descriptor() >= 0) report_came();
        if (ready[SIGNALS].revents) signalled(signals);
        for (int i = 0; i < n_watched; i++) {
            struct peer *peer = &peers[i];
            if (!peer->fd || peer->fd != ready[FIRST_PEER + i].fd || !ready[FIRST_PEER + i].revents) continue;
            bool stays = receive(peer);
            serve_lines(peer);
            if (!stays) drop_peer(peer);
        }
        if (ready[LISTENER].revents) accept_peer(listener);
        if (tell_start_at != NEVER && now() >= tell_start_at) tell_start();
        if (kill_at != NEVER && now() >= kill_at) {
            kill_at = NEVER;
            killed_because = said(SAY_GRACE);
            if (phase == STARTING || phase == STARTED) kill_all();
        }
    }
}
