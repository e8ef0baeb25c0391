/* Reading an order; order.h has its form. Nothing here trusts a length or a count that it was told. */
#include "order.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shim.h"

/* What each record is called and takes: s a text, n a number; at the end, * any number of texts, # of numbers. By enum op. */
static const struct { const char *name, *takes; } KNOWN[N_OPS] = {
    [OP_TASK] = {"task", "ssnnnnnnnns"},
    [OP_SAY] = {"say", "ssss"},
    [OP_ENV] = {"env", "*"},
    [OP_ARGV] = {"argv", "s*"},
    [OP_CANDIDATES] = {"candidates", "s*"},
    [OP_CLAIM] = {"claim", "s"},
    [OP_BLOB] = {"blob", "s"},
    [OP_MKDIR] = {"mkdir", "sn"},
    [OP_MKDIRS] = {"mkdirs", "s"},
    [OP_CHOWN] = {"chown", "snn"},
    [OP_WRITE] = {"write", "ssns"},
    [OP_ENABLE] = {"enable", "s*"},
    [OP_NETWORK] = {"network", ""},
    [OP_UNSHARE] = {"unshare", "n"},
    [OP_OPEN] = {"open", "ns"},
    [OP_WALK] = {"walk", "nss"},
    [OP_LOOK] = {"look", "ns"},
    [OP_MOUNT] = {"mount", "sssnsn"},
    [OP_MOUNT_HELD] = {"mount-held", "nsnn"},
    [OP_UMASK] = {"umask", "n"},
    [OP_MKNOD] = {"mknod", "snn"},
    [OP_SYMLINK] = {"symlink", "ss"},
    [OP_COVER] = {"cover", "ss"},
    [OP_SEAL] = {"seal", ""},
    [OP_GIVE_DEVICE] = {"give-device", "nsnn"},
    [OP_BIND] = {"bind", "nsn"},
    [OP_HOSTNAME] = {"hostname", "s"},
    [OP_BECOME] = {"become", "nnn#"},
    [OP_EXEC] = {"exec", "sss"},
    [OP_DROP_CGROUP] = {"drop-cgroup", "s"},
    [OP_DROP_FILE] = {"drop-file", "s"},
    [OP_DROP_TREE] = {"drop-tree", "s"},
    [OP_BEGIN] = {"begin", ""},
};

static bool parse_number(const char *text, uint64_t *value) {
    uint64_t parsed = 0;
    if (!*text) return false;
    for (; *text; text++) {
        if (*text < '0' || *text > '9') return false;
        if (__builtin_mul_overflow(parsed, 10u, &parsed)) return false;
        if (__builtin_add_overflow(parsed, (uint64_t)(*text - '0'), &parsed)) return false;
    }
    *value = parsed;
    return true;
}

uint64_t number(const struct record *record, int field) {
    uint64_t value = 0;
    if (field < record->n_fields) parse_number(record->fields[field], &value);
    return value;
}

static bool fits(const struct record *record) {
    const char *takes = KNOWN[record->op].takes;
    uint64_t ignored;
    for (int i = 0; i < record->n_fields; i++) {
        if (!*takes) return false;
        if ((*takes == 'n' || *takes == '#') && !parse_number(record->fields[i], &ignored)) return false;
        if (*takes == 's' || *takes == 'n') takes++;
    }
    return !*takes || *takes == '*' || *takes == '#';
}

/* The next zero-terminated text of [*at, end); NULL when there is none. */
static char *next_text(char **at, const char *end) {
    char *found = *at;
    if (found >= end) return NULL;
    *at = (char *)memchr(found, 0, (size_t)(end - found)) + 1; /* there is one: the last byte is zero */
    return found;
}

