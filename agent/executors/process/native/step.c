/* What the records of an order do, one after the other; the first that fails ends it.
 *
 * Modes are given as decimal numbers, as all numbers are. Paths come from the agent, which made them from its own settings
 * and the task's id; those that a node hook chose are handled in addition.c alone.
 */
#include "shim.h"

#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define IF_THERE 1 /* of "write": a missing file is fine */

bool write_descriptor(int fd, const void *data, size_t n_bytes) {
    for (size_t n_written = 0; n_written < n_bytes;) {
        ssize_t n = write(fd, (const char *)data + n_written, n_bytes - n_written);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        n_written += (size_t)n;
    }
    return true;
}

/* Write a file whole; errno tells why not. `flags`: more of open(2), such as O_CREAT. */
bool write_file(const char *path, const void *data, size_t n_bytes, int flags) {
    int fd = open(path, O_WRONLY | O_CLOEXEC | O_NOFOLLOW | flags, 0600);
    if (fd < 0) return false;
    bool done = write_descriptor(fd, data, n_bytes);
    int error = errno;
    close(fd);
    errno = error;
    return done;
}

/* A kernel's file: path, text, flags, what to say before the kernel's word. */
static bool write_step(const struct record *step) {
    char **fields = step->fields;
    if (write_file(fields[0], fields[1], strlen(fields[1]), O_TRUNC)) return true;
    return (errno == ENOENT && number(step, 2) & IF_THERE) || fail_errno(fields[3]);
}

static bool mkdir_step(const struct record *step) {
    const char *path = step->fields[0];
    mode_t mode = (mode_t)number(step, 1);
    return (mkdir(path, mode) == 0 && chmod(path, mode) == 0) || fail_errno(path);
}

static bool has_word(const char *text, const char *word) {
    size_t length = strlen(word);
    for (const char *at = text; (at = strstr(at, word)); at += length) {
        bool begins = at == text || at[-1] == ' ', ends = !at[length] || at[length] == ' ' || at[length] == '\n';
        if (begins && ends) return true;
    }
    return false;
}

/* On cgroup v2: have the children of a group get controllers. The directory, then the controllers. */
static bool enable_step(const struct record *step) {
    char path[PATH_BYTES], enabled[1024] = "", wanted[256] = "";
    size_t n_wanted = 0;
    bool all = true;
    snprintf(path, sizeof path, "%s/cgroup.subtree_control", step->fields[0]);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        ssize_t n = read(fd, enabled, sizeof enabled - 1);
        enabled[n > 0 ? n : 0] = 0;
        close(fd);
    }
    for (int i = 1; i < step->n_fields && n_wanted < sizeof wanted; i++) {
        all = all && has_word(enabled, step->fields[i]);
        n_wanted += (size_t)snprintf(wanted + n_wanted, sizeof wanted - n_wanted, "%s+%s", i > 1 ? " " : "", step->fields[i]);
    }
    if (all) return true;
    if (n_wanted < sizeof wanted && write_file(path, wanted, n_wanted, O_TRUNC)) return true;
    return fail("cannot write '%s' to %s: %s", wanted, path, strerror(errno));
}

/* A network namespace with loopback up. */
static bool network_step(void) {
    if (unshare(CLONE_NEWNET) != 0) return fail_errno("unshare");
    int control = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct ifreq loopback = {.ifr_name = "lo"};
    bool up = control >= 0 && ioctl(control, SIOCGIFFLAGS, &loopback) == 0;
    loopback.ifr_flags |= IFF_UP;
    up = up && ioctl(control, SIOCSIFFLAGS, &loopback) == 0;
    if (!up) fail_errno("loopback");
    if (control >= 0) close(control);
    return up;
}

bool run_step(const struct record *step) {
    char **fields = step->fields;
    switch (step->op) {
    case OP_MKDIR: return mkdir_step(step);
    case OP_MKDIRS: return make_directories(fields[0]) || fail_errno(fields[0]);
    case OP_CHOWN: return chown(fields[0], (uid_t)number(step, 1), (gid_t)number(step, 2)) == 0 || fail_errno(fields[0]);
    case OP_WRITE: return write_step(step);
    case OP_ENABLE: return enable_step(step);
    case OP_NETWORK: return network_step();
    case OP_UNSHARE: return unshare((int)number(step, 0)) == 0 || fail_errno("unshare");
    case OP_OPEN:
    case OP_WALK:
    case OP_LOOK: return hold_step(step);
    case OP_MOUNT: return mount_step(step);
    case OP_MOUNT_HELD: return mount_held_step(step);
    case OP_UMASK: umask((mode_t)number(step, 0)); return true;
    case OP_MKNOD: return mknod(fields[0], (mode_t)number(step, 1), (dev_t)number(step, 2)) == 0 || fail_errno(fields[0]);
    case OP_SYMLINK: return symlink(fields[0], fields[1]) == 0 || fail_errno(fields[1]);
    case OP_COVER: return cover_step(step);
    case OP_SEAL: return seal_step();
    case OP_GIVE_DEVICE: return give_device_step(step);
    case OP_BIND: return bind_step(step);
    case OP_HOSTNAME: return sethostname(fields[0], strlen(fields[0])) == 0 || fail_errno("sethostname");
    case OP_BECOME: return become_step(step);
    default: return true; /* what is no step but told to others: OP_TASK, OP_DROP_TREE, … */
    }
}
