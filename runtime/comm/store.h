/* The rendezvous store: a small table of keys and values that one process serves over TCP and the others of a job read
 * and write, so that nodes find each other. It carries ids, addresses and verdicts, never tensors.
 *
 * Whoever does not hold the job's secret can neither change anything nor pass for the server: every message is
 * authenticated, in both directions, and bound to its connection and its place there (docs/STORE.md is the protocol).
 * Messages are not encrypted; so values are no place for secrets. Strangers cost the server a bounded number of
 * descriptors and no memory that grows; one address is logged once, from a thread of its own. Descriptors are
 * close-on-exec. A child that forks and does not exec must leave what it inherited alone: it holds the server's port
 * and connections for as long as it lives. */
#ifndef SHD_COMM_STORE_H
#define SHD_COMM_STORE_H

#include <sherd/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    SHD_STORE_KEY_BYTES = 256,         /* largest key, without the 0 at its end */
    SHD_STORE_VALUE_BYTES = 64 << 10,  /* largest value */
    SHD_STORE_ADDRESS_BYTES = 80,      /* "[fe80::1%eth0]:65535" and its 0 */
    SHD_STORE_SECRET_TEXT_BYTES = 65,  /* 64 hexadecimal digits and a 0 */
    SHD_STORE_SECRET_LEAST_BYTES = 16, /* shorter texts can be guessed */
    SHD_STORE_LISTENERS = 8            /* addresses of a name that a server listens on */
};

/* --- the job's secret --------------------------------------------------------------------------------------------- */

typedef struct shd_store_secret {
    uint8_t bytes[32];
} shd_store_secret;

/* A fresh secret as text, which can be handed on in a variable or a file. Fails: INTERNAL (no libsodium). */
sherd_status shd_store_secret_make(char text[SHD_STORE_SECRET_TEXT_BYTES]);
/* The secret that a text stands for, white space at its ends left out. Fails: CONFIG (shorter than
 * SHD_STORE_SECRET_LEAST_BYTES). */
sherd_status shd_store_secret_from_text(const char *text, shd_store_secret *secret);
/* The same from a file of at most 4096 bytes. One that other users may read is taken, with a warning in the log.
 * Fails: CONFIG (too short, too long, no regular file, writable by others), IO. */
sherd_status shd_store_secret_from_file(const char *path, shd_store_secret *secret);

/* --- the server --------------------------------------------------------------------------------------------------- */

typedef struct shd_store_server_config {
    /* What to listen on, and nothing else: an address, or a name, of which every address of this machine is taken;
     * "*" is every address of both families. NULL: 127.0.0.1. */
    const char *host;
    int32_t port;            /* 0: a free one */
    const char *job;         /* two jobs with the same secret keep apart by this; any text, not NULL */
    shd_store_secret secret; /* the clients' */
    int32_t max_clients;     /* 0: 4096. One more is told to try again */
    int64_t max_bytes;       /* of all keys and values; 0: 64 MiB */
    int32_t max_keys;        /* 0: 65536 */
} shd_store_server_config;

typedef struct shd_store_server shd_store_server;

/* Listens and serves, on a thread of its own that takes no signals, until stopped. Returns when clients can connect.
 * The texts of `config` are copied. Fails, at once: COMM (port busy, named), IO (no such address here, no right to
 * the port, no descriptor), ARGUMENT, MEMORY, INTERNAL. Threads: any. */
sherd_status shd_store_server_start(const shd_store_server_config *config, shd_store_server **server);
int32_t shd_store_server_port(const shd_store_server *server);
/* Where the first of its addresses is, as "127.0.0.1:29400" or "[::1]:29400"; borrowed until the server is stopped. */
const char *shd_store_server_address(const shd_store_server *server);

