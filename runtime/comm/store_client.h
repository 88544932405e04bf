/* What the two halves of a store's client share: the connection, which store_connect.c begins and store.c uses. */
#ifndef SHD_COMM_STORE_CLIENT_H
#define SHD_COMM_STORE_CLIENT_H

#include "runtime/comm/store_wire.h"

enum { SHD_STORE_CAUSE_BYTES = 512, SHD_STORE_HOST_BYTES = 256 };

struct shd_store {
    shd_store_keys keys;
    shd_store_line line;
    int socket;
    char where[SHD_STORE_HOST_BYTES + 16]; /* "host:port" */
    double call_timeout_ms;
    bool (*give_up)(void *user);
    void *user;
    sherd_status dead; /* OK, or how every later call fails */
    char cause[SHD_STORE_CAUSE_BYTES];
    /* Out: a sealed frame, of which `sent` of `out_bytes` from its SHD_STORE_NUMBER_BYTES on have gone. */
    uint8_t *out;
    size_t out_bytes, sent;
    /* In: a length, then a frame, NULL between frames. */
    uint8_t head[SHD_STORE_LENGTH_BYTES];
    uint8_t *in;
    size_t body_bytes, filled;
    int64_t owed; /* answers of calls that did not wait for them */
};

typedef enum shd_store_news { SHD_STORE_READY, SHD_STORE_OVERDUE, SHD_STORE_GIVEN_UP } shd_store_news;

/* Sleeps until the socket (-1: none) is ready for `events`, `deadline_ms` is there, or the user gives up. Ready even
 * when the deadline has passed in a stop of the process. */
shd_store_news shd_store_await(const shd_store *store, int socket, short events, double deadline_ms);
/* "given up while waiting for the store": STATE. */
sherd_status shd_store_fail_given_up(const shd_store *store);

/* Sends the request and waits for its answer, which borrows from store->in until shd_store_drop_frame. Fails as
 * calls do. */
sherd_status shd_store_ask(shd_store *store, const shd_store_request *request, double deadline_ms,
                           shd_store_reply *reply);
void shd_store_drop_frame(shd_store *store);
/* As before the connection, which the caller closes. */
void shd_store_forget(shd_store *store);

#endif
