/* A client of the rendezvous store: one connection, one call at a time.
 *
 * A call whose time is over leaves its answer to come; the next call passes over it, since answers come in the
 * order of requests. So a server that was slow, or stopped, leaves a store that can be used on. */
#include "runtime/comm/store.h"

#include "runtime/base/clock.h"
#include "runtime/base/memory.h"
#include "runtime/base/status.h"
#include "runtime/comm/store_client.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <sodium.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    ASK_MS = 100,   /* how often give_up is asked */
    GRACE_MS = 1000 /* how much longer than it was told to wait the server may take to say that a key is not there */
};

/* --- waiting ------------------------------------------------------------------------------------------------------ */

shd_store_news shd_store_await(const shd_store *store, int socket, short events, double deadline_ms) {
    for (;;) {
        if (store->give_up && store->give_up(store->user)) return SHD_STORE_GIVEN_UP;
        double left_ms = deadline_ms - shd_clock_ms(), most_ms = store->give_up ? ASK_MS : 60000;
        struct pollfd polled = {.fd = socket, .events = events};
        int count = poll(&polled, 1, left_ms <= 0 ? 0 : (int)ceil(fmin(left_ms, most_ms)));
        if (count > 0) return SHD_STORE_READY;
        if (left_ms <= 0) return SHD_STORE_OVERDUE;
    }
}

sherd_status shd_store_fail_given_up(const shd_store *store) {
    return shd_fail(SHERD_STATE, "given up while waiting for the store at %s", store->where);
}

/* --- calls -------------------------------------------------------------------------------------------------------- */

static sherd_status __attribute__((format(printf, 3, 4)))
die(shd_store *store, sherd_status status, const char *format, ...) {
    char cause[SHD_STORE_CAUSE_BYTES / 2];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(cause, sizeof cause, format, arguments);
    va_end(arguments);
    store->dead = status;
    snprintf(store->cause, sizeof store->cause, "the store at %s %s", store->where, cause);
    return shd_fail(status, "%s", store->cause);
}

static sherd_status fail_as_before(const shd_store *store) { return shd_fail(store->dead, "%s", store->cause); }

/* What errno, or the end of the connection, means. */
static sherd_status lose(shd_store *store, ssize_t moved) {
    if (moved == 0 || errno == ECONNRESET || errno == EPIPE)
        return die(store, SHERD_PEER, "has gone: its process ended, or stopped serving");
    return die(store, SHERD_PEER, "is lost: %s", strerror(errno));
}

static bool is_nothing_yet(ssize_t moved) {
    return moved < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
}

static sherd_status flush(shd_store *store) {
    while (store->sent < store->out_bytes) {
        ssize_t moved = send(store->socket, store->out + SHD_STORE_NUMBER_BYTES + store->sent,
                             store->out_bytes - store->sent, MSG_NOSIGNAL);
        if (is_nothing_yet(moved)) return SHERD_OK;
        if (moved < 0) return lose(store, moved);
        store->sent += (size_t)moved;
    }
    return SHERD_OK;
}

/* What has been read in full: a length, or a frame. */
static sherd_status take_part(shd_store *store, bool *complete) {
    if (!store->in) {
        store->body_bytes = shd_store_read_length(store->head);
        if (store->body_bytes < SHD_STORE_FIXED_BYTES ||
            store->body_bytes > SHD_STORE_FIXED_BYTES + SHD_STORE_VALUE_BYTES)
            return die(store, SHERD_COMM, "sent a frame of a length that there is not");
        store->in = shd_alloc(1, store->body_bytes + SHD_STORE_AROUND_BYTES + 1);
        if (!store->in) return die(store, SHERD_COMM, "sent more than there is memory for");
        shd_store_write_length(store->in + SHD_STORE_NUMBER_BYTES, (uint32_t)store->body_bytes);
        store->filled = 0;
        return SHERD_OK;
    }
    if (!shd_store_open(&store->line, store->in, store->body_bytes))
        return die(store, SHERD_COMM, "sent a frame that is not authentic");
    *complete = true;
    return SHERD_OK;
}

void shd_store_drop_frame(shd_store *store) {
    shd_free(store->in);
    store->in = NULL;
    store->filled = 0;
}

void shd_store_forget(shd_store *store) {
    shd_store_drop_frame(store);
    shd_free(store->out);
    store->out = NULL;
    store->out_bytes = store->sent = 0;
    store->owed = 0;
    store->socket = -1;
    store->dead = SHERD_OK;
}

