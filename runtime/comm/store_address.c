#include "runtime/comm/store_address.h"

#include "runtime/base/hash.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    BACKLOG = 4096,
    FREE_PORT_TRIES = 32, /* a port that is free at one address may be busy at another */
    /* Silence of 10 s, then 4 questions 5 s apart without an answer; or 20 s in which nothing sent arrived. */
    QUIET_S = 10,
    QUESTION_S = 5,
    QUESTIONS = 4,
    UNCONFIRMED_MS = 20000
};

static bool is_same(const shd_store_address *a, const shd_store_address *b) {
    return a->bytes == b->bytes && memcmp(&a->at, &b->at, a->bytes) == 0;
}

static void add_once(shd_store_address *addresses, int32_t capacity, int32_t *count, const struct addrinfo *found) {
    shd_store_address address;
    memset(&address, 0, sizeof address);
    if (*count == capacity || found->ai_addrlen > sizeof address.at) return;
    memcpy(&address.at, found->ai_addr, found->ai_addrlen);
    address.bytes = found->ai_addrlen;
    for (int32_t i = 0; i < *count; i++)
        if (is_same(&addresses[i], &address)) return;
    addresses[(*count)++] = address;
}

const char *shd_store_resolve(const char *host, int32_t port, bool for_server, shd_store_address *addresses,
                              int32_t capacity, int32_t *count) {
    char bare[NI_MAXHOST], service[16];
    if (!host) host = "127.0.0.1";
    size_t length = strlen(host);
    if (length == 0 || length >= sizeof bare) return "no host has such a name";
    bool bracketed = host[0] == '[' && host[length - 1] == ']';
    snprintf(bare, sizeof bare, "%.*s", (int)(length - (bracketed ? 2 : 0)), host + (bracketed ? 1 : 0));
    snprintf(service, sizeof service, "%d", port);
    bool everything = for_server && strcmp(bare, "*") == 0;
    const struct addrinfo hints = {
        .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV | (for_server ? AI_PASSIVE : 0)};
    struct addrinfo *list;
    int error = getaddrinfo(everything ? NULL : bare, service, &hints, &list);
    if (error != 0) return error == EAI_SYSTEM ? strerror(errno) : gai_strerror(error);
    *count = 0;
    for (const struct addrinfo *found = list; found; found = found->ai_next)
        if (found->ai_family == AF_INET || found->ai_family == AF_INET6) add_once(addresses, capacity, count, found);
    freeaddrinfo(list);
    return *count > 0 ? NULL : "no address of IPv4 or IPv6";
}

void shd_store_address_text(const shd_store_address *address, char text[SHD_STORE_ADDRESS_BYTES]) {
    char host[SHD_STORE_ADDRESS_BYTES - 10], service[8];
    if (getnameinfo((const struct sockaddr *)&address->at, address->bytes, host, sizeof host, service, sizeof service,
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0)
        snprintf(text, SHD_STORE_ADDRESS_BYTES, "an unknown address");
    else if (address->at.ss_family == AF_INET6)
        snprintf(text, SHD_STORE_ADDRESS_BYTES, "[%s]:%s", host, service);
    else
        snprintf(text, SHD_STORE_ADDRESS_BYTES, "%s:%s", host, service);
}

/* Where the port of either family is. */
static in_port_t *port_of(shd_store_address *address) {
    return address->at.ss_family == AF_INET6 ? &((struct sockaddr_in6 *)&address->at)->sin6_port
                                             : &((struct sockaddr_in *)&address->at)->sin_port;
}

int32_t shd_store_address_port(const shd_store_address *address) {
    return ntohs(*port_of((shd_store_address *)address));
}

uint64_t shd_store_address_hash(const shd_store_address *address) {
    const struct sockaddr_in *four = (const struct sockaddr_in *)&address->at;
    const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)&address->at;
    if (address->at.ss_family == AF_INET6) return shd_hash_bytes(6, &six->sin6_addr, sizeof six->sin6_addr);
    return shd_hash_bytes(4, &four->sin_addr, sizeof four->sin_addr);
}

bool shd_store_address_is_loopback(const shd_store_address *address) {
    const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)&address->at;
    if (address->at.ss_family == AF_INET6) return IN6_IS_ADDR_LOOPBACK(&six->sin6_addr);
    return ntohl(((const struct sockaddr_in *)&address->at)->sin_addr.s_addr) >> 24 == 127;
}

static void set_option(int socket, int level, int name, int value) {
    (void)setsockopt(socket, level, name, &value, sizeof value); /* without it the store is slower, not wrong */
}

