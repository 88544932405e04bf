/* What the rendezvous store's server makes of its connections' bytes. Input: commands for four guests.
 *
 * A command is a byte, whose two low bits are the guest and whose others choose what happens, then what that takes:
 *  0 a byte of length, and as many bytes as they are;
 *  1 a good hello;
 *  2 two bytes of length, and a body, which is sealed as the guest's next frame;
 *  3 a request of few bytes: its op, which of some keys, its number, which of some values;
 *  4 two bytes: milliseconds that pass;
 *  5 a byte: how many bytes of output are taken at most;
 *  6 the guest goes, and another one comes;
 *  7 all output is taken.
 * Bodies are sealed here, as no mutation would get a tag right; so damage reaches what lies behind it.
 *
 * Promises: every answer is authentic, sound and in order, one a request; who has not joined gets nothing but a
 * welcome; the counts of guests, keys and bytes are those of what is there, and within their limits; nothing is
 * left. */
#include "runtime/base/memory.h"
#include "runtime/comm/store_guest.h"
#include "tests/fuzz/fuzz.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { GUESTS = 4, MAX_KEYS = 6, MAX_BYTES = 3000, MAX_MEMBERS = 3, OUTPUT_BYTES = 1 << 18 };

typedef struct visitor {
    shd_store_guest guest;
    shd_store_line line;           /* the client's end; good once it is welcome */
    bool greeted, welcome, broken; /* broken: it has said what was no message of ours */
    uint8_t nonce[SHD_STORE_NONCE_BYTES];
    int64_t asked, answered;
    uint8_t *said; /* what it has been told and not yet looked at */
    size_t said_bytes;
} visitor;

typedef struct scene {
    shd_store_house house;
    visitor visitors[GUESTS];
    double now_ms;
    const uint8_t *data, *end;
} scene;

static uint64_t take(scene *self, int count) {
    uint64_t value = 0;
    for (int i = 0; i < count && self->data < self->end; i++) value |= (uint64_t)*self->data++ << (8 * i);
    return value;
}

/* --- what guests are told ----------------------------------------------------------------------------------------- */

/* Looks at one whole message at the front of what was said; its bytes, 0 when there is none. */
static size_t hear(scene *self, visitor *one) {
    shd_store_reply reply;
    if (!one->welcome) {
        if (one->said_bytes < SHD_STORE_WELCOME_BYTES) return 0;
        shd_store_welcome verdict = shd_store_read_welcome(one->said, &self->house.keys, one->nonce, &one->line);
        fuzz_check(verdict != SHD_STORE_GARBAGE);
        fuzz_check(one->broken || !one->greeted || verdict == SHD_STORE_WELCOME || verdict == SHD_STORE_NO_ROOM);
        one->welcome = verdict == SHD_STORE_WELCOME;
        fuzz_check(one->welcome || one->guest.why);
        return SHD_STORE_WELCOME_BYTES;
    }
    if (one->said_bytes < SHD_STORE_LENGTH_BYTES) return 0;
    size_t body_bytes = shd_store_read_length(one->said), whole = shd_store_sent_bytes(body_bytes);
    fuzz_check(body_bytes <= SHD_STORE_FIXED_BYTES + SHD_STORE_VALUE_BYTES);
    if (one->said_bytes < whole) return 0;
    uint8_t *frame = malloc(body_bytes + SHD_STORE_AROUND_BYTES);
    fuzz_check(frame);
    memcpy(frame + SHD_STORE_NUMBER_BYTES, one->said, whole);
    fuzz_check(shd_store_open(&one->line, frame, body_bytes));
    fuzz_check(shd_store_read_reply(frame + SHD_STORE_BODY_AT, body_bytes, &reply));
    fuzz_check(reply.value_bytes == 0 || reply.status == SHD_STORE_DONE);
    free(frame);
    if (reply.status == SHD_STORE_DONE) fuzz_note_accepted();
    one->answered++;
    fuzz_check(one->answered <= one->asked);
    return whole;
}

