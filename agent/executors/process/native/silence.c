/* Take the links of this process's network namespace off the LAN at once.
 *
 * beeyard/runtime/silence.py is the same rule for the agent, with the reasons. A link is made deaf first, then loses its
 * addresses, so that nothing answers from the first step on:
 *
 *     macvlan            enters the mode in which it hears listed senders only, and none are listed
 *     macvlan passthru   cannot leave its mode, and is deleted
 *     ipvlan             has no way to be deaf alone; the parent delivers by address, so that one it lost is not reached
 *     others             are set down
 */
#include "shim.h"

#include <errno.h>
#include <linux/if.h>
#include <linux/if_addr.h>
#include <linux/if_link.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

/* The kernel says when a list changed while it was read. One that always changes is taken as it was seen. */
#define DUMP_TRIES 5
/* Longer than any answer takes; it only turns a kernel that breaks its rules into an error instead of a hang. */
#define ANSWER_S_MAX 5

enum kind { LINK_OTHER, LINK_MACVLAN, LINK_PASSTHRU, LINK_IPVLAN };
struct link {
    int index;
    enum kind kind;
};
struct address {
    struct ifaddrmsg about;
    size_t n_bytes;
    unsigned char local[16];
};
static struct {
    struct link *links;
    struct address *addresses;
    size_t n_links, n_addresses;
} found;

static int netlink = -1;
static uint32_t sequence;

/* Room for one element more in an array that is only ever filled from its start; rounded up so that it is seldom moved. */
static void *grown(void *array, size_t n, size_t size) {
    if (n & (n - 1)) return array;
    void *larger = realloc(array, (n ? 2 * n : 1) * size);
    if (!larger) abort(); /* links stay up: whoever holds them must not live on */
    return larger;
}

/* --- what there is ------------------------------------------------------------------------------------------------- */

static bool is_named(const struct rtattr *attribute, const char *name) {
    size_t length = strlen(name);
    return (size_t)RTA_PAYLOAD(attribute) >= length && strncmp(RTA_DATA(attribute), name, RTA_PAYLOAD(attribute)) == 0;
}

static enum kind kind_of(const struct rtattr *info) {
    enum kind kind = LINK_OTHER;
    bool passthru = false;
    int left = (int)RTA_PAYLOAD(info);
    for (const struct rtattr *at = RTA_DATA(info); RTA_OK(at, left); at = RTA_NEXT(at, left)) {
        if (at->rta_type == IFLA_INFO_KIND && is_named(at, "macvlan")) kind = LINK_MACVLAN;
        if (at->rta_type == IFLA_INFO_KIND && is_named(at, "ipvlan")) kind = LINK_IPVLAN;
        if (at->rta_type != IFLA_INFO_DATA) continue;
        int inner_left = (int)RTA_PAYLOAD(at);
        for (const struct rtattr *inner = RTA_DATA(at); RTA_OK(inner, inner_left); inner = RTA_NEXT(inner, inner_left)) {
            if (inner->rta_type == IFLA_MACVLAN_MODE && RTA_PAYLOAD(inner) >= sizeof(uint32_t))
                passthru = *(const uint32_t *)RTA_DATA(inner) == MACVLAN_MODE_PASSTHRU;
        }
    }
    return kind == LINK_MACVLAN && passthru ? LINK_PASSTHRU : kind;
}

static void note_link(const struct nlmsghdr *message) {
    const struct ifinfomsg *about = NLMSG_DATA(message);
    struct link link = {about->ifi_index, LINK_OTHER};
    int left = (int)IFLA_PAYLOAD(message);
    if (about->ifi_flags & IFF_LOOPBACK) return;
    for (const struct rtattr *at = IFLA_RTA(about); RTA_OK(at, left); at = RTA_NEXT(at, left)) {
        if ((at->rta_type & NLA_TYPE_MASK) == IFLA_LINKINFO) link.kind = kind_of(at);
    }
    found.links = grown(found.links, found.n_links, sizeof link);
    found.links[found.n_links++] = link;
}