/* Take one record from [*at, end); its fields go to *free_field, which is moved on. */
static bool parse_record(char **at, const char *end, char ***free_field, struct record *record) {
    char *count = next_text(at, end), *name = next_text(at, end);
    uint64_t n_fields;
    if (!name || !parse_number(count, &n_fields)) return false;
    if (n_fields > (uint64_t)(end - *at)) return false; /* each has a byte at least */
    int op = 0;
    while (op < N_OPS && strcmp(KNOWN[op].name, name) != 0) op++;
    if (op == N_OPS) return false;
    record->op = (enum op)op;
    record->n_fields = (int)n_fields;
    record->fields = *free_field;
    for (uint64_t i = 0; i < n_fields; i++) {
        if (!(*(*free_field)++ = next_text(at, end))) return false;
    }
    *(*free_field)++ = NULL;
    return fits(record);
}

/* Every kind that is asked for by name has to be there once, and the child's part to end with the program. */
static bool complete(struct order *order) {
    struct { enum op op; struct record *into; } wanted[] = {
        {OP_TASK, &order->task}, {OP_SAY, &order->say}, {OP_ENV, &order->env},
        {OP_ARGV, &order->argv}, {OP_CANDIDATES, &order->candidates},
    };
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        int n_found = 0;
        for (int j = 0; j < order->n_records; j++) {
            if (order->records[j].op == wanted[i].op) {
                *wanted[i].into = order->records[j];
                n_found++;
            }
        }
        if (n_found != 1) return fail("malformed order: %d records %s", n_found, KNOWN[wanted[i].op].name);
    }
    order->first_of_start = 0;
    for (int j = 0; j < order->n_records && !order->first_of_start; j++) {
        if (order->records[j].op == OP_BEGIN) order->first_of_start = j + 1;
    }
    if (!order->first_of_start) return fail("malformed order: it does not say where the program begins");
    if (order->records[order->n_records - 1].op != OP_EXEC) return fail("malformed order: it does not end with the program");
    return true;
}

/* The text is kept, and has to end with a zero byte. */
static bool parse_order(char *text, size_t n_bytes, struct order *order) {
    char *at = text, *end = text + n_bytes;
    size_t n_texts = 0;
    if (!n_bytes || end[-1]) return fail("malformed order: its text has no end");
    for (size_t i = 0; i < n_bytes; i++) n_texts += !text[i];
    /* A record has two texts that are no fields and gets one pointer more than fields; so this is enough. */
    char **free_field = calloc(n_texts, sizeof *free_field);
    order->records = calloc(n_texts / 2 + 1, sizeof *order->records);
    if (!free_field || !order->records) return fail("no memory for an order of %zu bytes", n_bytes);
    for (order->n_records = 0; at < end; order->n_records++) {
        if (!parse_record(&at, end, &free_field, &order->records[order->n_records]))
            return fail("malformed order: record %d", order->n_records + 1);
    }
    return complete(order);
}

/* 1 when n bytes came, 0 when the other side hung up before. */
static int receive_all(int fd, void *into, size_t n_bytes) {
    for (size_t n_received = 0; n_received < n_bytes;) {
        ssize_t n = read(fd, (char *)into + n_received, n_bytes - n_received);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return 0;
        n_received += (size_t)n;
    }
    return 1;
}

int read_order(int fd, struct order *order) {
    struct { char magic[8]; uint32_t text_bytes, blob_bytes; } header;
    _Static_assert(sizeof header == 16, "the header has no holes");
    if (!receive_all(fd, &header, sizeof header)) return 0;
    if (memcmp(header.magic, ORDER_MAGIC, sizeof header.magic) != 0) {
        fail("malformed order: it is of another version of Beeyard than the shim");
        return -1;
    }
    if (header.text_bytes > ORDER_BYTES_MAX || header.blob_bytes > ORDER_BYTES_MAX) {
        fail("the task's description is too long: %u bytes, at most %u fit", header.text_bytes, ORDER_BYTES_MAX);
        return -1;
    }
    char *text = malloc((size_t)header.text_bytes + header.blob_bytes + 1);
    if (!text) {
        fail("no memory for an order of %u bytes", header.text_bytes);
        return -1;
    }
    if (!receive_all(fd, text, (size_t)header.text_bytes + header.blob_bytes)) return 0;
    order->blob = text + header.text_bytes;
    order->blob_bytes = header.blob_bytes;
    return parse_order(text, header.text_bytes, order) ? 1 : -1;
}
