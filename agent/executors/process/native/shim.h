/* What the files of beeyard-shim share. See main.c for what it is; order.h for what it is told.
 *
 * One process holds one task, so its state is in statics of the file that owns it. A function that can fail gives false and
 * has put a sentence for a person into `failure`; whoever asked decides what becomes of it.
 */
#ifndef BEEYARD_SHIM_H
#define BEEYARD_SHIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "order.h"

/* Of a sentence about a failure; what a child tells also has to fit into a pipe at once. */
#define FAILURE_BYTES 4000
/* What a path or a composed sentence may take. Linux takes no longer path in one call. */
#define PATH_BYTES 4096

/* Where zygote and shim have the agent. */
#define AGENT_FD 3

/* --- zygote.c: starting shims, and the helper for all else --- */
int be_zygote(int n_arguments, char **arguments);

/* --- main.c: a shim's birth --- */
void hold_task(void);

/* --- failure.c: sentences for people --- */
extern char failure[FAILURE_BYTES];
bool fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
bool fail_errno(const char *what); /* "WHAT: No such file or directory" */

/* --- step.c: what an order's records do --- */
bool run_step(const struct record *step);
bool write_file(const char *path, const void *data, size_t n_bytes, int flags);
bool write_descriptor(int fd, const void *data, size_t n_bytes);

/* --- view.c: mounts --- */
bool mount_step(const struct record *step);
bool mount_held_step(const struct record *step);
bool cover_step(const struct record *step);
bool seal_step(void);
bool make_directories(const char *path);

/* --- addition.c: files and devices that the node adds --- */
bool hold_step(const struct record *step); /* "open", "walk" and "look" */
bool give_device_step(const struct record *step);
bool bind_step(const struct record *step);
void make_room_to_hold(int n);
int held_descriptor(uint64_t slot); /* -1 when there is none */

/* --- launch.c: from a fork to the program --- */
#define N_IGNORED 4
extern const int IGNORED[N_IGNORED]; /* by shims; programs get the default */
bool become_step(const struct record *step);
_Noreturn void become_program(const struct order *order, int output, int report);

/* --- undo.c: removing what was made --- */
bool undo(const struct order *order);

/* --- silence.c: off the LAN --- */
bool silence_links(void);

/* --- output.c: the task's output --- */
bool open_output(const char *path, uint64_t bytes_max, uint64_t uid, uint64_t gid);
int output_reader(void);
int output_writer(void);
void close_output_writer(void);
int take_output(void); /* 1: some; 0: none now; -1: there will be none */
void drain_output(void);

/* --- program.c: the task's processes --- */
bool start_program(const struct order *order);
int report_descriptor(void);    /* -1 once it was heard to the end */
bool program_reported(void);    /* true when it has been */
const char *program_failure(void); /* "" unless it could not become the program */
int program_host_pid(void);
void signal_program(int number);
void kill_all(void);
bool reap(bool block);          /* true when no process of the task is left */
int program_wait_status(void);

/* --- json.c: requests in, text out --- */
enum operation { OP_STATUS, OP_START, OP_WAIT, OP_STOP, OP_LINKS_DOWN, OP_LEASE, OP_REMOVE, OP_KEEP };
struct request {
    enum operation operation;
    bool links_first;     /* of OP_STOP */
    uint64_t remaining_ns; /* of OP_LEASE; 1 for what is over */
    uint64_t patience_ns;  /* of OP_START: how much later it may be answered; 0: at once */
};
bool parse_request(const char *line, size_t n_bytes, struct request *request);
size_t quote(char *out, size_t room, const char *text); /* as a JSON string */

/* --- peer.c: connections --- */
#define PEERS_MAX 64
/* A request has a hundred bytes; a longer line is read to its end and refused. */
#define REQUEST_BYTES_MAX 4096
struct peer {
    int fd; /* 0: free, as all of them are at first; no peer has that descriptor */
    bool starting, waiting; /* what it is to be told of */
    bool overlong;
    size_t n_received;
    char received[REQUEST_BYTES_MAX];
};
extern struct peer peers[PEERS_MAX];
extern int n_peers; /* those behind were never used, and cost no page of memory */
struct peer *add_peer(int fd); /* NULL when there is no room */
void drop_peer(struct peer *peer);
bool receive(struct peer *peer); /* false: it has hung up */
/* The next whole line that has come: 1, and its text until the next call; 0: none; -1: one that was too long. */
int next_line(struct peer *peer, const char **line, size_t *n_bytes);
void answer(struct peer *peer, const char *format, ...) __attribute__((format(printf, 2, 3)));
void answer_error(struct peer *peer, const char *sentence);

/* --- task.c: phases --- */
void introduce(const struct order *order, int host_pid);
_Noreturn void serve(int listener, int lease, struct peer *first);
void set_lease(int timer, uint64_t remaining_ns);
void tell(struct peer *peer);

#endif