static void note_address(const struct nlmsghdr *message) {
    struct address address = {.about = *(const struct ifaddrmsg *)NLMSG_DATA(message)};
    int left = (int)IFA_PAYLOAD(message);
    for (const struct rtattr *at = IFA_RTA(NLMSG_DATA(message)); RTA_OK(at, left); at = RTA_NEXT(at, left)) {
        bool wanted = at->rta_type == IFA_LOCAL || (at->rta_type == IFA_ADDRESS && !address.n_bytes);
        if (!wanted || RTA_PAYLOAD(at) > sizeof address.local) continue;
        address.n_bytes = RTA_PAYLOAD(at);
        memcpy(address.local, RTA_DATA(at), address.n_bytes);
    }
    found.addresses = grown(found.addresses, found.n_addresses, sizeof address);
    found.addresses[found.n_addresses++] = address;
}

static void note(const struct nlmsghdr *message) {
    if (message->nlmsg_type == RTM_NEWLINK && message->nlmsg_len >= NLMSG_LENGTH(sizeof(struct ifinfomsg))) note_link(message);
    if (message->nlmsg_type == RTM_NEWADDR && message->nlmsg_len >= NLMSG_LENGTH(sizeof(struct ifaddrmsg))) note_address(message);
}

/* --- the conversation ---------------------------------------------------------------------------------------------- */

/* Send one request and take its answers in, to the one that ends it. 0, or the kernel's error number; `changed`: a list
 * did. */
static int exchange(struct nlmsghdr *request, bool *changed) {
    static union { struct nlmsghdr header; char bytes[65536]; } reply;
    request->nlmsg_seq = ++sequence;
    if (send(netlink, request, request->nlmsg_len, 0) < 0) return errno;
    for (;;) {
        ssize_t n = recv(netlink, &reply, sizeof reply, 0);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return errno;
        int left = (int)n;
        for (struct nlmsghdr *at = &reply.header; NLMSG_OK(at, left); at = NLMSG_NEXT(at, left)) {
            if (at->nlmsg_seq != sequence) continue;
            *changed |= !!(at->nlmsg_flags & NLM_F_DUMP_INTR);
            if (at->nlmsg_type == NLMSG_DONE || at->nlmsg_type == NLMSG_ERROR)
                return at->nlmsg_len >= NLMSG_LENGTH(sizeof(int)) ? -*(const int *)NLMSG_DATA(at) : 0;
            note(at);
        }
    }
}

static void begin_request(struct nlmsghdr *header, int type, int flags, const void *body, size_t n_bytes) {
    memset(header, 0, sizeof *header);
    header->nlmsg_len = (uint32_t)NLMSG_LENGTH(n_bytes);
    header->nlmsg_type = (uint16_t)type;
    header->nlmsg_flags = (uint16_t)(NLM_F_REQUEST | flags);
    memcpy(NLMSG_DATA(header), body, n_bytes);
}

static struct rtattr *add_attribute(struct nlmsghdr *header, int type, const void *data, size_t n_bytes) {
    struct rtattr *attribute = (struct rtattr *)((char *)header + NLMSG_ALIGN(header->nlmsg_len));
    attribute->rta_type = (unsigned short)type;
    attribute->rta_len = (unsigned short)RTA_LENGTH(n_bytes);
    if (n_bytes) memcpy(RTA_DATA(attribute), data, n_bytes);
    header->nlmsg_len = (uint32_t)(NLMSG_ALIGN(header->nlmsg_len) + RTA_ALIGN(attribute->rta_len));
    return attribute;
}

static void end_nest(struct nlmsghdr *header, struct rtattr *nest) {
    nest->rta_len = (unsigned short)((char *)header + header->nlmsg_len - (char *)nest);
}

