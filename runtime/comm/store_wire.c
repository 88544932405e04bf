#include "runtime/comm/store_wire.h"

#include "runtime/base/status.h"

#include <sodium.h>
#include <string.h>

_Static_assert(crypto_auth_KEYBYTES == 32 && crypto_auth_BYTES == SHD_STORE_TAG_BYTES, "keys and tags of 32 bytes");

static const char hello_mark[] = "sherd-kv", welcome_mark[] = "sherd-ok";
enum { SIGNED_HELLO_BYTES = SHD_STORE_HELLO_BYTES - SHD_STORE_TAG_BYTES };
enum { SIGNED_WELCOME_BYTES = SHD_STORE_WELCOME_BYTES - SHD_STORE_TAG_BYTES };
/* Where the fields of both are. */
enum { VERSION_AT = 8, STATUS_AT = 12, JOB_AT = 16, HELLO_NONCE_AT = 32, WELCOME_NONCE_AT = 16 };

static void write_number(uint8_t *bytes, uint64_t value, int count) {
    for (int i = 0; i < count; i++) bytes[i] = (uint8_t)(value >> (8 * i));
}

static uint64_t read_number(const uint8_t *bytes, int count) {
    uint64_t value = 0;
    for (int i = 0; i < count; i++) value |= (uint64_t)bytes[i] << (8 * i);
    return value;
}

