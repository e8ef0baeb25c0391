/* The task's own processes, as process 1 of their PID namespace has to do with them.
 *
 * The shim is that process 1: it starts the program, passes the stop signal on, reaps what the task orphans, and when the
 * program ends kills and reaps the rest. The kernel kills everything in the namespace when process 1 is killed, so nothing
 * of a task outlives its shim.
 */
#include "shim.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static pid_t program;
static bool ended;
static int wait_status;
static int report = -1;
static char told[FAILURE_BYTES]; /* by the child, when it cannot become the program */
static size_t n_told;

bool start_program(const struct order *order) {
    const struct record *task = &order->task;
    int ends[2];
    if (!open_output(task->fields[TASK_LOG], number(task, TASK_LOG_BYTES), number(task, TASK_UID), number(task, TASK_GID)))
        return false;
    if (pipe2(ends, O_CLOEXEC) != 0) return fail_errno("pipe");
    program = fork();
    if (program == 0) {
        make_room_to_hold(order->n_records);
        become_program(order, output_writer(), ends[1]);
    }
    if (program < 0) fail_errno("fork");
    close(ends[1]);
    close_output_writer();
    report = ends[0];
    return program > 0;
}

int report_descriptor(void) { return report; }
const char *program_failure(void) { return told; }
int program_wait_status(void) { return wait_status; }

/* Take in what the child tells; it runs the program, or has given up, when there is no more. */
bool program_reported(void) {
    ssize_t n = read(report, told + n_told, sizeof told - 1 - n_told);
    if (n > 0) n_told += (size_t)n;
    if (n > 0 || (n < 0 && errno == EINTR)) return false;
    close(report);
    report = -1;
    return true;
}

/* Its number on the host, whose /proc this is; 0 when it has ended. */
int program_host_pid(void) {
    char children[64] = "";
    int fd = open("/proc/thread-self/children", O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 0;
    ssize_t n = read(fd, children, sizeof children - 1);
    close(fd);
    return n > 0 ? (int)strtol(children, NULL, 10) : 0;
}

void signal_program(int number) {
    if (program > 0 && !ended) kill(program, number);
}

/* All of the task's processes, the program as well. In vain when nobody is left.
 * Safety: to process 1 of a namespace, "all" is that namespace; to any other process of root's it is the whole machine. */
void kill_all(void) {
    if (getpid() == 1) kill(-1, SIGKILL);
}

/* Collect what has ended; the others are killed once the program has.
 *
 * Killing looks at every process of this host, so it is done when somebody is left, and once for all that have ended by now:
 * a task may leave thousands. It is done again at the next call, for those that entered the namespace since. */
bool reap(bool block) {
    for (bool killed = false;;) {
        int status;
        bool last_look = ended && !killed; /* whether there is anybody to kill */
        pid_t pid = waitpid(-1, &status, block && !last_look ? 0 : WNOHANG);
        if (pid < 0 && errno == EINTR) continue;
        if (pid < 0) return true;
        if (pid == 0 && !last_look) return false;
        if (pid == 0) {
            kill_all();
            killed = true;
        }
        if (pid == program) {
            ended = true;
            wait_status = status;
        }
    }
}
