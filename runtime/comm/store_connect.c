/* How a client of the rendezvous store begins: find the server, which may not be there yet, and prove to each other
 * that both hold the secret.
 *
 * What may change by itself (no such name, nobody listens, no answer, no room) is tried again until the deadline;
 * what a person must mend (another secret, job or build; another program) fails at once. */
#include "runtime/comm/store_client.h"

#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/base/memory.h"
#include "runtime/base/status.h"
#include "runtime/comm/store_address.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    MAX_ADDRESSES = 16,
    CONNECT_S = 300, /* what 0 in a config stands for */
    CALL_S = 30,
    ATTEMPT_MS = 250,      /* how long the first try waits for one address; later ones twice as long, */
    MAX_ATTEMPT_MS = 8000, /* up to this */
    BEGINNING_MS = 6000,   /* and for what the server says there: longer than it lets a beginning take */
    FIRST_PAUSE_MS = 20,   /* between tries, half as long again each time, */
    MAX_PAUSE_MS = 500,    /* up to this */
    PATIENT_MS = 5000      /* after which the log tells what is waited for */
};

/* One try: whether it went well, may be repeated, or ends the call with the status that is recorded. */
typedef enum outcome { JOINED, AGAIN, HOPELESS } outcome;

typedef struct search {
    shd_store *store;
    double deadline_ms, attempt_ms;
    bool silence_fails;
    sherd_status status;                   /* with HOPELESS */
    char cause[SHD_STORE_CAUSE_BYTES / 2]; /* of the last AGAIN */
} search;

static outcome try_again(search *self, const char *what, const char *cause) {
    snprintf(self->cause, sizeof self->cause, "%s%s%s", what, *what ? ": " : "", cause);
    return AGAIN;
}

/* What was waited for did not come. The last try is cut short by the deadline: what the one before met tells more. */
static outcome find_overdue(search *self, const char *what, const char *cause) {
    return self->cause[0] && shd_clock_ms() >= self->deadline_ms ? AGAIN : try_again(self, what, cause);
}

static outcome give_up(search *self) {
    self->status = shd_store_fail_given_up(self->store);
    return HOPELESS;
}

static outcome refuse_silent(search *self) {
    self->status =
        shd_fail(SHERD_COMM, "another program has %s, and says nothing: choose another port", self->store->where);
    return HOPELESS;
}

/* --- sockets ------------------------------------------------------------------------------------------------------ */

/* A socket that is connected, by `until_ms`. */
static outcome connect_to(search *self, const shd_store_address *address, double until_ms, int *socket_out) {
    char text[SHD_STORE_ADDRESS_BYTES];
    shd_store_address_text(address, text);
    int made = socket(address->at.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (made < 0) return try_again(self, text, strerror(errno));
    *socket_out = made;
    if (connect(made, (const struct sockaddr *)&address->at, address->bytes) < 0) {
        if (errno != EINPROGRESS && errno != EINTR) return try_again(self, text, strerror(errno));
        shd_store_news news = shd_store_await(self->store, made, POLLOUT, until_ms);
        if (news == SHD_STORE_GIVEN_UP) return give_up(self);
        if (news == SHD_STORE_OVERDUE) return find_overdue(self, text, "no answer");
        int error = 0;
        socklen_t bytes = sizeof error;
        if (getsockopt(made, SOL_SOCKET, SO_ERROR, &error, &bytes) < 0 || error != 0)
            return try_again(self, text, strerror(error ? error : errno));
    }
    /* Where nobody listens on a port of the range that clients get theirs from, a socket may meet itself; it must not
     * keep the port from the server. */
    shd_store_address own = {.bytes = sizeof own.at};
    if (getsockname(made, (struct sockaddr *)&own.at, &own.bytes) == 0 &&
        shd_store_address_port(&own) == shd_store_address_port(address) &&
        shd_store_address_hash(&own) == shd_store_address_hash(address))
        return try_again(self, text, strerror(ECONNREFUSED));
    shd_store_tune(made);
    return JOINED;
}

/* Sends or receives all of `bytes`. */
static outcome move_all(search *self, int socket, uint8_t *bytes, size_t count, bool sends, double until_ms) {
    size_t done = 0;
    while (done < count) {
        ssize_t moved = sends ? send(socket, bytes + done, count - done, MSG_NOSIGNAL)
                              : recv(socket, bytes + done, count - done, 0);
        if (moved > 0) {
            done += (size_t)moved;
            continue;
        }
        if (moved == 0) return try_again(self, self->store->where, "closed the connection without an answer");
        if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)
            return try_again(self, self->store->where, strerror(errno));
        shd_store_news news = shd_store_await(self->store, socket, sends ? POLLOUT : POLLIN, until_ms);
        if (news == SHD_STORE_GIVEN_UP) return give_up(self);
        if (news == SHD_STORE_OVERDUE && self->silence_fails) return refuse_silent(self);
        if (news == SHD_STORE_OVERDUE) return find_overdue(self, self->store->where, "connected, but said nothing");
    }
    return JOINED;
}