static void listen_to(scene *self, visitor *one, size_t most) {
    const uint8_t *bytes;
    size_t count = shd_store_guest_output(&one->guest, &bytes);
    if (count > most) count = most;
    if (count == 0) return;
    fuzz_check(one->said_bytes + count <= OUTPUT_BYTES);
    memcpy(one->said + one->said_bytes, bytes, count);
    one->said_bytes += count;
    shd_store_guest_sent(&self->house, &one->guest, count, self->now_ms);
    for (size_t heard; (heard = hear(self, one)) > 0;) {
        one->said_bytes -= heard;
        memmove(one->said, one->said + heard, one->said_bytes);
    }
}

static void listen_to_all(scene *self, visitor *one) {
    const uint8_t *bytes;
    while (shd_store_guest_output(&one->guest, &bytes) > 0) listen_to(self, one, SIZE_MAX);
}

/* --- what guests say ---------------------------------------------------------------------------------------------- */

/* As much as the guest takes, which is returned. */
static size_t say(scene *self, visitor *one, const uint8_t *bytes, size_t count) {
    size_t said = 0;
    while (said < count) {
        uint8_t *where;
        size_t want = shd_store_guest_want(&one->guest, &where);
        if (want == 0) break;
        if (want > count - said) want = count - said;
        memcpy(where, bytes + said, want);
        said += want;
        shd_store_guest_took(&self->house, &one->guest, want, self->now_ms);
    }
    return said;
}

static void say_raw(scene *self, visitor *one) {
    size_t count = take(self, 1);
    if (count > (size_t)(self->end - self->data)) count = (size_t)(self->end - self->data);
    if (say(self, one, self->data, count) > 0) one->broken = true;
    self->data += count;
}

static void say_hello(scene *self, visitor *one) {
    uint8_t hello[SHD_STORE_HELLO_BYTES];
    shd_store_write_hello(hello, &self->house.keys, one->nonce);
    size_t said = say(self, one, hello, sizeof hello);
    if (said > 0 && one->greeted) one->broken = true; /* once is enough */
    one->greeted = one->greeted || said == sizeof hello;
}

static void say_sealed(scene *self, visitor *one, const uint8_t *body, size_t body_bytes) {
    shd_store_request request;
    if (!one->welcome) return; /* there is no key to seal with */
    listen_to_all(self, one);
    uint8_t *frame = malloc(body_bytes + SHD_STORE_AROUND_BYTES);
    fuzz_check(frame);
    if (body_bytes > 0) memcpy(frame + SHD_STORE_BODY_AT, body, body_bytes);
    shd_store_seal(&one->line, frame, body_bytes);
    bool sound = shd_store_read_request(body, body_bytes, &request);
    sound = sound && (request.op == SHD_STORE_JOIN) == (one->asked == 0);
    if (!one->guest.why && sound) one->asked++;
    say(self, one, frame + SHD_STORE_NUMBER_BYTES, shd_store_sent_bytes(body_bytes));
    fuzz_check(one->broken || sound || one->guest.why || one->guest.complete);
    free(frame);
}

static void say_body(scene *self, visitor *one) {
    size_t count = take(self, 2);
    if (count > (size_t)(self->end - self->data)) count = (size_t)(self->end - self->data);
    say_sealed(self, one, self->data, count);
    self->data += count;
}

static void say_request(scene *self, visitor *one) {
    static const char *const keys[] = {"a", "b", "count", "nccl/0", "x", "y", "z", "a longer key"};
    static const char *const values[] = {"", "1", "-7", "value", "9223372036854775807", "another value", "w", "01"};
    static uint8_t body[SHD_STORE_BODY_BYTES];
    static const uint8_t zeros[2048];
    uint64_t op = take(self, 1), key = take(self, 1), number = take(self, 1), value = take(self, 1);
    shd_store_request request = {.op = (shd_store_op)(op % 6), .key = keys[key % 8], .value = values[value % 8]};
    request.key_bytes = request.op == SHD_STORE_JOIN ? 0 : strlen(request.key);
    bool sets = request.op == SHD_STORE_SET || request.op == SHD_STORE_COMPARE_SET;
    request.value_bytes = sets ? strlen(request.value) : 0;
    if (sets && value >= 128) request.value = zeros, request.value_bytes = 16 * (value - 128);
    if (request.op == SHD_STORE_GET) request.number = (int64_t)number;
    if (request.op == SHD_STORE_ADD) request.number = (int64_t)number - 128;
    if (request.op == SHD_STORE_COMPARE_SET && number % 2 == 1) {
        request.number = 1;
        request.expected = values[number / 2 % 8];
        request.expected_bytes = strlen(values[number / 2 % 8]);
    }
    shd_store_write_request(body, &request);
    say_sealed(self, one, body, shd_store_request_bytes(&request));
}

