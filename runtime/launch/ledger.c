#include "runtime/launch/ledger.h"

#include "runtime/base/clock.h"
#include "runtime/base/memory.h"
#include "runtime/base/status.h"

#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The counter of messages; message i is under "message/i". */
static const char count_key[] = "messages";
/* The counter of launchers. */
static const char launchers_key[] = "launchers";

/* What node 0 knows of another. */
typedef struct pulse {
    int64_t beats;
    double since_ms; /* when they last changed; 0: the node is not there */
} pulse;

/* First in, first out. */
typedef struct queue {
    shd_message *messages; /* [count], of which `taken` were taken */
    size_t count, taken, room;
} queue;

struct shd_ledger {
    shd_ledger_config config;
    shd_store *reader; /* the reading thread's */
    pthread_t opener, reading, writing;
    atomic_bool closing; /* the reading thread is to end */
    pulse *pulses;
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t more;  /* to write, or nothing to come: `closed` */
    bool closed;
    queue incoming, outgoing;
    char cause[256]; /* why a thread has ended; "": both go on */
};

void shd_ledger_place_key(char *key, int32_t node) { snprintf(key, SHD_LEDGER_KEY_BYTES, "node/%d", node); }
void shd_ledger_beat_key(char *key, int32_t node) { snprintf(key, SHD_LEDGER_KEY_BYTES, "beat/%d", node); }
static void message_key(char *key, int64_t index) { snprintf(key, SHD_LEDGER_KEY_BYTES, "message/%" PRId64, index); }

static bool gives_up(void *user) {
    const shd_ledger *ledger = user;
    return atomic_load(&ledger->closing);
}

/* --- messages on their way ---------------------------------------------------------------------------------------- */

static void wake(shd_ledger *ledger) { pthread_kill(ledger->opener, SIGCHLD); }

static sherd_status queue_add(queue *messages, const shd_message *message) {
    if (messages->count == messages->room) {
        size_t room = messages->room ? 2 * messages->room : 16;
        shd_message *larger = shd_realloc(messages->messages, room * sizeof *larger);
        if (!larger) return shd_fail(SHERD_MEMORY, "no memory for what nodes tell each other");
        messages->messages = larger;
        messages->room = room;
    }
    messages->messages[messages->count++] = *message;
    return SHERD_OK;
}

static bool queue_take(queue *messages, shd_message *message) {
    if (messages->taken == messages->count) return false;
    *message = messages->messages[messages->taken++];
    if (messages->taken == messages->count) messages->taken = messages->count = 0;
    return true;
}

static sherd_status keep(shd_ledger *ledger, const shd_message *message) {
    pthread_mutex_lock(&ledger->lock);
    sherd_status status = queue_add(&ledger->incoming, message);
    pthread_mutex_unlock(&ledger->lock);
    wake(ledger);
    return status;
}

bool shd_ledger_take(shd_ledger *ledger, shd_message *message) {
    pthread_mutex_lock(&ledger->lock);
    bool there = queue_take(&ledger->incoming, message);
    pthread_mutex_unlock(&ledger->lock);
    return there;
}

bool shd_ledger_stop_waits(shd_ledger *ledger) {
    bool found = false;
    pthread_mutex_lock(&ledger->lock);
    const queue *incoming = &ledger->incoming;
    for (size_t i = incoming->taken; i < incoming->count; i++) found |= incoming->messages[i].kind == SHD_MESSAGE_STOP;
    pthread_mutex_unlock(&ledger->lock);
    return found;
}

const char *shd_ledger_broken(shd_ledger *ledger) {
    pthread_mutex_lock(&ledger->lock);
    const char *cause = ledger->cause[0] ? ledger->cause : NULL;
    pthread_mutex_unlock(&ledger->lock);
    return cause;
}

static void say_broken(shd_ledger *ledger) {
    pthread_mutex_lock(&ledger->lock);
    if (!ledger->cause[0]) snprintf(ledger->cause, sizeof ledger->cause, "%s", sherd_last_error());
    pthread_mutex_unlock(&ledger->lock);
    wake(ledger);
}

/* --- the thread that writes --------------------------------------------------------------------------------------- */

/* Whoever takes a number from the counter may die before the message is there; node 0 then fills the gap (add_lost), and the
 * one that was only slow finds its place taken and takes another number. */