static int list(int type, const void *body, size_t n_bytes, size_t *n_found) {
    union { struct nlmsghdr header; char room[128]; } request;
    int error = 0;
    bool changed = true;
    for (int tries = 0; changed && !error && tries < DUMP_TRIES; tries++) {
        uint32_t without_counters = RTEXT_FILTER_SKIP_STATS;
        changed = false;
        *n_found = 0;
        begin_request(&request.header, type, NLM_F_DUMP, body, n_bytes);
        if (type == RTM_GETLINK) add_attribute(&request.header, IFLA_EXT_MASK, &without_counters, sizeof without_counters);
        error = exchange(&request.header, &changed);
    }
    return error;
}

static int deafen(const struct link *link) {
    union { struct nlmsghdr header; char room[256]; } request;
    struct ifinfomsg body = {.ifi_index = link->index};
    bool changed = false;
    uint32_t source_mode = MACVLAN_MODE_SOURCE;
    switch (link->kind) {
    case LINK_IPVLAN:
        return 0;
    case LINK_PASSTHRU:
        begin_request(&request.header, RTM_DELLINK, NLM_F_ACK, &body, sizeof body);
        break;
    case LINK_MACVLAN:
        begin_request(&request.header, RTM_NEWLINK, NLM_F_ACK, &body, sizeof body);
        struct rtattr *info = add_attribute(&request.header, IFLA_LINKINFO, NULL, 0);
        add_attribute(&request.header, IFLA_INFO_KIND, "macvlan", 7);
        struct rtattr *data = add_attribute(&request.header, IFLA_INFO_DATA, NULL, 0);
        add_attribute(&request.header, IFLA_MACVLAN_MODE, &source_mode, sizeof source_mode);
        end_nest(&request.header, data);
        end_nest(&request.header, info);
        break;
    case LINK_OTHER:
        body.ifi_change = IFF_UP;
        begin_request(&request.header, RTM_SETLINK, NLM_F_ACK, &body, sizeof body);
        break;
    }
    return exchange(&request.header, &changed);
}

static int delete_address(const struct address *address) {
    union { struct nlmsghdr header; char room[128]; } request;
    struct ifaddrmsg body = {address->about.ifa_family, address->about.ifa_prefixlen, 0, 0, address->about.ifa_index};
    bool changed = false;
    begin_request(&request.header, RTM_DELADDR, NLM_F_ACK, &body, sizeof body);
    add_attribute(&request.header, IFA_LOCAL, address->local, address->n_bytes);
    return exchange(&request.header, &changed);
}

/* Gone meanwhile, or taken away with an address of the same subnet, is what was wanted. */
static bool matters(int error) {
    return error && error != ENODEV && error != EADDRNOTAVAIL;
}

static int silence_one(const struct link *link) {
    int error = deafen(link), first = matters(error) ? error : 0;
    for (size_t i = 0; i < found.n_addresses; i++) {
        if ((int)found.addresses[i].about.ifa_index != link->index) continue;
        error = delete_address(&found.addresses[i]);
        if (matters(error) && !first) first = error;
    }
    return first;
}

/* On return no address of the namespace answers any more, except on loopback. May be called again. */
bool silence_links(void) {
    struct ifinfomsg all_links = {.ifi_family = AF_UNSPEC};
    struct ifaddrmsg all_addresses = {.ifa_family = AF_UNSPEC};
    struct timeval patience = {.tv_sec = ANSWER_S_MAX};
    int on = 1;
    netlink = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    if (netlink < 0) return fail_errno("cannot take the links down");
    setsockopt(netlink, SOL_NETLINK, NETLINK_CAP_ACK, &on, sizeof on);
    setsockopt(netlink, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    int error = list(RTM_GETLINK, &all_links, sizeof all_links, &found.n_links);
    /* Most often there is loopback alone, whose addresses are nobody's business. */
    if (!error && found.n_links) error = list(RTM_GETADDR, &all_addresses, sizeof all_addresses, &found.n_addresses);
    for (size_t i = 0; !error && i < found.n_links; i++) error = silence_one(&found.links[i]);
    close(netlink);
    errno = error;
    return !error || fail_errno("cannot take the links down");
}
