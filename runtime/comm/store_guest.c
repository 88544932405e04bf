#include "runtime/comm/store_guest.h"

#include "runtime/base/memory.h"
#include "runtime/base/status.h"

#include <inttypes.h>
#include <math.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEFAULT_CLIENTS = 4096, DEFAULT_KEYS = 65536, DEFAULT_BYTES = 64 << 20, NUMBER_TEXT = 24 };

sherd_status shd_store_house_init(shd_store_house *house, const shd_store_server_config *config) {
    *house = (shd_store_house){.max_members = config->max_clients > 0 ? config->max_clients : DEFAULT_CLIENTS};
    shd_store_table_init(&house->table, config->max_bytes > 0 ? config->max_bytes : DEFAULT_BYTES,
                         config->max_keys > 0 ? config->max_keys : DEFAULT_KEYS);
    return shd_store_keys_init(&config->secret, config->job, &house->keys);
}

void shd_store_house_fini(shd_store_house *house) {
    shd_store_table_fini(&house->table);
    sodium_memzero(&house->keys, sizeof house->keys);
}

void shd_store_guest_enter(shd_store_house *house, shd_store_guest *guest, double now_ms) {
    *guest = (shd_store_guest){.due_ms = now_ms + SHD_STORE_BEGINNING_MS, .next = house->first, .link = &house->first};
    if (house->first) house->first->link = &guest->next;
    house->first = guest;
    house->counts[SHD_STORE_STRANGER]++;
}

void shd_store_guest_leave(shd_store_house *house, shd_store_guest *guest) {
    *guest->link = guest->next;
    if (guest->next) guest->next->link = guest->link;
    house->counts[guest->stage]--;
    shd_free(guest->frame);
    shd_free(guest->own_answer);
    sodium_memzero(&guest->line, sizeof guest->line);
}

static void change_stage(shd_store_house *house, shd_store_guest *guest, shd_store_stage stage) {
    house->counts[guest->stage]--;
    house->counts[stage]++;
    guest->stage = stage;
}

/* --- answers ------------------------------------------------------------------------------------------------------ */

static void answer_request(shd_store_guest *guest, const shd_store_reply *reply, double now_ms) {
    size_t body_bytes = SHD_STORE_FIXED_BYTES + reply->value_bytes;
    uint8_t *frame = guest->small;
    if (body_bytes + SHD_STORE_AROUND_BYTES > sizeof guest->small)
        frame = guest->own_answer = shd_alloc(1, body_bytes + SHD_STORE_AROUND_BYTES);
    if (!frame) {
        guest->why = "there was no memory for its answer";
        return;
    }
    shd_store_write_reply(frame + SHD_STORE_BODY_AT, reply);
    shd_store_seal(&guest->line, frame, body_bytes);
    guest->answer = frame + SHD_STORE_NUMBER_BYTES;
    guest->answer_bytes = shd_store_sent_bytes(body_bytes);
    guest->answer_sent = 0;
    guest->due_ms = now_ms + SHD_STORE_STALL_MS;
}

/* The key has been set to `entry`: everybody who waits for it gets it. */
static void wake_waiting(shd_store_house *house, const shd_store_entry *entry, double now_ms) {
    const shd_store_reply reply = {.value = shd_store_entry_value(entry), .value_bytes = entry->value_bytes};
    for (shd_store_guest *guest = house->first; guest; guest = guest->next) {
        if (!guest->waits || guest->key_bytes != entry->key_bytes ||
            memcmp(guest->key, entry->bytes, entry->key_bytes) != 0)
            continue;
        guest->waits = false;
        house->woken = true;
        answer_request(guest, &reply, now_ms);
    }
}

static const char no_room[] = "came when as many clients were here as may";

/* --- requests ----------------------------------------------------------------------------------------------------- */

static shd_store_done put(shd_store_house *house, const shd_store_request *request, const void *value,
                          size_t value_bytes, double now_ms) {
    if (!shd_store_table_put(&house->table, request->key, request->key_bytes, value, value_bytes))
        return SHD_STORE_FULL;
    wake_waiting(house, shd_store_table_find(&house->table, request->key, request->key_bytes), now_ms);
    return SHD_STORE_DONE;
}

/* A decimal number of 64 bits as this server writes it: no space, plus or leading zero. */
static bool read_counter(const shd_store_entry *entry, int64_t *value) {
    char text[NUMBER_TEXT], again[NUMBER_TEXT];
    if (entry->value_bytes >= sizeof text) return false;
    memcpy(text, shd_store_entry_value(entry), entry->value_bytes);
    text[entry->value_bytes] = 0;
    *value = strtoll(text, NULL, 10);
    return (size_t)snprintf(again, sizeof again, "%" PRId64, *value) == entry->value_bytes && !strcmp(text, again);
}

