/* A task's output, kept in a file of bounded size: bytes go from a pipe to a log, which is turned over to PATH.1 at a size. */
#include "shim.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *log_path;
static uint64_t log_bytes_max;
static int log_file = -1, reader = -1, writer = -1;

static int open_log(void) {
    return open(log_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0640);
}

/* The writing end belongs to the task's user, so that the task can open /dev/stdout. */
bool open_output(const char *path, uint64_t bytes_max, uint64_t uid, uint64_t gid) {
    int ends[2];
    log_path = path;
    log_bytes_max = bytes_max;
    if ((log_file = open_log()) < 0) return fail_errno(path);
    if (pipe2(ends, O_CLOEXEC) != 0) return fail_errno("pipe");
    reader = ends[0];
    writer = ends[1];
    fcntl(reader, F_SETFL, O_NONBLOCK);
    return fchown(writer, (uid_t)uid, (gid_t)gid) == 0 || fail_errno("pipe");
}

int output_reader(void) { return reader; }
int output_writer(void) { return writer; }

/* Leave the writing end to the task alone. */
void close_output_writer(void) {
    if (writer >= 0) close(writer);
    writer = -1;
}

static void turn_over(void) {
    char old[PATH_BYTES];
    int next;
    snprintf(old, sizeof old, "%s.1", log_path);
    if (rename(log_path, old) != 0 || (next = open_log()) < 0) return;
    close(log_file);
    log_file = next;
}

/* Take over what is there, at most 64 KiB: 1; or nothing was there: 0; or the task has no writing end any more: -1. A full
 * disk loses output, not the task. */
int take_output(void) {
    static char data[65536];
    struct stat status;
    ssize_t n = read(reader, data, sizeof data);
    if (n < 0) return errno == EAGAIN || errno == EINTR ? 0 : -1;
    if (n == 0) return -1;
    if (write_descriptor(log_file, data, (size_t)n) && fstat(log_file, &status) == 0 && (uint64_t)status.st_size >= log_bytes_max)
        turn_over();
    return 1;
}

/* Take over what is left in the pipe after the task ended: it holds at most 1 MiB, and somebody else may still write to it. */
void drain_output(void) {
    for (int i = 0; i < 64 && take_output() == 1; i++) continue;
}