static int64_t read_signed(const uint8_t *bytes) {
    uint64_t bits = read_number(bytes, 8);
    int64_t value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* --- keys --------------------------------------------------------------------------------------------------------- */

/* H(out_bytes, key, label ‖ text ‖ more); without a key where it is NULL. */
static void derive(uint8_t *out, size_t out_bytes, const uint8_t *key, const char *label, const void *text,
                   size_t text_bytes, const void *more, size_t more_bytes) {
    crypto_generichash_state state;
    crypto_generichash_init(&state, key, key ? 32 : 0, out_bytes);
    crypto_generichash_update(&state, (const uint8_t *)label, strlen(label));
    crypto_generichash_update(&state, text, text_bytes);
    if (more_bytes > 0) crypto_generichash_update(&state, more, more_bytes);
    crypto_generichash_final(&state, out, out_bytes);
    sodium_memzero(&state, sizeof state);
}

sherd_status shd_store_keys_init(const shd_store_secret *secret, const char *job, shd_store_keys *keys) {
    if (sodium_init() < 0) return shd_fail(SHERD_INTERNAL, "libsodium does not start: no random numbers here?");
    derive(keys->job, sizeof keys->job, NULL, "sherd store job", job, strlen(job), NULL, 0);
    derive(keys->key, sizeof keys->key, secret->bytes, "sherd store key", job, strlen(job), NULL, 0);
    return SHERD_OK;
}

void shd_store_line_init(shd_store_line *line, shd_store_side side, const shd_store_keys *keys,
                         const uint8_t *client_nonce, const uint8_t *server_nonce) {
    uint8_t both[64];
    derive(both, sizeof both, keys->key, "sherd store line", client_nonce, SHD_STORE_NONCE_BYTES, server_nonce,
           SHD_STORE_NONCE_BYTES);
    bool server = side == SHD_STORE_SERVER;
    memcpy(line->sending, both + (server ? 32 : 0), 32);
    memcpy(line->receiving, both + (server ? 0 : 32), 32);
    line->sent = line->received = 0;
    sodium_memzero(both, sizeof both);
}

/* --- beginnings --------------------------------------------------------------------------------------------------- */

void shd_store_write_hello(uint8_t hello[SHD_STORE_HELLO_BYTES], const shd_store_keys *keys, const uint8_t *nonce) {
    memcpy(hello, hello_mark, SHD_STORE_MARK_BYTES);
    write_number(hello + VERSION_AT, SHD_STORE_VERSION, 4);
    write_number(hello + STATUS_AT, 0, 4);
    memcpy(hello + JOB_AT, keys->job, sizeof keys->job);
    memcpy(hello + HELLO_NONCE_AT, nonce, SHD_STORE_NONCE_BYTES);
    crypto_auth(hello + SIGNED_HELLO_BYTES, hello, SIGNED_HELLO_BYTES, keys->key);
}

shd_store_welcome shd_store_read_hello(const uint8_t hello[SHD_STORE_HELLO_BYTES], const shd_store_keys *keys,
                                       const uint8_t **nonce) {
    if (memcmp(hello, hello_mark, SHD_STORE_MARK_BYTES) != 0) return SHD_STORE_GARBAGE;
    if (read_number(hello + VERSION_AT, 4) != SHD_STORE_VERSION) return SHD_STORE_OTHER_VERSION;
    if (memcmp(hello + JOB_AT, keys->job, sizeof keys->job) != 0) return SHD_STORE_OTHER_JOB;
    if (crypto_auth_verify(hello + SIGNED_HELLO_BYTES, hello, SIGNED_HELLO_BYTES, keys->key) != 0)
        return SHD_STORE_OTHER_SECRET;
    *nonce = hello + HELLO_NONCE_AT;
    return SHD_STORE_WELCOME;
}

void shd_store_write_welcome(uint8_t welcome[SHD_STORE_WELCOME_BYTES], shd_store_welcome verdict,
                             const shd_store_line *line, const uint8_t *nonce) {
    memset(welcome, 0, SHD_STORE_WELCOME_BYTES);
    memcpy(welcome, welcome_mark, SHD_STORE_MARK_BYTES);
    write_number(welcome + VERSION_AT, SHD_STORE_VERSION, 4);
    write_number(welcome + STATUS_AT, verdict, 4);
    if (verdict != SHD_STORE_WELCOME) return;
    memcpy(welcome + WELCOME_NONCE_AT, nonce, SHD_STORE_NONCE_BYTES);
    crypto_auth(welcome + SIGNED_WELCOME_BYTES, welcome, SIGNED_WELCOME_BYTES, line->sending);
}

bool shd_store_is_welcome(const uint8_t *bytes) { return memcmp(bytes, welcome_mark, SHD_STORE_MARK_BYTES) == 0; }

shd_store_welcome shd_store_read_welcome(const uint8_t welcome[SHD_STORE_WELCOME_BYTES], const shd_store_keys *keys,
                                         const uint8_t *nonce, shd_store_line *line) {
    if (!shd_store_is_welcome(welcome)) return SHD_STORE_GARBAGE;
    uint64_t verdict = read_number(welcome + STATUS_AT, 4);
    if (verdict == SHD_STORE_OTHER_VERSION || read_number(welcome + VERSION_AT, 4) != SHD_STORE_VERSION)
        return SHD_STORE_OTHER_VERSION;
    if (verdict >= SHD_STORE_GARBAGE) return SHD_STORE_GARBAGE;
    if (verdict != SHD_STORE_WELCOME) return (shd_store_welcome)verdict;
    shd_store_line_init(line, SHD_STORE_CLIENT, keys, nonce, welcome + WELCOME_NONCE_AT);
    if (crypto_auth_verify(welcome + SIGNED_WELCOME_BYTES, welcome, SIGNED_WELCOME_BYTES, line->receiving) != 0)
        return SHD_STORE_OTHER_SECRET;
    return SHD_STORE_WELCOME;
}

/* --- frames ------------------------------------------------------------------------------------------------------- */

uint32_t shd_store_read_length(const uint8_t *bytes) { return (uint32_t)read_number(bytes, SHD_STORE_LENGTH_BYTES); }

void shd_store_write_length(uint8_t *bytes, uint32_t length) { write_number(bytes, length, SHD_STORE_LENGTH_BYTES); }

void shd_store_seal(shd_store_line *line, uint8_t *frame, size_t body_bytes) {
    write_number(frame, line->sent++, SHD_STORE_NUMBER_BYTES);
    shd_store_write_length(frame + SHD_STORE_NUMBER_BYTES, (uint32_t)body_bytes);
    crypto_auth(frame + SHD_STORE_BODY_AT + body_bytes, frame, SHD_STORE_BODY_AT + body_bytes, line->sending);
}

bool shd_store_open(shd_store_line *line, uint8_t *frame, size_t body_bytes) {
    write_number(frame, line->received, SHD_STORE_NUMBER_BYTES);
    if (crypto_auth_verify(frame + SHD_STORE_BODY_AT + body_bytes, frame, SHD_STORE_BODY_AT + body_bytes,
                           line->receiving) != 0)
        return false;
    line->received++;
    return true;
}

size_t shd_store_request_bytes(const shd_store_request *request) {
    return SHD_STORE_FIXED_BYTES + request->key_bytes + request->expected_bytes + request->value_bytes;
}

void shd_store_write_request(uint8_t *body, const shd_store_request *request) {
    write_number(body, request->op, 1);
    write_number(body + 1, 0, 1);
    write_number(body + 2, request->key_bytes, 2);
    write_number(body + 4, request->expected_bytes, 4);
    write_number(body + 8, (uint64_t)request->number, 8);
    uint8_t *at = body + SHD_STORE_FIXED_BYTES;
    if (request->key_bytes > 0) memcpy(at, request->key, request->key_bytes);
    at += request->key_bytes;
    if (request->expected_bytes > 0) memcpy(at, request->expected, request->expected_bytes);
    at += request->expected_bytes;
    if (request->value_bytes > 0) memcpy(at, request->value, request->value_bytes);
}

/* Whether fields that an op does not use are 0, and those it uses within bounds. */
static bool is_sound(const shd_store_request *request) {
    bool has_key = request->key_bytes >= 1 && request->key_bytes <= SHD_STORE_KEY_BYTES &&
                   !memchr(request->key, 0, request->key_bytes);
    bool compares = request->op == SHD_STORE_COMPARE_SET, sets = compares || request->op == SHD_STORE_SET;
    if (has_key != (request->op != SHD_STORE_JOIN)) return false;
    if (request->expected_bytes > SHD_STORE_VALUE_BYTES || request->value_bytes > SHD_STORE_VALUE_BYTES) return false;
    if ((request->value_bytes > 0 && !sets) || (request->expected_bytes > 0 && !compares)) return false;
    switch (request->op) {
    case SHD_STORE_JOIN: return request->number == 0 && request->key_bytes == 0;
    case SHD_STORE_SET:
    case SHD_STORE_DELETE: return request->number == 0;
    case SHD_STORE_GET: return request->number >= 0;
    case SHD_STORE_ADD: return true;
    case SHD_STORE_COMPARE_SET: return request->number == 1 || (request->number == 0 && request->expected_bytes == 0);
    }
    return false;
}

bool shd_store_read_request(const uint8_t *body, size_t bytes, shd_store_request *request) {
    if (bytes < SHD_STORE_FIXED_BYTES || body[0] > SHD_STORE_DELETE || body[1] != 0) return false;
    size_t key_bytes = read_number(body + 2, 2), expected_bytes = read_number(body + 4, 4);
    size_t rest = bytes - SHD_STORE_FIXED_BYTES;
    if (key_bytes > rest || expected_bytes > rest - key_bytes) return false;
    const uint8_t *key = body + SHD_STORE_FIXED_BYTES;
    *request = (shd_store_request){.op = (shd_store_op)body[0],
                                   .number = read_signed(body + 8),
                                   .key = (const char *)key,
                                   .key_bytes = key_bytes,
                                   .expected = key + key_bytes,
                                   .expected_bytes = expected_bytes,
                                   .value = key + key_bytes + expected_bytes,
                                   .value_bytes = rest - key_bytes - expected_bytes};
    return is_sound(request);
}

void shd_store_write_reply(uint8_t *body, const shd_store_reply *reply) {
    write_number(body, reply->status, 4);
    write_number(body + 4, 0, 4);
    write_number(body + 8, (uint64_t)reply->number, 8);
    if (reply->value_bytes > 0) memcpy(body + SHD_STORE_FIXED_BYTES, reply->value, reply->value_bytes);
}

bool shd_store_read_reply(const uint8_t *body, size_t bytes, shd_store_reply *reply) {
    if (bytes < SHD_STORE_FIXED_BYTES || bytes > SHD_STORE_FIXED_BYTES + SHD_STORE_VALUE_BYTES) return false;
    uint64_t status = read_number(body, 4);
    if (status > SHD_STORE_NO_NUMBER || read_number(body + 4, 4) != 0) return false;
    *reply = (shd_store_reply){.status = (shd_store_done)status,
                               .number = read_signed(body + 8),
                               .value = body + SHD_STORE_FIXED_BYTES,
                               .value_bytes = bytes - SHD_STORE_FIXED_BYTES};
    return true;
}