static shd_store_done add(shd_store_house *house, const shd_store_request *request, int64_t *sum, double now_ms) {
    int64_t value = 0;
    char text[NUMBER_TEXT];
    const shd_store_entry *entry = shd_store_table_find(&house->table, request->key, request->key_bytes);
    if (entry && !read_counter(entry, &value)) return SHD_STORE_NO_NUMBER;
    if (__builtin_add_overflow(value, request->number, &value)) return SHD_STORE_NO_NUMBER;
    size_t text_bytes = (size_t)snprintf(text, sizeof text, "%" PRId64, value);
    shd_store_done status = put(house, request, text, text_bytes, now_ms);
    if (status == SHD_STORE_DONE) *sum = value;
    return status;
}

static shd_store_done compare_set(shd_store_house *house, const shd_store_request *request, int64_t *swapped,
                                  double now_ms) {
    const shd_store_entry *entry = shd_store_table_find(&house->table, request->key, request->key_bytes);
    bool equal = request->number == 0
                     ? !entry
                     : entry && entry->value_bytes == request->expected_bytes &&
                           memcmp(shd_store_entry_value(entry), request->expected, request->expected_bytes) == 0;
    if (!equal) return SHD_STORE_DONE;
    shd_store_done status = put(house, request, request->value, request->value_bytes, now_ms);
    if (status == SHD_STORE_DONE) *swapped = 1;
    return status;
}

static void wait_for(shd_store_guest *guest, const shd_store_request *request, double now_ms) {
    guest->waits = true;
    guest->wait_until_ms = now_ms + (double)request->number;
    guest->key_bytes = request->key_bytes;
    memcpy(guest->key, request->key, request->key_bytes);
}

static void serve(shd_store_house *house, shd_store_guest *guest, const shd_store_request *request, double now_ms) {
    shd_store_reply reply = {.status = SHD_STORE_DONE};
    const shd_store_entry *entry;
    switch (request->op) {
    case SHD_STORE_JOIN: break;
    case SHD_STORE_SET: reply.status = put(house, request, request->value, request->value_bytes, now_ms); break;
    case SHD_STORE_GET:
        entry = shd_store_table_find(&house->table, request->key, request->key_bytes);
        if (!entry && request->number > 0) {
            wait_for(guest, request, now_ms);
            return;
        }
        if (!entry) reply.status = SHD_STORE_ABSENT;
        if (entry) reply.value = shd_store_entry_value(entry), reply.value_bytes = entry->value_bytes;
        break;
    case SHD_STORE_ADD: reply.status = add(house, request, &reply.number, now_ms); break;
    case SHD_STORE_COMPARE_SET: reply.status = compare_set(house, request, &reply.number, now_ms); break;
    case SHD_STORE_DELETE: reply.number = shd_store_table_remove(&house->table, request->key, request->key_bytes);
    }
    answer_request(guest, &reply, now_ms);
}

/* Serves the complete frame and lets it go. */
static void serve_frame(shd_store_house *house, shd_store_guest *guest, double now_ms) {
    shd_store_request request;
    bool sound = shd_store_read_request(guest->frame + SHD_STORE_BODY_AT, guest->body_bytes, &request);
    guest->due_ms = INFINITY;
    if (!sound || (request.op == SHD_STORE_JOIN) != (guest->stage == SHD_STORE_GREETED)) {
        guest->why = "sent what is no request";
    } else if (guest->stage == SHD_STORE_GREETED && house->counts[SHD_STORE_MEMBER] >= house->max_members) {
        guest->why = no_room;
    } else {
        if (guest->stage == SHD_STORE_GREETED) {
            change_stage(house, guest, SHD_STORE_MEMBER);
            house->joined++;
        }
        serve(house, guest, &request, now_ms);
    }
    shd_free(guest->frame);
    guest->frame = NULL;
    guest->filled = 0;
    guest->complete = false;
}

/* Does what can be done with what is here. */
static void advance(shd_store_house *house, shd_store_guest *guest, double now_ms) {
    while (guest->complete && guest->answer_bytes == 0 && !guest->why) {
        if (guest->waits) {
            guest->waits = false;
            answer_request(guest, &(shd_store_reply){.status = SHD_STORE_ABSENT}, now_ms);
        } else {
            serve_frame(house, guest, now_ms);
        }
    }
}

/* --- bytes -------------------------------------------------------------------------------------------------------- */

/* Bytes that what is being read has in all, and where it starts. */
static size_t whole_bytes(const shd_store_guest *guest) {
    if (guest->stage == SHD_STORE_STRANGER) return SHD_STORE_HELLO_BYTES;
    return guest->frame ? guest->body_bytes + SHD_STORE_TAG_BYTES : (size_t)SHD_STORE_LENGTH_BYTES;
}

size_t shd_store_guest_want(const shd_store_guest *guest, uint8_t **where) {
    if (guest->why || guest->answer_bytes > 0 || guest->complete) return 0;
    *where = (guest->frame ? guest->frame + SHD_STORE_BODY_AT : (uint8_t *)guest->head) + guest->filled;
    return whole_bytes(guest) - guest->filled;
}