/* Reads on. `*complete`: a frame is in store->in. */
static sherd_status receive(shd_store *store, bool *complete) {
    while (!*complete) {
        size_t whole = store->in ? store->body_bytes + SHD_STORE_TAG_BYTES : sizeof store->head;
        uint8_t *where = store->in ? store->in + SHD_STORE_BODY_AT : store->head;
        ssize_t moved = recv(store->socket, where + store->filled, whole - store->filled, 0);
        if (is_nothing_yet(moved)) return SHERD_OK;
        if (moved <= 0) return lose(store, moved);
        store->filled += (size_t)moved;
        if (store->filled == whole) SHD_TRY(take_part(store, complete));
    }
    return SHERD_OK;
}

/* Moves bytes until the request has gone and, with `reply`, its answer is in store->in. */
static sherd_status pump(shd_store *store, double deadline_ms, shd_store_reply *reply) {
    for (;;) {
        bool complete = false;
        SHD_TRY(flush(store));
        SHD_TRY(receive(store, &complete));
        bool sends = store->sent < store->out_bytes;
        if (complete && store->owed > 0) {
            store->owed--;
            shd_store_drop_frame(store);
            continue;
        }
        if (complete && (!reply || !shd_store_read_reply(store->in + SHD_STORE_BODY_AT, store->body_bytes, reply)))
            return die(store, SHERD_COMM, "sent what is no answer");
        if (complete || (!reply && !sends)) return SHERD_OK;
        switch (shd_store_await(store, store->socket, sends ? POLLIN | POLLOUT : POLLIN, deadline_ms)) {
        case SHD_STORE_READY: break;
        case SHD_STORE_OVERDUE: return shd_fail(SHERD_TIMEOUT, "no answer from the store at %s in time", store->where);
        case SHD_STORE_GIVEN_UP: return shd_store_fail_given_up(store);
        }
    }
}

sherd_status shd_store_ask(shd_store *store, const shd_store_request *request, double deadline_ms,
                           shd_store_reply *reply) {
    if (store->dead != SHERD_OK) return fail_as_before(store);
    if (store->sent < store->out_bytes) SHD_TRY(pump(store, deadline_ms, NULL));
    size_t body_bytes = shd_store_request_bytes(request);
    uint8_t *frame = shd_alloc(1, body_bytes + SHD_STORE_AROUND_BYTES);
    if (!frame) return shd_fail(SHERD_MEMORY, "no memory for a request of %zu bytes", body_bytes);
    shd_free(store->out);
    shd_store_write_request(frame + SHD_STORE_BODY_AT, request);
    shd_store_seal(&store->line, frame, body_bytes);
    store->out = frame;
    store->out_bytes = shd_store_sent_bytes(body_bytes);
    store->sent = 0;
    sherd_status status = pump(store, deadline_ms, reply);
    if (status != SHERD_OK && store->dead == SHERD_OK) store->owed++;
    return status;
}

static sherd_status check_key(const char *key, size_t value_bytes) {
    size_t key_bytes = strlen(key);
    if (key_bytes < 1 || key_bytes > SHD_STORE_KEY_BYTES)
        return shd_fail(SHERD_ARGUMENT, "a key of a store has 1 to %d bytes, not %zu", SHD_STORE_KEY_BYTES, key_bytes);
    if (value_bytes > SHD_STORE_VALUE_BYTES)
        return shd_fail(SHERD_ARGUMENT, "a value of a store has at most %d bytes, not %zu ('%s')",
                        SHD_STORE_VALUE_BYTES, value_bytes, key);
    return SHERD_OK;
}

/* A call without a value as its answer. */
static sherd_status call(shd_store *store, const shd_store_request *request, int64_t *number) {
    shd_store_reply reply;
    SHD_TRY(shd_store_ask(store, request, shd_clock_ms() + store->call_timeout_ms, &reply));
    shd_store_drop_frame(store);
    const char *key = request->key;
    switch (reply.status) {
    case SHD_STORE_DONE: *number = reply.number; return SHERD_OK;
    case SHD_STORE_FULL: return shd_fail(SHERD_MEMORY, "the store at %s is full: no room for '%s'", store->where, key);
    case SHD_STORE_NO_NUMBER:
        return shd_fail(SHERD_ARGUMENT, "'%s' is no counter, or would leave 64 bits; nothing was added", key);
    case SHD_STORE_ABSENT: break;
    }
    return die(store, SHERD_COMM, "gave an answer that does not fit its request");
}

