/* Removing what was made for a task: records "drop-…", in their order. Each is fine with what is not there. */
#include "shim.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* 10 s, a millisecond apart: killed processes are gone within milliseconds; one that waits for a dead disk stays. */
#define CGROUP_LOOKS 10000

static bool drop_cgroup(const char *path) {
    for (int look = 0; look < CGROUP_LOOKS; look++) {
        if (rmdir(path) == 0 || errno == ENOENT) return true;
        if (errno != EBUSY) break;
        kill_all();
        reap(false);
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    return fail("cannot remove cgroup %s: %s", path, strerror(errno));
}

static bool is_self_or_parent(const char *name) {
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

/* Unlink what is in a directory, and do with each subdirectory what `directory` says. Gives how many entries there were, -1
 * and errno when one would not go. */
static long each_entry(int fd, int top, bool (*directory)(int fd, int top, const char *name)) {
    long n_entries = 0;
    int own = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    DIR *entries = own < 0 ? NULL : fdopendir(own);
    if (!entries) {
        if (own >= 0) close(own);
        return -1;
    }
    rewinddir(entries);
    for (struct dirent *entry; n_entries >= 0 && (entry = readdir(entries));) {
        if (is_self_or_parent(entry->d_name)) continue;
        n_entries++;
        if (unlinkat(fd, entry->d_name, 0) == 0 || errno == ENOENT) continue;
        if (errno != EISDIR || !directory(fd, top, entry->d_name)) n_entries = -1;
    }
    int error = errno;
    closedir(entries);
    errno = error;
    return n_entries;
}

/* A directory below a directory below the top goes up to the top, under a name that nothing there has. */
static bool move_up(int fd, int top, const char *name) {
    static unsigned long n_moved;
    char moved[64];
    do {
        snprintf(moved, sizeof moved, ".removed-%d-%lu", getpid(), ++n_moved);
    } while (faccessat(top, moved, F_OK, AT_SYMLINK_NOFOLLOW) == 0);
    return renameat(fd, name, top, moved) == 0;
}

/* A directory below the top is emptied, and goes. */
static bool empty_and_remove(int top, int same, const char *name) {
    (void)same;
    for (;;) {
        if (unlinkat(top, name, AT_REMOVEDIR) == 0) return true;
        if (errno != ENOTEMPTY && errno != EEXIST) return false;
        int inner = openat(top, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (inner < 0) return false;
        long n_entries = each_entry(inner, top, move_up);
        int error = errno;
        close(inner);
        errno = error;
        if (n_entries < 0) return false;
    }
}

/* Remove a directory with all in it, whatever a task built there: it is emptied through descriptors, so no link leads out,
 * and subdirectories are moved up and not descended into, so no depth is too deep. */
static bool drop_tree(const char *path) {
    if (rmdir(path) == 0 || errno == ENOENT) return true;
    int top = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (top < 0) return errno == ENOENT || fail_errno(path);
    long n_entries;
    do {
        n_entries = each_entry(top, top, empty_and_remove);
    } while (n_entries > 0);
    int error = errno;
    close(top);
    errno = error;
    return (n_entries == 0 && rmdir(path) == 0) || fail_errno(path);
}

bool undo(const struct order *order) {
    for (int i = 0; i < order->n_records; i++) {
        const struct record *record = &order->records[i];
        const char *path = record->fields[0];
        if (record->op == OP_DROP_CGROUP && !drop_cgroup(path)) return false;
        if (record->op == OP_DROP_FILE) unlink(path); /* what is no file is left to the tree that it is in */
        if (record->op == OP_DROP_TREE && !drop_tree(path)) return false;
    }
    return true;
}