static sherd_status write_message(shd_ledger *ledger, const shd_message *message) {
    char line[SHD_MESSAGE_BYTES], key[SHD_LEDGER_KEY_BYTES];
    int64_t number;
    bool added = false;
    shd_message_print(message, line);
    while (!added) {
        SHD_TRY(shd_store_add(ledger->config.writer, count_key, 1, &number));
        message_key(key, number - 1);
        SHD_TRY(shd_store_compare_set(ledger->config.writer, key, NULL, 0, line, strlen(line), &added));
    }
    return SHERD_OK;
}

/* False: no more will come. */
static bool await_outgoing(shd_ledger *ledger, shd_message *message) {
    pthread_mutex_lock(&ledger->lock);
    bool there;
    while (!(there = queue_take(&ledger->outgoing, message)) && !ledger->closed)
        pthread_cond_wait(&ledger->more, &ledger->lock);
    there &= !ledger->cause[0];
    pthread_mutex_unlock(&ledger->lock);
    return there;
}

static void *run_writing(void *user) {
    shd_ledger *ledger = user;
    for (shd_message message; await_outgoing(ledger, &message);)
        if (write_message(ledger, &message) != SHERD_OK) {
            say_broken(ledger);
            break;
        }
    return NULL;
}

sherd_status shd_ledger_add(shd_ledger *ledger, const shd_message *message) {
    pthread_mutex_lock(&ledger->lock);
    sherd_status status = queue_add(&ledger->outgoing, message);
    pthread_cond_signal(&ledger->more);
    pthread_mutex_unlock(&ledger->lock);
    return status;
}

sherd_status shd_ledger_number(shd_ledger *ledger, int32_t *launcher) {
    int64_t number;
    SHD_TRY(shd_store_add(ledger->config.writer, launchers_key, 1, &number));
    *launcher = (int32_t)number;
    return SHERD_OK;
}

sherd_status shd_ledger_count(shd_ledger *ledger, int64_t *count) {
    return shd_store_add(ledger->config.writer, count_key, 0, count);
}

/* --- the thread that reads: node 0 looks after the others --------------------------------------------------------- */

/* Puts the message where the next one is awaited, if nobody else comes first; it is read there like any other, else tried
 * again at the next beat. */
static sherd_status add_lost(shd_ledger *ledger, int32_t node, int64_t next) {
    char line[SHD_MESSAGE_BYTES], key[SHD_LEDGER_KEY_BYTES];
    bool added;
    const shd_message message = {.kind = SHD_MESSAGE_LOST, .node = node};
    shd_message_print(&message, line);
    message_key(key, next);
    SHD_TRY(shd_store_compare_set(ledger->reader, key, NULL, 0, line, strlen(line), &added));
    if (!added) return SHERD_OK;
    ledger->pulses[node].since_ms = 0;
    shd_ledger_beat_key(key, node);
    SHD_TRY(shd_store_delete(ledger->reader, key, NULL));
    shd_ledger_place_key(key, node);
    return shd_store_delete(ledger->reader, key, NULL);
}

/* The beats of a node; -1: it is not there. */
static sherd_status read_beats(shd_ledger *ledger, int32_t node, int64_t *beats) {
    char key[SHD_LEDGER_KEY_BYTES], *text;
    size_t bytes;
    shd_ledger_beat_key(key, node);
    sherd_status status = shd_store_get(ledger->reader, key, 0, &text, &bytes);
    *beats = -1;
    if (status == SHERD_TIMEOUT) return SHERD_OK;
    if (status != SHERD_OK) return status;
    *beats = strtoll(text, NULL, 10);
    shd_free(text);
    return SHERD_OK;
}

/* `slept`: this process has itself stood still, and so may have all that it serves. */
static sherd_status look_after(shd_ledger *ledger, int64_t next, bool slept) {
    for (int32_t node = 1; node < ledger->config.node_count; node++) {
        pulse *has = &ledger->pulses[node];
        int64_t beats;
        SHD_TRY(read_beats(ledger, node, &beats));
        double now_ms = shd_clock_ms();
        if (beats < 0) {
            has->since_ms = 0;
        } else if (has->since_ms == 0 || beats != has->beats || slept) {
            *has = (pulse){.beats = beats, .since_ms = now_ms};
        } else if (now_ms - has->since_ms >= ledger->config.lost_after_s * 1e3) {
            return add_lost(ledger, node, next);
        }
    }
    return SHERD_OK;
}

static sherd_status beat(shd_ledger *ledger, int64_t next, double since_ms) {
    char key[SHD_LEDGER_KEY_BYTES];
    shd_ledger_beat_key(key, ledger->config.node);
    SHD_TRY(shd_store_add(ledger->reader, key, 1, NULL));
    if (!ledger->config.watches) return SHERD_OK;
    return look_after(ledger, next, shd_clock_ms() - since_ms > 2e3 * ledger->config.beat_s);
}

