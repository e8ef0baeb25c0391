/* The mounts of a task's own mount namespace; agent/executors/process/view.py says which and why. */
#include "shim.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

/* When a mount is made; of "mount" and "mount-held". */
#define IF_DIRECTORY 1 /* the target is one, links followed */
#define IF_PRESENT 2   /* there is something at the target */
#define IF_POSSIBLE 4  /* a kernel that cannot is fine */

/* 256: paths that an operator hides; there are a handful. */
#define COVERED_MAX 256
static const char *covered[COVERED_MAX];
static int n_covered;

static bool is_directory(const char *path) {
    struct stat status;
    return stat(path, &status) == 0 && S_ISDIR(status.st_mode);
}

/* A directory and those above it, while another agent on this host may drop those that it left empty. errno tells why not. */
bool make_directories(const char *path) {
    char part[PATH_BYTES];
    size_t length = strlen(path);
    if (length >= sizeof part) {
        errno = ENAMETOOLONG;
        return false;
    }
    for (int tries = 0; tries < 10; tries++) {
        if (mkdir(path, 0755) == 0 || (errno == EEXIST && is_directory(path))) return true;
        if (errno != ENOENT) return false;
        memcpy(part, path, length + 1);
        for (char *at = part + 1; *at; at++) {
            if (*at != '/') continue;
            *at = 0;
            if (mkdir(part, 0755) != 0 && errno != EEXIST) return false;
            *at = '/';
        }
    }
    return false;
}

static bool wanted(const char *target, uint64_t when) {
    if (when & IF_DIRECTORY) return is_directory(target);
    return !(when & IF_PRESENT) || access(target, F_OK) == 0;
}

static bool mount_one(const char *source, const char *target, const char *kind, uint64_t flags, const char *options,
                      uint64_t when) {
    if (!wanted(target, when)) return true;
    if (mount(source, target, kind, (unsigned long)flags, options) == 0 || when & IF_POSSIBLE) return true;
    return fail("cannot mount %s on %s: %s", *kind ? kind : source, target, strerror(errno));
}

/* source, target, kind, flags, options, when */
bool mount_step(const struct record *step) {
    char **fields = step->fields;
    return mount_one(fields[0], fields[1], fields[2], number(step, 3), fields[4], number(step, 5));
}

/* held descriptor, target, flags, when */
bool mount_held_step(const struct record *step) {
    char source[32];
    snprintf(source, sizeof source, "/proc/self/fd/%d", held_descriptor(number(step, 0)));
    return mount_one(source, step->fields[1], "", number(step, 2), "", number(step, 3));
}

static bool within(const char *path, const char *parent) {
    size_t length = strlen(parent);
    return strncmp(path, parent, length) == 0 && (!path[length] || path[length] == '/');
}

/* Put an empty file system over a directory, if it is one and not in what is covered already. Path, options. */
bool cover_step(const struct record *step) {
    const char *path = step->fields[0];
    for (int i = 0; i < n_covered; i++) {
        if (within(path, covered[i])) return true;
    }
    if (!is_directory(path)) return true;
    if (n_covered == COVERED_MAX) return fail("too many hidden directories: at most %d are possible", COVERED_MAX);
    covered[n_covered++] = path;
    return mount_one("tmpfs", path, "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, step->fields[1], 0);
}

/* What was covered stays empty. */
bool seal_step(void) {
    unsigned long flags = MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC;
    for (int i = 0; i < n_covered; i++) {
        if (!mount_one("none", covered[i], "", flags, "", 0)) return false;
    }
    return true;
}