void shd_store_tune(int socket) {
    set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
    set_option(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
    set_option(socket, IPPROTO_TCP, TCP_KEEPIDLE, QUIET_S);
    set_option(socket, IPPROTO_TCP, TCP_KEEPINTVL, QUESTION_S);
    set_option(socket, IPPROTO_TCP, TCP_KEEPCNT, QUESTIONS);
    set_option(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, UNCONFIRMED_MS);
}

/* --- listening ---------------------------------------------------------------------------------------------------- */

/* A socket that listens at `address`, which gets the port it has; -1 with errno. */
static int listen_at(shd_store_address *address) {
    int made = socket(address->at.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (made < 0) return -1;
    if (address->at.ss_family == AF_INET6) set_option(made, IPPROTO_IPV6, IPV6_V6ONLY, 1);
    /* A port may be used again while connections of the job before are still being forgotten. When a free one is chosen
     * this comes after the choice: it would let two processes that ask at the same time get the same. */
    bool chosen = shd_store_address_port(address) != 0;
    if (chosen) set_option(made, SOL_SOCKET, SO_REUSEADDR, 1);
    shd_store_tune(made); /* connections that are accepted have it from here */
    bool bound = bind(made, (struct sockaddr *)&address->at, address->bytes) == 0;
    if (bound && !chosen) set_option(made, SOL_SOCKET, SO_REUSEADDR, 1);
    if (!bound || listen(made, BACKLOG) < 0 ||
        getsockname(made, (struct sockaddr *)&address->at, &address->bytes) < 0) {
        int error = errno;
        close(made);
        errno = error;
        return -1;
    }
    return made;
}

/* What listening on all came to. */
typedef struct attempt {
    int error;                /* of the last address that failed; 0: none */
    shd_store_address failed; /* that one */
} attempt;

/* Listens at those of `found` that this machine has; none is left open when one is busy. */
static int32_t listen_at_all(const shd_store_address *found, int32_t found_count, shd_store_address *addresses,
                             int *sockets, attempt *went) {
    int32_t count = 0;
    *went = (attempt){0};
    for (int32_t i = 0; i < found_count; i++) {
        addresses[count] = found[i];
        if (count > 0) *port_of(&addresses[count]) = *port_of(&addresses[0]);
        sockets[count] = listen_at(&addresses[count]);
        if (sockets[count] >= 0) {
            count++;
            continue;
        }
        *went = (attempt){.error = errno, .failed = addresses[count]};
        /* A name may also mean other machines, and a machine may be without a family. */
        if (errno == EADDRNOTAVAIL || errno == EAFNOSUPPORT) continue;
        while (count > 0) close(sockets[--count]);
        return 0;
    }
    return count;
}

/* Debian's way to write a host's own name: other nodes would ask another address. */
static void warn_of_loopback(const char *host, const shd_store_address *addresses, int32_t count) {
    char text[SHD_STORE_ADDRESS_BYTES];
    if (strcmp(host, "localhost") == 0 || strspn(host, "0123456789.") == strlen(host) || strchr(host, ':')) return;
    for (int32_t i = 0; i < count; i++)
        if (!shd_store_address_is_loopback(&addresses[i])) return;
    shd_store_address_text(&addresses[0], text);
    shd_log(SHERD_LOG_WARN,
            "store: on this machine '%s' means only %s, which other nodes cannot reach: give an address", host, text);
}

sherd_status shd_store_listen(const char *host, int32_t port, shd_store_address *addresses, int *sockets,
                              int32_t *count) {
    shd_store_address found[SHD_STORE_LISTENERS];
    char text[SHD_STORE_ADDRESS_BYTES];
    int32_t found_count = 0;
    attempt went = {0};
    if (!host) host = "127.0.0.1";
    if (port < 0 || port > 65535) return shd_fail(SHERD_ARGUMENT, "port %d is not from 0 to 65535", port);
    const char *why = shd_store_resolve(host, port, true, found, SHD_STORE_LISTENERS, &found_count);
    if (why) return shd_fail(SHERD_IO, "the store cannot listen on '%s': %s", host, why);
    for (int tries = 0; tries < FREE_PORT_TRIES; tries++) {
        *count = listen_at_all(found, found_count, addresses, sockets, &went);
        if (*count > 0) {
            warn_of_loopback(host, addresses, *count);
            return SHERD_OK;
        }
        if (port != 0 || went.error != EADDRINUSE) break;
    }
    shd_store_address_text(&went.failed, text);
    if (went.error == EADDRINUSE)
        return shd_fail(SHERD_COMM, "port %d is busy: another process has %s; choose another port, or 0 for a free one",
                        shd_store_address_port(&went.failed), text);
    if (went.error == EADDRNOTAVAIL)
        return shd_fail(SHERD_IO, "the store cannot listen on '%s': %s is no address of this machine", host, text);
    return shd_fail(SHERD_IO, "the store cannot listen on %s: %s", text, strerror(went.error));
}
