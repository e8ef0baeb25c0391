/* Files and devices of this host that the node adds to a task, so that they cannot become something else on the way.
 *
 * What is looked up on this host is held, by a descriptor or by its numbers, before the task's own view is made; later
 * records name it by its place in `held`. A path that a node hook chose is walked without following a symbolic link, and
 * what was opened is what is mounted: whoever may write below an allowed directory cannot lead a mount out of it.
 */
#include "shim.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

static struct held {
    int descriptor; /* of "open" and "walk" */
    mode_t mode;    /* of "look" */
    dev_t device;
} *held;
static uint64_t n_held;

/* As many as there are records is enough: each holds one thing. */
void make_room_to_hold(int n) {
    held = calloc((size_t)n, sizeof *held);
    n_held = held ? (uint64_t)n : 0;
    for (uint64_t i = 0; i < n_held; i++) held[i].descriptor = -1;
}

int held_descriptor(uint64_t slot) {
    return slot < n_held ? held[slot].descriptor : -1;
}

/* "mount source /a/b: no such file or directory" */
static int fail_walk(const char *what, const char *path) {
    char reason[128];
    snprintf(reason, sizeof reason, "%s", strerror(errno));
    for (char *at = reason; *at; at++) *at = (char)tolower((unsigned char)*at);
    fail("%s %s: %s", what, path, reason);
    return -1;
}

/* A descriptor of what is at a path none of whose parts is a symbolic link; -1: none, and `failure` says why. */
static int walk(const char *path, const char *what) {
    char part[NAME_MAX + 1];
    int fd = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    for (const char *at = path; fd >= 0;) {
        at += strspn(at, "/");
        size_t length = strcspn(at, "/");
        if (!length) return fd;
        if (length > NAME_MAX) {
            close(fd);
            errno = ENAMETOOLONG;
            break;
        }
        snprintf(part, sizeof part, "%.*s", (int)length, at);
        at += length;
        int inner = openat(fd, part, O_PATH | O_NOFOLLOW | O_CLOEXEC), error = errno;
        close(fd);
        errno = error;
        struct stat status;
        if ((fd = inner) < 0) break;
        if (fstat(fd, &status) == 0 && S_ISLNK(status.st_mode)) {
            close(fd);
            fail("%s %s leads over a symbolic link: %s", what, path, part);
            return -1;
        }
    }
    return fail_walk(what, path);
}

/* A device of this host: it is made anew in the task's /dev. */
static bool look(struct held *into, const char *path) {
    struct stat status;
    if (stat(path, &status) != 0) return fail("cannot add device %s: %s", path, strerror(errno));
    if (!S_ISCHR(status.st_mode) && !S_ISBLK(status.st_mode)) return fail("cannot add device %s: it is no device", path);
    into->mode = status.st_mode & S_IFMT;
    into->device = status.st_rdev;
    return true;
}

/* "open" and "look": place, path. "walk": place, path, what it is. */
bool hold_step(const struct record *step) {
    uint64_t slot = number(step, 0);
    const char *path = step->fields[1];
    if (slot >= n_held) return fail("malformed order: nothing can be held at %s", step->fields[0]);
    if (step->op == OP_LOOK) return look(&held[slot], path);
    if (step->op == OP_WALK) return (held[slot].descriptor = walk(path, step->fields[2])) >= 0;
    held[slot].descriptor = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    return held[slot].descriptor >= 0 || fail_errno(path);
}

static bool exists(const char *path) {
    struct stat status;
    return lstat(path, &status) == 0;
}

/* The directories above a path. errno tells why not. */
static bool make_parents(const char *path) {
    char parent[PATH_BYTES];
    snprintf(parent, sizeof parent, "%s", path);
    char *end = strrchr(parent, '/');
    if (!end || end == parent) return true;
    *end = 0;
    return make_directories(parent);
}

/* place, path, user, group */
bool give_device_step(const struct record *step) {
    uint64_t slot = number(step, 0);
    const char *path = step->fields[1];
    if (slot >= n_held) return fail("malformed order: nothing is held at %s", step->fields[0]);
    if (exists(path)) return true; /* one that every task has */
    if (make_parents(path) && mknod(path, held[slot].mode | 0660, held[slot].device) == 0 && chmod(path, 0660) == 0 &&
        chown(path, (uid_t)number(step, 2), (gid_t)number(step, 3)) == 0)
        return true;
    return fail_errno(path);
}

/* What may be made to be mounted on: below the task's own /tmp and /var/tmp. All else is this host's. */
static bool make_target(const char *target, bool directory) {
    if (strncmp(target, "/tmp/", 5) != 0 && strncmp(target, "/var/tmp/", 9) != 0) return true;
    if (exists(target)) return true;
    if (directory ? make_directories(target) : make_parents(target)) {
        if (directory) return true;
        int fd = open(target, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
        if (fd >= 0) {
            close(fd);
            return true;
        }
    }
    return fail("cannot make mount target %s: %s", target, strerror(errno));
}

/* The first call cannot set flags, so the place is walked again: `place` is below what is mounted now. */
static bool mount_held(int source, int place, const char *target, unsigned long flags) {
    char from[32], to[32];
    snprintf(from, sizeof from, "/proc/self/fd/%d", source);
    snprintf(to, sizeof to, "/proc/self/fd/%d", place);
    if (mount(from, to, "", MS_BIND, "") == 0) {
        int mounted = walk(target, "mount target");
        if (mounted < 0) return false;
        snprintf(to, sizeof to, "/proc/self/fd/%d", mounted);
        bool done = mount("none", to, "", MS_BIND | MS_REMOUNT | flags, "") == 0;
        int error = errno;
        close(mounted);
        errno = error;
        if (done) return true;
    }
    return fail("cannot mount at %s: %s", target, strerror(errno));
}

/* place of the source, target, whether read-only */
bool bind_step(const struct record *step) {
    int source = held_descriptor(number(step, 0));
    const char *target = step->fields[1];
    struct stat of_source, of_place;
    struct statvfs below;
    if (fstat(source, &of_source) != 0 || fstatvfs(source, &below) != 0) return fail_errno(target);
    bool directory = S_ISDIR(of_source.st_mode);
    if (!make_target(target, directory)) return false;
    int place = walk(target, "mount target");
    if (place < 0) return false;
    bool done;
    if (fstat(place, &of_place) != 0) {
        done = fail_errno(target);
    } else if (directory != !!S_ISDIR(of_place.st_mode)) {
        const char *kinds[] = {"a file", "a directory"};
        done = fail("cannot mount %s at %s: it is %s", kinds[directory], target, kinds[!directory]);
    } else {
        /* statvfs(3) gives these flags with the numbers that mount(2) takes. */
        unsigned long flags = (below.f_flag & (MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC)) | MS_NOSUID | MS_NODEV;
        done = mount_held(source, place, target, flags | (number(step, 2) ? MS_RDONLY : 0));
    }
    close(place);
    close(source);
    return done;
}
