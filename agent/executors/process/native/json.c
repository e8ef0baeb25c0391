/* The little of JSON that requests need: one object of plain values in, strings out.
 *
 * A request is {"op": "lease", "remaining_s": 86400.5}: a name and what it takes. Agents of every version speak it to shims
 * of every version, since a task outlives the upgrade of its agent; so what is not known in it is passed over.
 */
#include "shim.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* 100 years: whoever asks for more means "never", and struct timespec has an end. */
#define LEASE_S_MAX 3.2e9

struct token {
    char text[64]; /* as written, without quotes; a longer one is none that we know */
    bool is_string;
};

static const char *skip_blanks(const char *at) {
    return at + strspn(at, " \t\r\n");
}

/* A string, a number or a word. Gives what is behind it, NULL when there is none. */
static const char *read_token(const char *at, struct token *token) {
    const char *begin, *end;
    token->is_string = *at == '"';
    if (token->is_string) {
        begin = end = at + 1;
        while (*end && *end != '"') end += *end == '\\' && end[1] ? 2 : 1;
        if (!*end) return NULL;
        at = end + 1;
    } else {
        begin = at;
        at = end = at + strspn(at, "+-.0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ");
        if (begin == end) return NULL;
    }
    snprintf(token->text, sizeof token->text, "%.*s", (int)(end - begin), begin);
    return at;
}

/* Seconds as JSON writes them, or Python's word for "never". */
static bool read_seconds(const struct token *value, uint64_t *nanoseconds) {
    char *end;
    bool never = strcmp(value->text, "Infinity") == 0;
    double seconds = never ? LEASE_S_MAX : strtod(value->text, &end);
    if (value->is_string || (!never && (*end || end == value->text || !isfinite(seconds)))) return false;
    if (seconds > LEASE_S_MAX) seconds = LEASE_S_MAX;
    *nanoseconds = seconds < 1e-9 ? 1 : (uint64_t)(seconds * 1e9);
    return true;
}

static bool read_truth(const struct token *value, bool *truth) {
    *truth = strcmp(value->text, "true") == 0;
    return !value->is_string && (*truth || strcmp(value->text, "false") == 0);
}

static bool read_operation(const struct token *value, enum operation *operation) {
    static const char *const NAMES[] = {
        [OP_STATUS] = "status", [OP_START] = "start", [OP_WAIT] = "wait", [OP_STOP] = "stop",
        [OP_LINKS_DOWN] = "links_down", [OP_LEASE] = "lease", [OP_REMOVE] = "remove", [OP_KEEP] = "keep",
    };
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++) {
        if (value->is_string && strcmp(value->text, NAMES[i]) == 0) {
            *operation = (enum operation)i;
            return true;
        }
    }
    return fail("unknown request %s", value->text);
}

/* The text is bounded and ends with a zero byte, so no loop here runs on. */
static bool parse_object(const char *at, struct request *request) {
    struct token key, value, operation = {.text = ""};
    bool has_lease = false, has_links_first = false;
    request->patience_ns = 0;
    at = skip_blanks(at);
    if (*at++ != '{') return fail("malformed request: it is no object");
    for (at = skip_blanks(at); *at != '}'; at = skip_blanks(at)) {
        if (!(at = read_token(at, &key)) || !key.is_string) return fail("malformed request: a name is missing");
        at = skip_blanks(at);
        if (*at++ != ':' || !(at = read_token(skip_blanks(at), &value)))
            return fail("malformed request: %s is no plain value", key.text);
        if (strcmp(key.text, "op") == 0) operation = value;
        if (strcmp(key.text, "remaining_s") == 0) has_lease = read_seconds(&value, &request->remaining_ns);
        if (strcmp(key.text, "patience_s") == 0 && !read_seconds(&value, &request->patience_ns))
            return fail("malformed request: patience_s has to be seconds");
        if (strcmp(key.text, "links_first") == 0) has_links_first = read_truth(&value, &request->links_first);
        at = skip_blanks(at);
        if (*at == ',') at = skip_blanks(at + 1);
        else if (*at != '}') return fail("malformed request: it has no end");
    }
    if (*skip_blanks(at + 1)) return fail("malformed request: there is more behind its end");
    if (!*operation.text) return fail("malformed request: it has no op");
    if (!read_operation(&operation, &request->operation)) return false;
    if (request->operation == OP_LEASE && !has_lease) return fail("malformed request: remaining_s has to be seconds");
    if (request->operation == OP_STOP && !has_links_first) return fail("malformed request: links_first has to be true or false");
    return true;
}

bool parse_request(const char *line, size_t n_bytes, struct request *request) {
    if (memchr(line, 0, n_bytes)) return fail("malformed request: there is a zero byte in it");
    return parse_object(line, request);
}

/* How many bytes the UTF-8 character at `text` has; 0 when there is none. Source: RFC 3629, section 4. */
static int character_bytes(const unsigned char *text) {
    static const struct { unsigned char low, high, second_low, second_high; int n_bytes; } FORMS[] = {
        {0x01, 0x7f, 0, 0, 1},       {0xc2, 0xdf, 0x80, 0xbf, 2}, {0xe0, 0xe0, 0xa0, 0xbf, 3}, {0xe1, 0xec, 0x80, 0xbf, 3},
        {0xed, 0xed, 0x80, 0x9f, 3}, {0xee, 0xef, 0x80, 0xbf, 3}, {0xf0, 0xf0, 0x90, 0xbf, 4}, {0xf1, 0xf3, 0x80, 0xbf, 4},
        {0xf4, 0xf4, 0x80, 0x8f, 4},
    };
    for (size_t i = 0; i < sizeof FORMS / sizeof *FORMS; i++) {
        if (text[0] < FORMS[i].low || text[0] > FORMS[i].high) continue;
        if (FORMS[i].n_bytes > 1 && (text[1] < FORMS[i].second_low || text[1] > FORMS[i].second_high)) return 0;
        for (int j = 2; j < FORMS[i].n_bytes; j++) {
            if ((text[j] & 0xc0) != 0x80) return 0;
        }
        return FORMS[i].n_bytes;
    }
    return 0;
}

/* Write a text as a JSON string with its quotes, cut where there is no more room; what is no UTF-8 becomes "�". Gives its
 * length. */
size_t quote(char *out, size_t room, const char *text) {
    const unsigned char *at = (const unsigned char *)text;
    size_t n = 0;
    out[n++] = '"';
    while (*at && n + 8 < room) { /* the longest piece, the quote and the zero byte */
        int length = character_bytes(at);
        if (length == 0) {
            n += (size_t)sprintf(out + n, "\\ufffd");
            at++;
        } else if (length == 1 && (*at < 0x20 || *at == '"' || *at == '\\')) {
            n += (size_t)sprintf(out + n, "\\u%04x", *at++);
        } else {
            memcpy(out + n, at, (size_t)length);
            n += (size_t)length;
            at += length;
        }
    }
    out[n++] = '"';
    out[n] = 0;
    return n;
}