typedef struct shd_store_server_stats {
    int32_t clients, keys;     /* now */
    int64_t bytes;             /* of keys and values, now */
    int64_t joined, refused;   /* connections since the start; refused: wrong secret, other job, garbage, silence */
    int64_t logged, throttled; /* addresses named in the log; times that accepting paused under a flood */
} shd_store_server_stats;
/* Threads: any. */
void shd_store_server_get_stats(shd_store_server *server, shd_store_server_stats *stats);

/* Closes every connection, whose clients see PEER, and frees. Accepts NULL. */
void shd_store_server_stop(shd_store_server *server);

/* --- a client ----------------------------------------------------------------------------------------------------- */

typedef struct shd_store_config {
    const char *host; /* an address or a name, all of whose addresses are tried; NULL: 127.0.0.1 */
    int32_t port;
    const char *job;             /* the server's */
    shd_store_secret secret;     /* the server's */
    double connect_timeout_s;    /* until the server is there and has said welcome; 0: 300 */
    double call_timeout_s;       /* how long the server may take to answer a call; 0: 30 */
    bool silence_fails;          /* one that has the port and says nothing for 6 s is another program: COMM, at once */
    bool (*give_up)(void *user); /* asked several times a second while waiting, in connect too; true ends the call with
                                  * STATE. NULL: never */
    void *user;
} shd_store_config;

typedef struct shd_store shd_store;

/* Connects and proves to the server, and has it prove, that both hold the secret. Where nobody listens yet, or the
 * name is not known yet, it tries again until the deadline; one look at a name takes as long as the system's
 * resolver does. Fails: TIMEOUT (never reached: the last cause is told), COMM (at once: refused, since the secret,
 * the job or the build is another; or something else answers there), STATE (given up), ARGUMENT, MEMORY, INTERNAL. */
sherd_status shd_store_connect(const shd_store_config *config, shd_store **store);

/* Calls on a store. Threads: one at a time; a second thread connects for itself.
 *
 * Keys are texts of 1 to SHD_STORE_KEY_BYTES bytes; values any bytes, none included. All calls are atomic, and once
 * one has returned, everybody's later calls see what it did. All fail with PEER (the server is gone, which is known
 * at once when it ends and within half a minute when its machine or the network does; the store stays dead), TIMEOUT
 * (no answer in time; the store can be used on, and what was asked for may still happen), COMM (an answer that is
 * not the server's; the store stays dead), STATE (given up), ARGUMENT (key or value too large), MEMORY (its server
 * is full, or this process). */

sherd_status shd_store_set(shd_store *store, const char *key, const void *value, size_t value_bytes);
/* Waits until `key` is there, `timeout_s` at most; 0 only looks. `value` has a 0 behind its last byte, so that a
 * text is one; the caller frees it with shd_free. Fails also: TIMEOUT (not there in time, the key named). */
sherd_status shd_store_get(shd_store *store, const char *key, double timeout_s, char **value, size_t *value_bytes);
/* Adds to a counter, a decimal number as text, that starts at 0; `value`, which may be NULL, is its value then.
 * Fails also: ARGUMENT (the key holds something else, or the sum leaves 64 bits). */
sherd_status shd_store_add(shd_store *store, const char *key, int64_t delta, int64_t *value);
/* Sets `key` to `value` if it now is `expected`, or is not there where `expected` is NULL. `*swapped`: it was set.
 * With compare_set(NULL) the first of many decides; the others get() what it said. */
sherd_status shd_store_compare_set(shd_store *store, const char *key, const void *expected, size_t expected_bytes,
                                   const void *value, size_t value_bytes, bool *swapped);
/* `existed`, which may be NULL: it was there. */
sherd_status shd_store_delete(shd_store *store, const char *key, bool *existed);

/* Whether the server has not gone, without asking it: PEER once its end is known here. For loops that wait for other
 * things: the descriptor becomes readable when there is reason to look. */
sherd_status shd_store_check(shd_store *store);
int shd_store_descriptor(const shd_store *store);

/* Accepts NULL. What calls have set stays. */
void shd_store_close(shd_store *store);

#endif