/* --- the beginning ------------------------------------------------------------------------------------------------ */

/* What a person has to mend. */
static outcome refuse(search *self, shd_store_welcome verdict) {
    const char *where = self->store->where;
    self->status = SHERD_COMM;
    if (verdict == SHD_STORE_OTHER_SECRET)
        shd_fail(SHERD_COMM, "the store at %s has another secret than this process", where);
    else if (verdict == SHD_STORE_OTHER_JOB)
        shd_fail(SHERD_COMM, "the store at %s is that of another job", where);
    else if (verdict == SHD_STORE_OTHER_VERSION)
        shd_fail(SHERD_COMM, "the store at %s is of another build of sherd, which this one does not understand", where);
    else
        shd_fail(SHERD_COMM, "what answers at %s is not a store of sherd", where);
    return HOPELESS;
}

/* Over a fresh connection: hello, welcome, join. */
static outcome begin(search *self, int socket, double until_ms) {
    shd_store *store = self->store;
    uint8_t nonce[SHD_STORE_NONCE_BYTES], hello[SHD_STORE_HELLO_BYTES], welcome[SHD_STORE_WELCOME_BYTES] = {0};
    randombytes_buf(nonce, sizeof nonce);
    shd_store_write_hello(hello, &store->keys, nonce);
    outcome went = move_all(self, socket, hello, sizeof hello, true, until_ms);
    /* Another program may say less than a welcome and wait. */
    if (went == JOINED) went = move_all(self, socket, welcome, SHD_STORE_MARK_BYTES, false, until_ms);
    if (went == JOINED && !shd_store_is_welcome(welcome)) return refuse(self, SHD_STORE_GARBAGE);
    if (went == JOINED)
        went = move_all(self, socket, welcome + SHD_STORE_MARK_BYTES, sizeof welcome - SHD_STORE_MARK_BYTES, false,
                        until_ms);
    if (went != JOINED) return went;
    shd_store_welcome verdict = shd_store_read_welcome(welcome, &store->keys, nonce, &store->line);
    if (verdict == SHD_STORE_NO_ROOM) return try_again(self, store->where, "has no room for more clients");
    if (verdict != SHD_STORE_WELCOME) return refuse(self, verdict);
    shd_store_reply reply;
    store->socket = socket;
    sherd_status status = shd_store_ask(store, &(shd_store_request){.op = SHD_STORE_JOIN}, until_ms, &reply);
    shd_store_drop_frame(store);
    if (status == SHERD_OK) return JOINED;
    shd_store_forget(store);
    self->status = status;
    if (status == SHERD_TIMEOUT) return find_overdue(self, "", sherd_last_error());
    return status == SHERD_PEER ? try_again(self, "", sherd_last_error()) : HOPELESS;
}

