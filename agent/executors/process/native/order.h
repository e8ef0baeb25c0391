/* An order: what the agent has decided about one task, as a flat list of records (agent/executors/process/script.py writes
 * it).
 *
 * On the wire: 16 bytes (ORDER_MAGIC, then two 32-bit numbers in this machine's order: bytes of text, bytes of blob), the
 * text, the blob. The text is one record after the other, each "N\0NAME\0FIELD 1\0…FIELD N\0". It is checked whole before
 * anything is done: names are known, each has as many fields as it takes, numbers are decimal and fit 64 bits.
 */
#ifndef BEEYARD_ORDER_H
#define BEEYARD_ORDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The last character is the version of the records' meaning: who speaks another one is refused. */
#define ORDER_MAGIC "bee-ord1"
/* 16 MiB each: what one program can be given as arguments and environment is less. */
#define ORDER_BYTES_MAX (16u << 20)

enum op {
    /* what the shim has to know */
    OP_TASK, OP_SAY, OP_ENV, OP_ARGV, OP_CANDIDATES,
    /* what it does to prepare and to start; see step.c */
    OP_CLAIM, OP_BLOB, OP_MKDIR, OP_MKDIRS, OP_CHOWN, OP_WRITE, OP_ENABLE, OP_NETWORK,
    OP_UNSHARE, OP_OPEN, OP_WALK, OP_LOOK, OP_MOUNT, OP_MOUNT_HELD, OP_UMASK, OP_MKNOD, OP_SYMLINK, OP_COVER, OP_SEAL,
    OP_GIVE_DEVICE, OP_BIND, OP_HOSTNAME, OP_BECOME, OP_EXEC,
    /* what it does to undo all of it */
    OP_DROP_CGROUP, OP_DROP_FILE, OP_DROP_TREE,
    /* the records after this one are for the child that becomes the program */
    OP_BEGIN,
    N_OPS
};

struct record {
    enum op op;
    int n_fields;
    char **fields; /* NULL after the last, as execve(2) wants it */
};

/* Fields of OP_TASK, in their order. */
enum { TASK_DIRECTORY, TASK_LOG, TASK_LOG_BYTES, TASK_UID, TASK_GID, TASK_OWN_NETWORK, TASK_STOP_SIGNAL, TASK_GRACE_NS,
       TASK_LEASE_NS, TASK_FENCE, TASK_OOM_FILE };
/* Fields of OP_SAY: sentences that are told when … */
enum { SAY_GRACE, SAY_FENCE, SAY_OOM, /* … the grace was over, the lease of a fenced task lapsed, memory ran out */
       SAY_SHIM_GONE };               /* the end of a task whose shim was killed, as JSON */

struct order {
    struct record *records;
    int n_records;
    int first_of_start; /* index of the first record for the child */
    const char *blob;
    size_t blob_bytes;
    struct record task, say, env, argv, candidates; /* those that are asked for by name; each is there */
};

/* Take an order from a socket. 1: done; 0: the other side hung up; -1: it is none, `failure` says why. */
int read_order(int fd, struct order *order);
/* A field that was checked to be a number. */
uint64_t number(const struct record *record, int field);

#endif
