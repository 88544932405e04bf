/* The two sides of a meeting: the host, rank 0, and its guests, the other ranks.
 *
 * The host decides alone. A guest that does not fit the job ends the meeting: the host goes on listening for a moment,
 * so that every rank that comes hears the same refusal, then refuses all. Connections that have not said hello in time
 * are dropped. */
#include "runtime/comm/rendezvous.h"

#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/base/memory.h"
#include "runtime/base/status.h"
#include "runtime/comm/arena.h"
#include "runtime/comm/standing.h"
#include "runtime/comm/wire.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    MAX_STRANGERS = 64,                  /* connections that have not said hello */
    MAX_GUESTS = 2 * SHD_COMM_MAX_RANKS, /* and those that have, misfits included */
    HELLO_MS = 5000,                     /* how long a stranger may stay silent */
    REFUSAL_MS = 1000,                   /* how long a misfit's meeting stays open for the rest to hear of it */
    ANSWER_MS = 2000                     /* how long a guest waits for an answer beyond the host's own time-out */
};

void shd_meeting_init(shd_meeting *meeting) {
    meeting->control = meeting->host = meeting->records = -1;
    for (int32_t r = 0; r < SHD_COMM_MAX_RANKS; r++) meeting->exported[r] = meeting->life_line[r] = -1;
}

void shd_meeting_fini(shd_meeting *meeting) {
    shd_wire_close(&meeting->control, 1);
    shd_wire_close(&meeting->host, 1);
    shd_wire_close(&meeting->records, 1);
    shd_wire_close(meeting->exported, SHD_COMM_MAX_RANKS);
    shd_wire_close(meeting->life_line, SHD_COMM_MAX_RANKS);
}

static shd_hello make_hello(const shd_comm_config *config, const char *cause) {
    shd_hello hello = {.magic = SHD_WIRE_MAGIC,
                       .protocol = SHD_WIRE_PROTOCOL,
                       .rank = config->rank,
                       .world_size = config->world_size,
                       .unit_count = config->unit_count,
                       .fingerprint = config->fingerprint,
                       .exported_bytes = config->exported_bytes,
                       .host_bytes = config->host_bytes};
    if (cause) snprintf(hello.cause, sizeof hello.cause, "%s", cause);
    return hello;
}

/* --- the host ----------------------------------------------------------------------------------------------------- */

typedef struct stranger {
    int socket;
    double since_ms;
} stranger;

typedef struct host {
    const shd_comm_config *config;
    shd_hello own;
    shd_meeting *meeting;
    int listener;
    int32_t stranger_count, guest_count, arrived, expected; /* expected: hellos after which nobody else will come */
    stranger strangers[MAX_STRANGERS];
    int guests[MAX_GUESTS];          /* sockets of those that said hello */
    int32_t guest_ranks[MAX_GUESTS]; /* what they called themselves */
    bool here[SHD_COMM_MAX_RANKS];   /* ranks that arrived and fit; rank 0 from the start */
    double deadline_ms;
    shd_comm_failure refusal; /* status OK: none so far */
} host;

/* Ends the meeting; the first reason stands. */
static void __attribute__((format(printf, 3, 4))) refuse(host *self, sherd_status status, const char *format, ...) {
    if (self->refusal.status != SHERD_OK) return;
    self->refusal.status = status;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(self->refusal.text, sizeof self->refusal.text, format, arguments);
    va_end(arguments);
    double close_ms = shd_clock_ms() + REFUSAL_MS;
    if (close_ms < self->deadline_ms) self->deadline_ms = close_ms;
}

