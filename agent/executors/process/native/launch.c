/* From a fork to the task's own program: everything that happens in the child before exec.
 *
 * The order matters: enter the cgroup while still allowed to, give up what could be kept by a forgotten descriptor, signal
 * handler or group, and only as the task's user look at the working directory and the program, so that the task's own
 * permissions decide. What fails is told through a pipe that exec closes.
 */
#include "shim.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/close_range.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

const int IGNORED[N_IGNORED] = {SIGINT, SIGHUP, SIGPIPE, SIGXFSZ};

/* Session, standard streams and defaults of a process that starts afresh; of all else that is open only `report` stays. */
static bool start_afresh(int output, int report) {
    sigset_t none;
    setsid();
    for (int i = 0; i < N_IGNORED; i++) signal(IGNORED[i], SIG_DFL); /* exec itself resets those that have a handler */
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    write_file("/proc/self/oom_score_adj", "0", 1, 0); /* the shim's own is low; without the right to, so is nobody's */
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (null < 0 || dup2(null, 0) < 0 || dup2(output, 1) < 0 || dup2(output, 2) < 0) return fail_errno("/dev/null");
    umask(022);
    /* All of them close on exec; this is for what a mistake elsewhere would leave open. */
    if (report > 3) syscall(SYS_close_range, 3u, (unsigned)report - 1, 0u);
    syscall(SYS_close_range, (unsigned)report + 1, ~0u, 0u);
    return true;
}

/* No program that is executed from here on can have another capability than `kept`. Needs CAP_SETPCAP. */
static bool bound_capabilities(uint64_t kept) {
    if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) != 0) return fail_errno("prctl");
    for (unsigned long capability = 0; capability < 64; capability++) {
        if (kept >> capability & 1 || prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) == 0) continue;
        return (errno == EINVAL && capability > CAP_SETPCAP) || fail_errno("prctl"); /* one that the kernel does not know */
    }
    return true;
}

/* The effective and permitted sets become `allowed`, the inheritable one empty. */
static bool set_capabilities(uint64_t allowed) {
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    uint32_t low = (uint32_t)allowed, high = (uint32_t)(allowed >> 32);
    struct __user_cap_data_struct data[2] = {{low, low, 0}, {high, high, 0}};
    return syscall(SYS_capset, &header, data) == 0 || fail_errno("capset");
}

static bool set_groups(const struct record *step) {
    size_t n = step->n_fields > 3 ? (size_t)step->n_fields - 3 : 0;
    gid_t *groups = calloc(n + 1, sizeof *groups);
    if (!groups) return fail_errno("setgroups");
    for (size_t i = 0; i < n; i++) groups[i] = (gid_t)number(step, 3 + (int)i);
    bool done = setgroups(n, groups) == 0 || fail_errno("setgroups");
    free(groups);
    return done;
}

/* Give up every privilege that the user does not have, for good. User, group, capabilities as bits, further groups. */
bool become_step(const struct record *step) {
    uint64_t capabilities = number(step, 2);
    uid_t uid = (uid_t)number(step, 0), real_uid, effective_uid, saved_uid;
    gid_t gid = (gid_t)number(step, 1), real_gid, effective_gid, saved_gid;
    if (!bound_capabilities(capabilities) || !set_groups(step)) return false;
    if (setresgid(gid, gid, gid) != 0) return fail_errno("setresgid");
    if (setresuid(uid, uid, uid) != 0) return fail_errno("setresuid");
    getresuid(&real_uid, &effective_uid, &saved_uid);
    getresgid(&real_gid, &effective_gid, &saved_gid);
    /* Real, effective and saved: one of them left as it was is a way back. The number that says "leave it" is nobody's. */
    bool user_is = real_uid == uid && effective_uid == uid && saved_uid == uid;
    if (!user_is || real_gid != gid || effective_gid != gid || saved_gid != gid)
        return fail("could not become user %u with group %u", uid, gid);
    if (!set_capabilities(capabilities)) return false;
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 || fail_errno("prctl");
}

/* Become the program. Working directory, what to say when no candidate is there, what to say when one cannot be run. */
static bool execute(const struct order *order, const struct record *step) {
    int error = ENOENT;
    if (chdir(step->fields[0]) != 0) return fail("cannot enter working directory %s: %s", step->fields[0], strerror(errno));
    for (char **candidate = order->candidates.fields; *candidate; candidate++) {
        execve(*candidate, order->argv.fields, order->env.fields);
        if (errno == ENOENT || errno == ENOTDIR) continue;
        error = errno;
        if (error != EACCES) break;
    }
    if (error == ENOENT && *step->fields[1]) return fail("%s", step->fields[1]);
    return fail("%s: %s", step->fields[2], strerror(error));
}

/* In the child: become the task's program, or report why not. */
_Noreturn void become_program(const struct order *order, int output, int report) {
    int i = order->first_of_start;
    bool going = start_afresh(output, report);
    for (; going && i < order->n_records - 1; i++) going = run_step(&order->records[i]);
    if (going) execute(order, &order->records[i]);
    (void)!write(report, failure, strlen(failure));
    _exit(127);
}