/* Tries one address after another. */
static outcome try_addresses(search *self, const shd_store_address *addresses, int32_t count) {
    outcome went = AGAIN;
    for (int32_t i = 0; i < count && went == AGAIN; i++) {
        int socket = -1;
        double now_ms = shd_clock_ms();
        went = connect_to(self, &addresses[i], fmin(self->deadline_ms, now_ms + self->attempt_ms), &socket);
        if (went == JOINED) went = begin(self, socket, fmin(self->deadline_ms, shd_clock_ms() + BEGINNING_MS));
        if (went != JOINED && socket >= 0) close(socket);
        if (shd_clock_ms() >= self->deadline_ms) break;
    }
    return went;
}

static sherd_status find_server(search *self, const char *host, int32_t port) {
    double start_ms = shd_clock_ms(), pause_ms = FIRST_PAUSE_MS;
    bool told = false;
    for (;;) {
        shd_store_address addresses[MAX_ADDRESSES];
        int32_t count = 0;
        const char *why = shd_store_resolve(host, port, false, addresses, MAX_ADDRESSES, &count);
        outcome went = why ? try_again(self, "its name", why) : try_addresses(self, addresses, count);
        if (went == JOINED) return SHERD_OK;
        if (went == HOPELESS) return self->status;
        double now_ms = shd_clock_ms();
        if (now_ms >= self->deadline_ms) break;
        if (!told && now_ms - start_ms > PATIENT_MS)
            shd_log(SHERD_LOG_INFO, "store: waiting for %s, at most %.0f s more (%s)", self->store->where,
                    (self->deadline_ms - now_ms) / 1000, self->cause);
        told = told || now_ms - start_ms > PATIENT_MS;
        if (shd_store_await(self->store, -1, 0, fmin(self->deadline_ms, now_ms + pause_ms)) == SHD_STORE_GIVEN_UP)
            return shd_store_fail_given_up(self->store);
        pause_ms = fmin(pause_ms * 1.5, MAX_PAUSE_MS);
        self->attempt_ms = fmin(self->attempt_ms * 2, MAX_ATTEMPT_MS);
    }
    return shd_fail(SHERD_TIMEOUT, "no store at %s within %g s (%s)", self->store->where,
                    (shd_clock_ms() - start_ms) / 1000, self->cause);
}

sherd_status shd_store_connect(const shd_store_config *config, shd_store **store) {
    const char *host = config->host ? config->host : "127.0.0.1";
    if (!config->job) return shd_fail(SHERD_ARGUMENT, "a store needs a job's id");
    if (config->port < 1 || config->port > 65535)
        return shd_fail(SHERD_ARGUMENT, "port %d is not from 1 to 65535", config->port);
    if (strlen(host) >= SHD_STORE_HOST_BYTES) return shd_fail(SHERD_ARGUMENT, "no host has a name this long");
    shd_store *made = shd_alloc(1, sizeof *made);
    if (!made) return shd_fail(SHERD_MEMORY, "no memory for a store's client");
    made->socket = -1;
    made->call_timeout_ms = 1000 * (config->call_timeout_s > 0 ? config->call_timeout_s : CALL_S);
    made->give_up = config->give_up;
    made->user = config->user;
    snprintf(made->where, sizeof made->where, strchr(host, ':') && host[0] != '[' ? "[%s]:%d" : "%s:%d", host,
             config->port);
    double timeout_s = config->connect_timeout_s > 0 ? config->connect_timeout_s : CONNECT_S;
    search self = {.store = made,
                   .deadline_ms = shd_clock_ms() + 1000 * timeout_s,
                   .attempt_ms = ATTEMPT_MS,
                   .silence_fails = config->silence_fails};
    sherd_status status = shd_store_keys_init(&config->secret, config->job, &made->keys);
    if (status == SHERD_OK) status = find_server(&self, host, config->port);
    if (status != SHERD_OK) {
        shd_store_close(made);
        return status;
    }
    *store = made;
    return SHERD_OK;
}