/* --- the scene ---------------------------------------------------------------------------------------------------- */

static void enter(scene *self, visitor *one) {
    uint8_t *said = one->said;
    *one = (visitor){.said = said};
    shd_store_guest_enter(&self->house, &one->guest, self->now_ms);
}

static void let_time_pass(scene *self, double milliseconds) {
    self->now_ms += milliseconds;
    for (int i = 0; i < GUESTS; i++) {
        shd_store_guest *guest = &self->visitors[i].guest;
        if (shd_store_guest_due_ms(guest) <= self->now_ms) shd_store_guest_expire(&self->house, guest, self->now_ms);
        fuzz_check(guest->why || shd_store_guest_due_ms(guest) > self->now_ms);
    }
}

static void check(scene *self) {
    const shd_store_table *table = &self->house.table;
    int32_t stages[SHD_STORE_STAGES] = {0}, keys = 0;
    int64_t bytes = 0;
    for (int i = 0; i < GUESTS; i++) {
        const visitor *one = &self->visitors[i];
        stages[one->guest.stage]++;
        /* Nothing rests for ever but a guest that nobody owes anything. */
        fuzz_check(one->guest.why || isfinite(one->guest.due_ms) ||
                   (one->guest.stage == SHD_STORE_MEMBER && one->guest.answer_bytes == 0));
        fuzz_check(one->guest.stage == SHD_STORE_MEMBER || one->guest.body_bytes <= SHD_STORE_FIXED_BYTES ||
                   one->guest.why);
    }
    for (int s = 0; s < SHD_STORE_STAGES; s++) fuzz_check(stages[s] == self->house.counts[s]);
    fuzz_check(stages[SHD_STORE_MEMBER] <= MAX_MEMBERS);
    for (int b = 0; b < SHD_STORE_BUCKETS && keys < table->count; b++)
        for (const shd_store_entry *entry = table->buckets[b]; entry; entry = entry->next) {
            keys++;
            bytes += (int64_t)(entry->key_bytes + entry->value_bytes);
        }
    fuzz_check(keys == table->count && keys <= MAX_KEYS);
    fuzz_check(bytes == table->bytes && bytes <= MAX_BYTES);
}

static void act(scene *self) {
    uint8_t command = *self->data++;
    visitor *one = &self->visitors[command & 3];
    switch (command >> 2 & 7) {
    case 0: say_raw(self, one); break;
    case 1: say_hello(self, one); break;
    case 2: say_body(self, one); break;
    case 3: say_request(self, one); break;
    case 4: let_time_pass(self, (double)take(self, 2)); break;
    case 5: listen_to(self, one, take(self, 1)); break;
    case 6:
        shd_store_guest_leave(&self->house, &one->guest);
        enter(self, one);
        break;
    case 7: listen_to_all(self, one);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    static scene self;
    static uint8_t said[GUESTS][OUTPUT_BYTES];
    const shd_store_server_config config = {
        .job = "job", .max_clients = MAX_MEMBERS, .max_bytes = MAX_BYTES, .max_keys = MAX_KEYS};
    fuzz_check(shd_store_house_init(&self.house, &config) == SHERD_OK);
    self.data = data;
    self.end = data + bytes;
    self.now_ms = 1000;
    for (int i = 0; i < GUESTS; i++) {
        self.visitors[i].said = said[i];
        enter(&self, &self.visitors[i]);
    }
    while (self.data < self.end) {
        act(&self);
        check(&self);
    }
    /* Once all waits are over, everybody who kept to the protocol has every answer. */
    for (int i = 0; i < GUESTS; i++) listen_to_all(&self, &self.visitors[i]);
    let_time_pass(&self, 1e19);
    for (int i = 0; i < GUESTS; i++) {
        visitor *one = &self.visitors[i];
        listen_to_all(&self, one);
        fuzz_check(one->broken || one->guest.why || one->answered == one->asked);
    }
    for (int i = 0; i < GUESTS; i++) shd_store_guest_leave(&self.house, &self.visitors[i].guest);
    shd_store_house_fini(&self.house);
    fuzz_check_released();
    return 0;
}
