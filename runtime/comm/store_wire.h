/* The bytes of the rendezvous store: keys, the two messages of a beginning, frames, and what their bodies say.
 * docs/STORE.md specifies them. No sockets here: server, client and fuzzer share it. */
#ifndef SHD_COMM_STORE_WIRE_H
#define SHD_COMM_STORE_WIRE_H

#include "runtime/comm/store.h"

enum {
    SHD_STORE_VERSION = 1,
    SHD_STORE_MARK_BYTES = 8, /* what hello and welcome begin with */
    SHD_STORE_NONCE_BYTES = 24,
    SHD_STORE_TAG_BYTES = 32,
    SHD_STORE_HELLO_BYTES = 88,
    SHD_STORE_WELCOME_BYTES = 72,
    SHD_STORE_FIXED_BYTES = 16, /* at the front of every body */
    SHD_STORE_BODY_BYTES = SHD_STORE_FIXED_BYTES + SHD_STORE_KEY_BYTES + 2 * SHD_STORE_VALUE_BYTES,
    /* Around a body in memory: room for its number, which is not sent, and its length; behind it its tag. */
    SHD_STORE_NUMBER_BYTES = 8,
    SHD_STORE_LENGTH_BYTES = 4,
    SHD_STORE_BODY_AT = SHD_STORE_NUMBER_BYTES + SHD_STORE_LENGTH_BYTES,
    SHD_STORE_AROUND_BYTES = SHD_STORE_BODY_AT + SHD_STORE_TAG_BYTES
};

/* What all connections of a job start from. */
typedef struct shd_store_keys {
    uint8_t key[32]; /* K */
    uint8_t job[16];
} shd_store_keys;

/* Fails: INTERNAL (no libsodium). */
sherd_status shd_store_keys_init(const shd_store_secret *secret, const char *job, shd_store_keys *keys);

/* One connection, seen from one end. */
typedef struct shd_store_line {
    uint8_t sending[32], receiving[32];
    uint64_t sent, received; /* frames */
} shd_store_line;

typedef enum shd_store_side { SHD_STORE_CLIENT, SHD_STORE_SERVER } shd_store_side;
void shd_store_line_init(shd_store_line *line, shd_store_side side, const shd_store_keys *keys,
                         const uint8_t *client_nonce, const uint8_t *server_nonce);

/* --- beginnings --------------------------------------------------------------------------------------------------- */

typedef enum shd_store_welcome {
    SHD_STORE_WELCOME,
    SHD_STORE_OTHER_VERSION,
    SHD_STORE_OTHER_JOB,
    SHD_STORE_OTHER_SECRET,
    SHD_STORE_NO_ROOM,
    SHD_STORE_GARBAGE /* not sent: nothing that this protocol says */
} shd_store_welcome;

void shd_store_write_hello(uint8_t hello[SHD_STORE_HELLO_BYTES], const shd_store_keys *keys, const uint8_t *nonce);
/* What a server makes of a hello: WELCOME when it is good, never NO_ROOM. */
shd_store_welcome shd_store_read_hello(const uint8_t hello[SHD_STORE_HELLO_BYTES], const shd_store_keys *keys,
                                       const uint8_t **nonce);
/* With WELCOME: `line` has been made from `nonce`. With another verdict both may be NULL. */
void shd_store_write_welcome(uint8_t welcome[SHD_STORE_WELCOME_BYTES], shd_store_welcome verdict,
                             const shd_store_line *line, const uint8_t *nonce);
/* Whether the first SHD_STORE_MARK_BYTES are those of an answer. */
bool shd_store_is_welcome(const uint8_t *bytes);
/* What a client makes of the answer to the hello with `nonce`; with WELCOME, `line` is made. A welcome without the
 * right tag is OTHER_SECRET: whoever said it does not hold ours. */
shd_store_welcome shd_store_read_welcome(const uint8_t welcome[SHD_STORE_WELCOME_BYTES], const shd_store_keys *keys,
                                         const uint8_t *nonce, shd_store_line *line);

/* --- frames ------------------------------------------------------------------------------------------------------- */

/* `frame` has its body at SHD_STORE_BODY_AT; writes what is around it. What is sent starts at
 * SHD_STORE_NUMBER_BYTES. */
void shd_store_seal(shd_store_line *line, uint8_t *frame, size_t body_bytes);
/* Whether the frame, length and tag in place, is the next one of the other side. */
bool shd_store_open(shd_store_line *line, uint8_t *frame, size_t body_bytes);
/* What a length on the wire says, and what one is written as. */
uint32_t shd_store_read_length(const uint8_t *bytes);
void shd_store_write_length(uint8_t *bytes, uint32_t length);
/* Bytes on the wire of a frame. */
static inline size_t shd_store_sent_bytes(size_t body_bytes) {
    return SHD_STORE_LENGTH_BYTES + body_bytes + SHD_STORE_TAG_BYTES;
}

typedef enum shd_store_op {
    SHD_STORE_JOIN,
    SHD_STORE_SET,
    SHD_STORE_GET,
    SHD_STORE_ADD,
    SHD_STORE_COMPARE_SET,
    SHD_STORE_DELETE
} shd_store_op;

/* Borrows its bytes: a reader's from the body, a writer's from the caller. */
typedef struct shd_store_request {
    shd_store_op op;
    int64_t number;
    const char *key; /* no 0 at its end */
    const void *expected, *value;
    size_t key_bytes, expected_bytes, value_bytes;
} shd_store_request;

size_t shd_store_request_bytes(const shd_store_request *request);
void shd_store_write_request(uint8_t *body, const shd_store_request *request);
/* False for what no client of this build says. */
bool shd_store_read_request(const uint8_t *body, size_t bytes, shd_store_request *request);

typedef enum shd_store_done { SHD_STORE_DONE, SHD_STORE_ABSENT, SHD_STORE_FULL, SHD_STORE_NO_NUMBER } shd_store_done;

typedef struct shd_store_reply {
    shd_store_done status;
    int64_t number;
    const void *value;
    size_t value_bytes;
} shd_store_reply;

void shd_store_write_reply(uint8_t *body, const shd_store_reply *reply);
bool shd_store_read_reply(const uint8_t *body, size_t bytes, shd_store_reply *reply);

#endif