/* Holds a hello against the job; refuses and returns false when it does not fit. */
static bool fits(host *self, const shd_hello *hello) {
    const shd_hello *own = &self->own;
    if (hello->protocol != own->protocol)
        refuse(self, SHERD_MISMATCH, "rank %d speaks protocol %d, rank 0 protocol %d: they are different builds",
               hello->rank, hello->protocol, own->protocol);
    else if (hello->cause[0])
        refuse(self, SHERD_PEER, "rank %d failed at the start: %.*s", hello->rank, (int)sizeof hello->cause,
               hello->cause);
    else if (hello->world_size != own->world_size)
        refuse(self, SHERD_MISMATCH, "rank %d has world size %d, rank 0 has world size %d", hello->rank,
               hello->world_size, own->world_size);
    else if (hello->rank < 0 || hello->rank >= own->world_size)
        refuse(self, SHERD_MISMATCH, "a process calls itself rank %d of %d ranks", hello->rank, own->world_size);
    else if (self->here[hello->rank])
        refuse(self, SHERD_MISMATCH, "two processes call themselves rank %d; there must be one of each from 0 to %d",
               hello->rank, own->world_size - 1);
    else if (hello->fingerprint != own->fingerprint)
        refuse(
            self, SHERD_MISMATCH,
            "rank %d has another model, other options or another build than rank 0 (fingerprints %016llx and %016llx)",
            hello->rank, (unsigned long long)hello->fingerprint, (unsigned long long)own->fingerprint);
    else if (hello->unit_count != own->unit_count || hello->exported_bytes != own->exported_bytes ||
             hello->host_bytes != own->host_bytes)
        refuse(self, SHERD_MISMATCH,
               "rank %d expects %d units, %lld exported and %lld host bytes, rank 0 %d units, %lld and %lld bytes",
               hello->rank, hello->unit_count, (long long)hello->exported_bytes, (long long)hello->host_bytes,
               own->unit_count, (long long)own->exported_bytes, (long long)own->host_bytes);
    else
        return true;
    return false;
}

/* Takes a hello and its descriptors. */
static void welcome(host *self, int socket, const shd_hello *hello, int *fds, int32_t fd_count) {
    if (self->guest_count == MAX_GUESTS) {
        shd_wire_close(fds, fd_count);
        close(socket);
        return;
    }
    self->guests[self->guest_count] = socket;
    self->guest_ranks[self->guest_count++] = hello->rank;
    if (hello->world_size > self->expected + 1 && hello->world_size <= SHD_COMM_MAX_RANKS)
        self->expected = hello->world_size - 1;
    int32_t wanted = self->own.exported_bytes > 0 ? 2 : 1;
    if (!fits(self, hello)) {
        shd_wire_close(fds, fd_count);
    } else if (fd_count != wanted || (wanted == 2 && !shd_arena_is(fds[1], self->own.exported_bytes))) {
        refuse(self, SHERD_COMM, "rank %d came without its memory", hello->rank);
        shd_wire_close(fds, fd_count);
    } else {
        self->meeting->life_line[hello->rank] = fds[0];
        if (wanted == 2) self->meeting->exported[hello->rank] = fds[1];
        self->here[hello->rank] = true;
        self->arrived++;
    }
}

static void drop_stranger(host *self, int32_t index, const char *why) {
    shd_log(SHERD_LOG_WARN, "comm: rendezvous '%s': a connection %s; dropped", self->config->rendezvous, why);
    close(self->strangers[index].socket);
    self->strangers[index] = self->strangers[--self->stranger_count];
}