static void hear_hello(shd_store_house *house, shd_store_guest *guest) {
    static const char *const reasons[] = {
        [SHD_STORE_OTHER_VERSION] = "speaks another version of the store", [SHD_STORE_OTHER_JOB] = "is of another job",
        [SHD_STORE_OTHER_SECRET] = "does not have this job's secret",      [SHD_STORE_NO_ROOM] = no_room,
        [SHD_STORE_GARBAGE] = "sent something else than a hello",
    };
    const uint8_t *client_nonce;
    uint8_t nonce[SHD_STORE_NONCE_BYTES];
    shd_store_welcome verdict = shd_store_read_hello(guest->head, &house->keys, &client_nonce);
    if (verdict == SHD_STORE_WELCOME && house->counts[SHD_STORE_MEMBER] >= house->max_members)
        verdict = SHD_STORE_NO_ROOM;
    if (verdict != SHD_STORE_WELCOME) guest->why = reasons[verdict];
    if (verdict == SHD_STORE_GARBAGE) return;
    if (verdict == SHD_STORE_WELCOME) {
        randombytes_buf(nonce, sizeof nonce);
        shd_store_line_init(&guest->line, SHD_STORE_SERVER, &house->keys, client_nonce, nonce);
        change_stage(house, guest, SHD_STORE_GREETED);
    }
    shd_store_write_welcome(guest->small, verdict, &guest->line, nonce);
    guest->answer = guest->small;
    guest->answer_bytes = SHD_STORE_WELCOME_BYTES;
    guest->answer_sent = 0;
}

/* The length of a frame is here: makes room for the rest. Only a member gets more than a join takes. */
static void begin_frame(shd_store_guest *guest) {
    size_t most = guest->stage == SHD_STORE_MEMBER ? SHD_STORE_BODY_BYTES : SHD_STORE_FIXED_BYTES;
    guest->body_bytes = shd_store_read_length(guest->head);
    if (guest->body_bytes < SHD_STORE_FIXED_BYTES || guest->body_bytes > most) {
        guest->why = "sent a frame of a length that there is not";
        return;
    }
    guest->frame = shd_alloc(1, guest->body_bytes + SHD_STORE_AROUND_BYTES);
    if (!guest->frame) guest->why = "there was no memory for its frame";
}

void shd_store_guest_took(shd_store_house *house, shd_store_guest *guest, size_t count, double now_ms) {
    guest->filled += count;
    if (guest->stage == SHD_STORE_MEMBER) guest->due_ms = now_ms + SHD_STORE_STALL_MS;
    if (guest->filled < whole_bytes(guest)) return;
    if (!guest->frame) {
        guest->filled = 0;
        if (guest->stage == SHD_STORE_STRANGER)
            hear_hello(house, guest);
        else
            begin_frame(guest);
        return;
    }
    shd_store_write_length(guest->frame + SHD_STORE_NUMBER_BYTES, (uint32_t)guest->body_bytes);
    if (!shd_store_open(&guest->line, guest->frame, guest->body_bytes)) {
        guest->why = "sent a frame that is not authentic";
        return;
    }
    guest->complete = true;
    advance(house, guest, now_ms);
}

size_t shd_store_guest_output(const shd_store_guest *guest, const uint8_t **bytes) {
    *bytes = guest->answer ? guest->answer + guest->answer_sent : NULL;
    return guest->answer_bytes - guest->answer_sent;
}

void shd_store_guest_sent(shd_store_house *house, shd_store_guest *guest, size_t count, double now_ms) {
    guest->answer_sent += count;
    if (guest->stage == SHD_STORE_MEMBER) guest->due_ms = now_ms + SHD_STORE_STALL_MS;
    if (guest->answer_sent < guest->answer_bytes) return;
    shd_free(guest->own_answer);
    guest->answer = guest->own_answer = NULL;
    guest->answer_bytes = guest->answer_sent = 0;
    if (guest->stage == SHD_STORE_MEMBER && !guest->frame && guest->filled == 0) guest->due_ms = INFINITY;
    advance(house, guest, now_ms);
}

double shd_store_guest_due_ms(const shd_store_guest *guest) {
    return guest->waits && guest->wait_until_ms < guest->due_ms ? guest->wait_until_ms : guest->due_ms;
}

void shd_store_guest_expire(shd_store_house *house, shd_store_guest *guest, double now_ms) {
    if (guest->due_ms <= now_ms && !guest->why) {
        guest->why = guest->stage == SHD_STORE_MEMBER ? "stopped in the middle of a frame or an answer" : "was silent";
    } else if (guest->waits && guest->wait_until_ms <= now_ms) {
        guest->waits = false;
        answer_request(guest, &(shd_store_reply){.status = SHD_STORE_ABSENT}, now_ms);
        advance(house, guest, now_ms);
    }
}