sherd_status shd_store_set(shd_store *store, const char *key, const void *value, size_t value_bytes) {
    int64_t number;
    SHD_TRY(check_key(key, value_bytes));
    return call(
        store,
        &(shd_store_request){
            .op = SHD_STORE_SET, .key = key, .key_bytes = strlen(key), .value = value, .value_bytes = value_bytes},
        &number);
}

sherd_status shd_store_get(shd_store *store, const char *key, double timeout_s, char **value, size_t *value_bytes) {
    shd_store_reply reply;
    SHD_TRY(check_key(key, 0));
    if (!(timeout_s >= 0)) return shd_fail(SHERD_ARGUMENT, "a store cannot wait %g s for '%s'", timeout_s, key);
    double wait_ms = fmin(timeout_s, 1e9) * 1000;
    double deadline_ms = shd_clock_ms() + (wait_ms > 0 ? wait_ms + GRACE_MS : store->call_timeout_ms);
    const shd_store_request request = {
        .op = SHD_STORE_GET, .number = (int64_t)ceil(wait_ms), .key = key, .key_bytes = strlen(key)};
    SHD_TRY(shd_store_ask(store, &request, deadline_ms, &reply));
    if (reply.status == SHD_STORE_DONE) {
        /* The answer's own memory becomes the value. */
        char *bytes = (char *)store->in;
        memmove(bytes, reply.value, reply.value_bytes);
        bytes[reply.value_bytes] = 0;
        store->in = NULL;
        store->filled = 0;
        *value = bytes;
        *value_bytes = reply.value_bytes;
        return SHERD_OK;
    }
    shd_store_drop_frame(store);
    if (reply.status != SHD_STORE_ABSENT) return die(store, SHERD_COMM, "gave an answer that does not fit its request");
    return shd_fail(SHERD_TIMEOUT, "'%s' was not set in the store at %s within %g s", key, store->where, timeout_s);
}

sherd_status shd_store_add(shd_store *store, const char *key, int64_t delta, int64_t *value) {
    int64_t sum = 0;
    SHD_TRY(check_key(key, 0));
    SHD_TRY(call(
        store, &(shd_store_request){.op = SHD_STORE_ADD, .number = delta, .key = key, .key_bytes = strlen(key)}, &sum));
    if (value) *value = sum;
    return SHERD_OK;
}

sherd_status shd_store_compare_set(shd_store *store, const char *key, const void *expected, size_t expected_bytes,
                                   const void *value, size_t value_bytes, bool *swapped) {
    int64_t number = 0;
    SHD_TRY(check_key(key, value_bytes));
    if (expected_bytes > SHD_STORE_VALUE_BYTES || (!expected && expected_bytes > 0))
        return shd_fail(SHERD_ARGUMENT, "no value of a store has %zu bytes ('%s')", expected_bytes, key);
    SHD_TRY(call(store,
                 &(shd_store_request){.op = SHD_STORE_COMPARE_SET,
                                      .number = expected ? 1 : 0,
                                      .key = key,
                                      .key_bytes = strlen(key),
                                      .expected = expected,
                                      .expected_bytes = expected_bytes,
                                      .value = value,
                                      .value_bytes = value_bytes},
                 &number));
    *swapped = number == 1;
    return SHERD_OK;
}

sherd_status shd_store_delete(shd_store *store, const char *key, bool *existed) {
    int64_t number = 0;
    SHD_TRY(check_key(key, 0));
    SHD_TRY(call(store, &(shd_store_request){.op = SHD_STORE_DELETE, .key = key, .key_bytes = strlen(key)}, &number));
    if (existed) *existed = number == 1;
    return SHERD_OK;
}

sherd_status shd_store_check(shd_store *store) {
    uint8_t byte;
    if (store->dead != SHERD_OK) return fail_as_before(store);
    ssize_t moved = recv(store->socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return moved > 0 || is_nothing_yet(moved) ? SHERD_OK : lose(store, moved);
}

int shd_store_descriptor(const shd_store *store) { return store->socket; }

void shd_store_close(shd_store *store) {
    if (!store) return;
    if (store->socket >= 0) {
        (void)shutdown(store->socket, SHUT_RDWR); /* a child that has not come to its exec may hold it too */
        close(store->socket);
    }
    shd_free(store->out);
    shd_free(store->in);
    sodium_memzero(&store->keys, sizeof store->keys);
    sodium_memzero(&store->line, sizeof store->line);
    shd_free(store);
}