static sherd_status read_next(shd_ledger *ledger, int64_t *next, double wait_s) {
    char key[SHD_LEDGER_KEY_BYTES], *line;
    size_t bytes;
    shd_message message;
    message_key(key, *next);
    sherd_status status = shd_store_get(ledger->reader, key, wait_s, &line, &bytes);
    if (status == SHERD_TIMEOUT) return SHERD_OK;
    if (status != SHERD_OK) return status;
    bool read = shd_message_read(line, &message);
    shd_free(line);
    *next += 1;
    return read ? keep(ledger, &message)
                : shd_fail(SHERD_COMM, "another node says what this build does not know; all must run the same");
}

static sherd_status read_on(shd_ledger *ledger) {
    int64_t next = 0;
    double beat_ms = 0, beat_s = ledger->config.beat_s;
    while (!atomic_load(&ledger->closing)) {
        double now_ms = shd_clock_ms(), due_ms = beat_ms + beat_s * 1e3;
        if (now_ms >= due_ms) {
            SHD_TRY(beat(ledger, next, beat_ms));
            beat_ms = shd_clock_ms();
            due_ms = beat_ms + beat_s * 1e3;
        }
        SHD_TRY(read_next(ledger, &next, (due_ms - now_ms) / 1e3));
    }
    return SHERD_OK;
}

static void *run_reading(void *user) {
    shd_ledger *ledger = user;
    if (read_on(ledger) != SHERD_OK && !atomic_load(&ledger->closing)) say_broken(ledger);
    return NULL;
}

/* --- opening and closing ------------------------------------------------------------------------------------------ */

static sherd_status start_thread(shd_ledger *ledger, pthread_t *thread, void *(*run)(void *)) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int cause = pthread_create(thread, NULL, run, ledger);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return cause ? shd_fail(SHERD_INTERNAL, "no thread to talk to other nodes: %s", strerror(cause)) : SHERD_OK;
}

static void end_reading(shd_ledger *ledger) {
    atomic_store(&ledger->closing, true);
    pthread_join(ledger->reading, NULL);
}

static void end_writing(shd_ledger *ledger) {
    pthread_mutex_lock(&ledger->lock);
    ledger->closed = true;
    pthread_cond_signal(&ledger->more);
    pthread_mutex_unlock(&ledger->lock);
    pthread_join(ledger->writing, NULL);
}

static sherd_status start(shd_ledger *ledger) {
    const shd_ledger_config *config = &ledger->config;
    ledger->pulses = shd_alloc((size_t)config->node_count, sizeof *ledger->pulses);
    if (!ledger->pulses) return shd_fail(SHERD_MEMORY, "no memory for %d nodes", config->node_count);
    shd_store_config store = *config->store;
    store.give_up = gives_up;
    store.user = ledger;
    store.call_timeout_s = config->lost_after_s;
    SHD_TRY(shd_store_connect(&store, &ledger->reader));
    SHD_TRY(start_thread(ledger, &ledger->reading, run_reading));
    sherd_status status = start_thread(ledger, &ledger->writing, run_writing);
    if (status != SHERD_OK) end_reading(ledger);
    return status;
}

static void release(shd_ledger *ledger) {
    shd_store_close(ledger->reader);
    pthread_cond_destroy(&ledger->more);
    pthread_mutex_destroy(&ledger->lock);
    shd_free(ledger->incoming.messages);
    shd_free(ledger->outgoing.messages);
    shd_free(ledger->pulses);
    shd_free(ledger);
}

sherd_status shd_ledger_open(const shd_ledger_config *config, shd_ledger **out) {
    shd_ledger *ledger = shd_alloc(1, sizeof *ledger);
    if (!ledger) return shd_fail(SHERD_MEMORY, "no memory to hear other nodes");
    ledger->config = *config;
    ledger->opener = pthread_self();
    pthread_mutex_init(&ledger->lock, NULL);
    pthread_cond_init(&ledger->more, NULL);
    sherd_status status = start(ledger);
    if (status != SHERD_OK) {
        release(ledger);
        return status;
    }
    *out = ledger;
    return SHERD_OK;
}

void shd_ledger_close(shd_ledger *ledger) {
    if (!ledger) return;
    end_writing(ledger);
    end_reading(ledger);
    release(ledger);
}