static void accept_strangers(host *self) {
    for (;;) {
        int socket = accept4(self->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (socket < 0) return;
        if (!shd_wire_is_own_user(socket)) {
            shd_log(SHERD_LOG_WARN, "comm: rendezvous '%s': another user connected; dropped", self->config->rendezvous);
            close(socket);
            continue;
        }
        /* strangers[0] need not be the oldest, only one that has been silent while this many came */
        if (self->stranger_count == MAX_STRANGERS) drop_stranger(self, 0, "was silent while too many others came");
        self->strangers[self->stranger_count++] = (stranger){.socket = socket, .since_ms = shd_clock_ms()};
    }
}

static void hear_strangers(host *self) {
    for (int32_t i = self->stranger_count; i-- > 0;) {
        shd_hello hello;
        int fds[SHD_WIRE_MAX_FDS];
        int32_t fd_count;
        switch (shd_wire_receive(self->strangers[i].socket, &hello, sizeof hello, fds, &fd_count)) {
        case SHD_WIRE_GOT: {
            int socket = self->strangers[i].socket;
            if (hello.magic != SHD_WIRE_MAGIC) {
                shd_wire_close(fds, fd_count);
                drop_stranger(self, i, "sent something else than a hello");
                break;
            }
            self->strangers[i] = self->strangers[--self->stranger_count];
            welcome(self, socket, &hello, fds, fd_count);
            break;
        }
        case SHD_WIRE_NOTHING:
            if (shd_clock_ms() - self->strangers[i].since_ms > HELLO_MS) drop_stranger(self, i, "was silent");
            break;
        case SHD_WIRE_CLOSED: drop_stranger(self, i, "closed without a hello"); break;
        case SHD_WIRE_GARBAGE: drop_stranger(self, i, "sent garbage"); break;
        }
    }
}

/* Sleeps until somebody connects, speaks or goes, at most `milliseconds`. A guest says nothing more, so whatever comes
 * from it is its end. */
static void await_news(host *self, int milliseconds) {
    struct pollfd polled[1 + MAX_GUESTS + MAX_STRANGERS];
    nfds_t count = 0;
    for (int32_t i = 0; i < self->guest_count; i++)
        polled[count++] = (struct pollfd){.fd = self->guests[i], .events = POLLIN};
    polled[count++] = (struct pollfd){.fd = self->listener, .events = POLLIN};
    for (int32_t i = 0; i < self->stranger_count; i++)
        polled[count++] = (struct pollfd){.fd = self->strangers[i].socket, .events = POLLIN};
    if (poll(polled, count, milliseconds) <= 0) return;
    for (int32_t i = self->guest_count; i-- > 0;) {
        if (!polled[i].revents) continue;
        refuse(self, SHERD_PEER, "rank %d ended while the ranks were meeting", self->guest_ranks[i]);
        shd_recorder_alarm(self->config->recorder, self->refusal.text);
        close(self->guests[i]);
        self->guest_count--;
        self->guests[i] = self->guests[self->guest_count];
        self->guest_ranks[i] = self->guest_ranks[self->guest_count];
        self->expected--;
    }
    accept_strangers(self);
    hear_strangers(self);
}

enum { LOOK_MS = 50 };

/* "1, 3", and how the first of them stands where ranks have a flight recorder: ": pid 4711 is stopped …". */
static void print_missing(const host *self, char *text, size_t text_bytes) {
    size_t used = 0;
    int32_t first = -1;
    char standing[SHD_COMM_CAUSE_BYTES / 3] = "";
    for (int32_t r = 1; r < self->config->world_size && used + 16 < text_bytes; r++) {
        if (self->here[r]) continue;
        if (first < 0) first = r;
        used += (size_t)snprintf(text + used, text_bytes - used, "%s%d", used ? ", " : "", r);
    }
    shd_standing_print(self->config->recorder, first, LOOK_MS, standing, sizeof standing);
    if (*standing) snprintf(text + used, text_bytes - used, "; rank %d, %s", first, standing);
}

static void gather_guests(host *self) {
    while (self->arrived < self->config->world_size - 1 || self->refusal.status != SHERD_OK) {
        double left_ms = self->deadline_ms - shd_clock_ms();
        if (self->refusal.status != SHERD_OK && (left_ms <= 0 || self->guest_count >= self->expected)) return;
        if (left_ms <= 0) {
            char missing[SHD_COMM_CAUSE_BYTES * 2 / 3];
            print_missing(self, missing, sizeof missing);
            refuse(self, SHERD_TIMEOUT, "within %.3g s, of %d ranks these did not come to rendezvous '%.100s': %s",
                   self->config->start_timeout_s, self->config->world_size, self->config->rendezvous, missing);
            shd_recorder_alarm(self->config->recorder, self->refusal.text);
            return;
        }
        await_news(self, left_ms < 100 ? (int)left_ms + 1 : 100);
    }
}

static void answer_guests(host *self) {
    shd_answer answer = {.magic = SHD_WIRE_MAGIC,
                         .protocol = SHD_WIRE_PROTOCOL,
                         .status = (int32_t)self->refusal.status,
                         .has_records = self->meeting->records >= 0};
    memcpy(answer.text, self->refusal.text, sizeof answer.text);
    int fds[SHD_WIRE_MAX_FDS];
    int32_t fd_count = 0;
    if (self->refusal.status == SHERD_OK) {
        const shd_meeting *meeting = self->meeting;
        fds[fd_count++] = meeting->control;
        if (self->own.host_bytes > 0) fds[fd_count++] = meeting->host;
        if (answer.has_records) fds[fd_count++] = meeting->records;
        for (int32_t r = 0; r < self->config->world_size; r++) fds[fd_count++] = meeting->life_line[r];
        if (self->own.exported_bytes > 0)
            for (int32_t r = 0; r < self->config->world_size; r++) fds[fd_count++] = meeting->exported[r];
    }
    /* One that cannot be told is dead; its life line tells the rest. */
    for (int32_t i = 0; i < self->guest_count; i++)
        (void)shd_wire_send(self->guests[i], &answer, sizeof answer, fds, fd_count);
}

static sherd_status open_house(host *self) {
    struct sockaddr_un address;
    socklen_t address_bytes = shd_wire_address(self->config->rendezvous, &address);
    self->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (self->listener < 0) return shd_fail(SHERD_COMM, "cannot make a socket: %s", strerror(errno));
    if (!bind(self->listener, (struct sockaddr *)&address, address_bytes) && !listen(self->listener, MAX_GUESTS))
        return SHERD_OK;
    int error = errno;
    close(self->listener);
    if (error == EADDRINUSE)
        return shd_fail(
            SHERD_COMM,
            "rendezvous '%s' is taken: another job is meeting under this name, or a second process is rank 0",
            self->config->rendezvous);
    return shd_fail(SHERD_COMM, "cannot open rendezvous '%s': %s", self->config->rendezvous, strerror(error));
}

/* `cause`: why rank 0 cannot take part, NULL when it can. */
static sherd_status host_meet(const shd_comm_config *config, shd_meeting *meeting, const char *cause) {
    host *self = shd_alloc(1, sizeof *self);
    if (!self) return shd_fail(SHERD_MEMORY, "no memory for a rendezvous");
    self->config = config;
    self->own = make_hello(config, cause);
    self->meeting = meeting;
    self->expected = config->world_size - 1;
    self->here[0] = true;
    self->deadline_ms = shd_clock_ms() + config->start_timeout_s * 1e3;
    sherd_status status = open_house(self);
    if (status == SHERD_OK) {
        if (cause) refuse(self, SHERD_PEER, "rank 0 failed at the start: %s", self->own.cause);
        gather_guests(self);
        /* While the guests still hold their memory: whoever lets go last pays for giving it back. */
        if (self->refusal.status != SHERD_OK) shd_meeting_fini(meeting);
        answer_guests(self);
        close(self->listener);
        for (int32_t i = 0; i < self->stranger_count; i++) close(self->strangers[i].socket);
        shd_wire_close(self->guests, self->guest_count);
        if (self->refusal.status != SHERD_OK) status = shd_fail(self->refusal.status, "%s", self->refusal.text);
    }
    shd_free(self);
    return status;
}

/* --- a guest ------------------------------------------------------------------------------------------------------ */

enum { KNOCK_MIN_MS = 1, KNOCK_MAX_MS = 50 };

/* Connects and says hello, on success *out is the socket. Otherwise *why says what stands in the way, NULL when nobody
 * is there yet. */
static bool knock(const shd_comm_config *config, const shd_meeting *meeting, const char *cause, int *out,
                  const char **why) {
    struct sockaddr_un address;
    socklen_t address_bytes = shd_wire_address(config->rendezvous, &address);
    *why = NULL;
    int door = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (door < 0) {
        *why = "this process cannot make a socket";
        return false;
    }
    if (connect(door, (struct sockaddr *)&address, address_bytes)) {
        /* Nobody is there yet, or everybody is coming at once. */
    } else if (!shd_wire_is_own_user(door)) {
        *why = "its name is held by another user";
    } else {
        shd_hello hello = make_hello(config, cause);
        int fds[2] = {meeting->life_line[config->rank], meeting->exported[config->rank]};
        if (shd_wire_send(door, &hello, sizeof hello, fds, cause ? 0 : config->exported_bytes > 0 ? 2 : 1)) {
            *out = door;
            return true;
        }
    }
    close(door);
    return false;
}

/* Rank 0 is missing: a rank that only wanted to tell its cause does not complain. */
static sherd_status fail_hostless(const shd_comm_config *config, const char *cause, const char *what, const char *why) {
    char standing[SHD_COMM_CAUSE_BYTES / 2] = "", text[SHD_COMM_CAUSE_BYTES];
    if (!cause) shd_standing_print(config->recorder, 0, LOOK_MS, standing, sizeof standing);
    snprintf(text, sizeof text, "rank 0 %s rendezvous '%.100s' within %.3g s%s%s%s%s", what, config->rendezvous,
             config->start_timeout_s, why ? ": " : "", why ? why : "", *standing ? "; " : "", standing);
    if (!cause) shd_recorder_alarm(config->recorder, text);
    return shd_fail(SHERD_TIMEOUT, "%s", text);
}

static sherd_status find_host(const shd_comm_config *config, const shd_meeting *meeting, const char *cause,
                              double limit_ms, int *out) {
    double deadline_ms = shd_clock_ms() + limit_ms;
    const char *why;
    for (int nap_ms = KNOCK_MIN_MS; !knock(config, meeting, cause, out, &why);
         nap_ms = nap_ms < KNOCK_MAX_MS / 2 ? 2 * nap_ms : KNOCK_MAX_MS) {
        if (shd_clock_ms() > deadline_ms) return fail_hostless(config, cause, "did not open", why);
        struct timespec nap = {.tv_nsec = nap_ms * 1000000L};
        nanosleep(&nap, NULL);
    }
    return SHERD_OK;
}

/* Sorts the descriptors of a good answer into `meeting`; takes them all. */
static sherd_status accept_answer(const shd_comm_config *config, bool has_records, int *fds, int32_t fd_count,
                                  shd_meeting *meeting) {
    int32_t n = config->world_size, at = 0;
    bool has_host = config->host_bytes > 0, has_exported = config->exported_bytes > 0;
    if (fd_count != 1 + has_host + has_records + n + (has_exported ? n : 0)) {
        shd_wire_close(fds, fd_count);
        return shd_fail(SHERD_COMM, "rank 0 answered with %d descriptors", fd_count);
    }
    shd_meeting_fini(meeting); /* the own ones come back with the rest */
    meeting->control = fds[at++];
    if (has_host) meeting->host = fds[at++];
    if (has_records) meeting->records = fds[at++];
    for (int32_t r = 0; r < n; r++) meeting->life_line[r] = fds[at++];
    for (int32_t r = 0; has_exported && r < n; r++) meeting->exported[r] = fds[at++];
    bool good = !has_host || shd_arena_is(meeting->host, config->host_bytes);
    for (int32_t r = 0; has_exported && r < n; r++)
        good = good && shd_arena_is(meeting->exported[r], config->exported_bytes);
    return good ? SHERD_OK : shd_fail(SHERD_COMM, "rank 0 passed on memory of the wrong size");
}

static sherd_status hear_answer(const shd_comm_config *config, int door, shd_meeting *meeting) {
    double deadline_ms = shd_clock_ms() + config->start_timeout_s * 1e3 + ANSWER_MS;
    shd_answer answer;
    int fds[SHD_WIRE_MAX_FDS];
    int32_t fd_count;
    for (;;) {
        double left_ms = deadline_ms - shd_clock_ms();
        if (left_ms <= 0) return fail_hostless(config, NULL, "gave no answer at", NULL);
        struct pollfd polled = {.fd = door, .events = POLLIN};
        (void)poll(&polled, 1, left_ms < 1000 ? (int)left_ms + 1 : 1000);
        switch (shd_wire_receive(door, &answer, sizeof answer, fds, &fd_count)) {
        case SHD_WIRE_NOTHING: continue;
        case SHD_WIRE_CLOSED:
            return shd_fail(SHERD_PEER, "rank 0 ended while the ranks were meeting, or this rank %d is one too many",
                            config->rank);
        case SHD_WIRE_GARBAGE:
            return shd_fail(SHERD_COMM, "the answer of rank 0 is damaged, or this process may open too few files");
        case SHD_WIRE_GOT: break;
        }
        break;
    }
    if (answer.magic == SHD_WIRE_MAGIC && answer.protocol == SHD_WIRE_PROTOCOL && answer.status == SHERD_OK)
        return accept_answer(config, answer.has_records, fds, fd_count, meeting);
    shd_wire_close(fds, fd_count);
    if (answer.magic != SHD_WIRE_MAGIC)
        return shd_fail(SHERD_COMM, "what answers at rendezvous '%s' is no rank 0", config->rendezvous);
    answer.text[sizeof answer.text - 1] = 0;
    return shd_fail((sherd_status)answer.status, "%s", answer.text);
}

sherd_status shd_rendezvous_meet(const shd_comm_config *config, shd_meeting *meeting) {
    if (config->rank == 0) return host_meet(config, meeting, NULL);
    int door = -1;
    SHD_TRY(find_host(config, meeting, NULL, config->start_timeout_s * 1e3, &door));
    sherd_status status = hear_answer(config, door, meeting);
    close(door);
    return status;
}

void shd_rendezvous_decline(const shd_comm_config *config, shd_meeting *meeting, const char *cause) {
    int door = -1;
    if (config->rank == 0)
        (void)host_meet(config, meeting, cause);
    else if (find_host(config, meeting, cause, REFUSAL_MS, &door) == SHERD_OK)
        close(door);
}
