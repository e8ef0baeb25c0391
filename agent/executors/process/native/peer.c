/* Connections of agents: a request is one line of JSON, the answer another. */
#include "shim.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct peer peers[PEERS_MAX];
int n_peers;

struct peer *add_peer(int fd) {
    for (int i = 0; i < PEERS_MAX; i++) {
        if (peers[i].fd) continue;
        if (i == n_peers) n_peers++;
        peers[i].fd = fd;
        peers[i].starting = peers[i].waiting = peers[i].overlong = false;
        peers[i].n_received = 0;
        return &peers[i];
    }
    return NULL;
}

void drop_peer(struct peer *peer) {
    close(peer->fd);
    peer->fd = 0;
}

bool receive(struct peer *peer) {
    size_t room = sizeof peer->received - peer->n_received;
    ssize_t n = recv(peer->fd, peer->received + peer->n_received, room, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return true;
    if (n <= 0) return false;
    peer->n_received += (size_t)n;
    return true;
}

int next_line(struct peer *peer, const char **line, size_t *n_bytes) {
    static char whole[REQUEST_BYTES_MAX];
    char *end = memchr(peer->received, '\n', peer->n_received);
    bool overlong = peer->overlong;
    if (!end) {
        if (peer->n_received == sizeof peer->received) { /* forget it, and what of it is still to come */
            peer->overlong = true;
            peer->n_received = 0;
        }
        return 0;
    }
    *n_bytes = (size_t)(end - peer->received);
    memcpy(whole, peer->received, *n_bytes);
    whole[*n_bytes] = 0;
    *line = whole;
    peer->n_received -= *n_bytes + 1;
    memmove(peer->received, end + 1, peer->n_received);
    peer->overlong = false;
    return overlong ? -1 : 1;
}

/* A peer that is gone or does not read loses it. */
void answer(struct peer *peer, const char *format, ...) {
    static char text[8 * FAILURE_BYTES];
    va_list arguments;
    va_start(arguments, format);
    int n = vsnprintf(text, sizeof text - 1, format, arguments);
    va_end(arguments);
    if (n < 0 || (size_t)n >= sizeof text - 1) return; /* nothing that we say is so long */
    text[n] = '\n';
    (void)!send(peer->fd, text, (size_t)n + 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

void answer_error(struct peer *peer, const char *sentence) {
    static char quoted[6 * FAILURE_BYTES + 8];
    quote(quoted, sizeof quoted, sentence);
    answer(peer, "{\"error\": %s}", quoted);
}
