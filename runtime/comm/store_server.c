/* The rendezvous store's server: one thread that moves bytes between sockets and guests.
 *
 * It never waits for one connection, takes a bounded number of bytes from each in a turn, and is bounded in
 * descriptors and memory whatever strangers do: of connections that have not proved the secret there are
 * MAX_STRANGERS and MAX_GREETED, of which the oldest makes room for the next; a flood of them is taken in small
 * helpings. No address is locked out: judging a hello costs less than refusing to, and honest clients may share an
 * address with an attacker. */
#include "runtime/comm/store.h"

#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/base/memory.h"
#include "runtime/base/status.h"
#include "runtime/comm/store_address.h"
#include "runtime/comm/store_guest.h"
#include "runtime/comm/store_notes.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    MAX_STRANGERS = 128,
    MAX_GREETED = 512,
    MAX_NAMED = 64, /* addresses that the log has named */
    EVENTS = 256,   /* a turn */
    MOVES = 64,     /* sends and receives for one connection a turn */
    HELPING = 256,  /* connections taken a turn */
    FLOOD = 1000,   /* failed beginnings a second from which helpings are a millisecond apart */
    OUT_OF_FDS_MS = 100
};

typedef struct connection {
    shd_store_guest guest; /* first: a guest is its connection */
    shd_store_address from;
    int socket;
    bool blocked; /* an answer waits for room in the socket */
} connection;

struct shd_store_server {
    shd_store_house house;
    shd_store_address addresses[SHD_STORE_LISTENERS];
    int listeners[SHD_STORE_LISTENERS];
    int32_t listener_count;
    int epoll, wake;
    pthread_t thread;
    char address[SHD_STORE_ADDRESS_BYTES];
    /* Accepting: paused until resume_ms, 0 when it is not. */
    double resume_ms, window_ms;
    int32_t failed_in_window;
    bool told_fds;
    shd_store_notes *notes; /* the thread itself never waits for the log */
    uint64_t named[MAX_NAMED];
    /* For get_stats; written by the thread. */
    _Atomic int32_t clients, keys;
    _Atomic int64_t bytes, joined, refused, logged, throttled;
};

/* --- those who go ------------------------------------------------------------------------------------------------- */

/* One line an address, and no more than MAX_NAMED. */
static void name_once(shd_store_server *self, const shd_store_address *from, const char *why) {
    char text[SHD_STORE_ADDRESS_BYTES];
    uint64_t hash = shd_store_address_hash(from);
    int64_t count = self->logged;
    for (int64_t i = 0; i < count; i++)
        if (self->named[i] == hash) return;
    if (count == MAX_NAMED) return;
    self->named[count] = hash;
    self->logged = count + 1;
    shd_store_address_text(from, text);
    shd_store_notes_add(self->notes, "store: a connection from %s %s; dropped%s", text, why,
                        count + 1 == MAX_NAMED ? " (further addresses are not named)"
                                               : " (this address is not named again)");
}

static void drop(shd_store_server *self, connection *gone, const char *why) {
    bool failed = gone->guest.stage != SHD_STORE_MEMBER;
    if (failed) {
        self->refused++;
        self->failed_in_window++;
    }
    if (gone->guest.why) why = gone->guest.why;
    if (why || failed) name_once(self, &gone->from, why ? why : "closed before it had proved anything");
    shd_store_guest_leave(&self->house, &gone->guest);
    /* A child that has not come to its exec holds it too: then it would not leave the queue with this close. */
    (void)epoll_ctl(self->epoll, EPOLL_CTL_DEL, gone->socket, NULL);
    (void)shutdown(gone->socket, SHUT_RDWR);
    close(gone->socket);
    shd_free(gone);
}

/* Drops the oldest at `stage`. */
static void drop_oldest(shd_store_server *self, shd_store_stage stage) {
    shd_store_guest *oldest = NULL;
    for (shd_store_guest *guest = self->house.first; guest; guest = guest->next)
        if (guest->stage == stage) oldest = guest;
    if (oldest) drop(self, (connection *)oldest, "was silent while too many others came");
}

/* --- bytes -------------------------------------------------------------------------------------------------------- */

static void publish(shd_store_server *self) {
    const shd_store_house *house = &self->house;
    self->clients = house->counts[SHD_STORE_MEMBER];
    self->keys = house->table.count;
    self->bytes = house->table.bytes;
    self->joined = house->joined;
}

static void set_blocked(shd_store_server *self, connection *link, bool blocked) {
    if (link->blocked == blocked) return;
    struct epoll_event event = {.events = blocked ? EPOLLOUT : EPOLLIN, .data.ptr = link};
    if (epoll_ctl(self->epoll, EPOLL_CTL_MOD, link->socket, &event) == 0) link->blocked = blocked;
}

/* Moves what can be moved now; false when the connection is over. */
static bool move(shd_store_server *self, connection *link) {
    shd_store_guest *guest = &link->guest;
    for (int moves = 0; moves < MOVES; moves++) {
        const uint8_t *out;
        uint8_t *in = NULL;
        size_t bytes = shd_store_guest_output(guest, &out);
        bool sends = bytes > 0;
        if (!sends) {
            bytes = shd_store_guest_want(guest, &in);
            if (guest->why || bytes == 0) return false;
        }
        if (sends) publish(self); /* whoever has an answer finds in the numbers what it did */
        ssize_t moved = sends ? send(link->socket, out, bytes, MSG_NOSIGNAL) : recv(link->socket, in, bytes, 0);
        if (moved < 0 && errno == EINTR) continue;
        if (moved < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            set_blocked(self, link, sends);
            return true;
        }
        if (moved <= 0) return false;
        if (sends)
            shd_store_guest_sent(&self->house, guest, (size_t)moved, shd_clock_ms());
        else
            shd_store_guest_took(&self->house, guest, (size_t)moved, shd_clock_ms());
    }
    set_blocked(self, link, false);
    return true;
}

static void serve(shd_store_server *self, connection *link) {
    if (!move(self, link)) drop(self, link, NULL);
}

/* --- those who come ----------------------------------------------------------------------------------------------- */

static void set_listening(shd_store_server *self, double resume_ms) {
    self->resume_ms = resume_ms;
    for (int32_t i = 0; i < self->listener_count; i++) {
        struct epoll_event event = {.events = resume_ms > 0 ? 0 : EPOLLIN, .data.ptr = &self->listeners[i]};
        (void)epoll_ctl(self->epoll, EPOLL_CTL_MOD, self->listeners[i], &event);
    }
}

static void welcome(shd_store_server *self, int socket, const shd_store_address *from) {
    connection *link = shd_alloc(1, sizeof *link);
    if (!link) {
        close(socket);
        return;
    }
    link->socket = socket;
    link->from = *from;
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = link};
    if (epoll_ctl(self->epoll, EPOLL_CTL_ADD, socket, &event) < 0) {
        close(socket);
        shd_free(link);
        return;
    }
    if (self->house.counts[SHD_STORE_STRANGER] == MAX_STRANGERS) drop_oldest(self, SHD_STORE_STRANGER);
    if (self->house.counts[SHD_STORE_GREETED] >= MAX_GREETED) drop_oldest(self, SHD_STORE_GREETED);
    shd_store_guest_enter(&self->house, &link->guest, shd_clock_ms());
    serve(self, link); /* its hello is often here already */
}

/* No descriptor or no memory for one more: an old stranger goes, and the rest waits a little. */
static void make_room(shd_store_server *self, int error, double now_ms) {
    if (!self->told_fds)
        shd_store_notes_add(self->notes, "store: clients wait, since no connection can be taken: %s", strerror(error));
    self->told_fds = true;
    drop_oldest(self, SHD_STORE_STRANGER);
    set_listening(self, now_ms + OUT_OF_FDS_MS);
}

static void accept_some(shd_store_server *self, int listener) {
    double now_ms = shd_clock_ms();
    for (int i = 0; i < HELPING; i++) {
        shd_store_address from;
        memset(&from, 0, sizeof from);
        from.bytes = sizeof from.at;
        int socket = accept4(listener, (struct sockaddr *)&from.at, &from.bytes, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (socket >= 0) {
            welcome(self, socket, &from);
        } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            make_room(self, errno, now_ms);
            return;
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            return;
        } /* else that connection had an error of its own */
    }
    if (self->failed_in_window > FLOOD) {
        self->throttled++;
        set_listening(self, now_ms + 1);
    }
}

/* --- the loop ----------------------------------------------------------------------------------------------------- */

/* By the clock, and for guests whose wait another one has ended. Returns when to come again. */
static double look_at_all(shd_store_server *self, double now_ms) {
    double due_ms = self->resume_ms > 0 ? self->resume_ms : INFINITY;
    self->house.woken = false;
    for (shd_store_guest *guest = self->house.first, *next; guest; guest = next) {
        connection *link = (connection *)guest;
        const uint8_t *out;
        next = guest->next;
        if (shd_store_guest_due_ms(guest) <= now_ms) shd_store_guest_expire(&self->house, guest, now_ms);
        bool has_news = guest->why || (!link->blocked && shd_store_guest_output(guest, &out) > 0);
        if (has_news && ((guest->why && link->blocked) || !move(self, link))) {
            drop(self, link, NULL);
            continue;
        }
        if (!link->blocked && shd_store_guest_output(guest, &out) > 0) due_ms = now_ms;
        due_ms = fmin(due_ms, shd_store_guest_due_ms(guest));
    }
    return self->house.woken ? now_ms : due_ms;
}

static int until(double due_ms) {
    double left_ms = due_ms - shd_clock_ms();
    if (left_ms <= 0) return 0;
    return left_ms > 60000 ? 60000 : (int)ceil(left_ms);
}

static bool is_listener(const shd_store_server *self, const void *pointer) {
    for (int32_t i = 0; i < self->listener_count; i++)
        if (pointer == &self->listeners[i]) return true;
    return false;
}

static void *run(void *argument) {
    shd_store_server *self = argument;
    struct epoll_event events[EVENTS];
    double due_ms = INFINITY;
    for (;;) {
        int count = epoll_wait(self->epoll, events, EVENTS, until(due_ms));
        double now_ms = shd_clock_ms();
        if (now_ms - self->window_ms >= 1000) {
            self->window_ms = now_ms;
            self->failed_in_window = 0;
        }
        bool accepts = false;
        /* Those who are here come before those who want in; and whoever is dropped for those has no event left. */
        for (int i = 0; i < count; i++) {
            if (events[i].data.ptr == &self->wake) return NULL;
            if (is_listener(self, events[i].data.ptr))
                accepts = true;
            else
                serve(self, events[i].data.ptr);
        }
        for (int i = 0; i < count && accepts; i++)
            if (is_listener(self, events[i].data.ptr)) accept_some(self, *(int *)events[i].data.ptr);
        if (self->resume_ms > 0 && self->resume_ms <= now_ms) set_listening(self, 0);
        /* After a stop of the process, what has arrived meanwhile counts before the clock does. */
        due_ms = count < EVENTS ? look_at_all(self, now_ms) : now_ms;
        publish(self);
    }
}

/* --- starting and stopping ---------------------------------------------------------------------------------------- */

static void release(shd_store_server *self) {
    while (self->house.first) {
        connection *link = (connection *)self->house.first;
        shd_store_guest_leave(&self->house, &link->guest);
        (void)shutdown(link->socket, SHUT_RDWR);
        close(link->socket);
        shd_free(link);
    }
    for (int32_t i = 0; i < self->listener_count; i++) {
        (void)shutdown(self->listeners[i], SHUT_RDWR);
        close(self->listeners[i]);
    }
    if (self->epoll >= 0) close(self->epoll);
    if (self->wake >= 0) close(self->wake);
    shd_store_notes_stop(self->notes);
    shd_store_house_fini(&self->house);
    shd_free(self);
}

static sherd_status watch(shd_store_server *self, int descriptor, void *pointer) {
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = pointer};
    if (epoll_ctl(self->epoll, EPOLL_CTL_ADD, descriptor, &event) == 0) return SHERD_OK;
    return shd_fail(SHERD_IO, "the store's server cannot start: %s", strerror(errno));
}

/* The thread, with every signal blocked: they are for the threads of whoever started us. */
static sherd_status start_thread(shd_store_server *self) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&self->thread, NULL, run, self);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error != 0) return shd_fail(SHERD_MEMORY, "the store's server gets no thread: %s", strerror(error));
    pthread_setname_np(self->thread, "sherd-store");
    return SHERD_OK;
}

static sherd_status open_up(shd_store_server *self, const shd_store_server_config *config) {
    SHD_TRY(shd_store_house_init(&self->house, config));
    SHD_TRY(shd_store_listen(config->host, config->port, self->addresses, self->listeners, &self->listener_count));
    shd_store_address_text(&self->addresses[0], self->address);
    self->epoll = epoll_create1(EPOLL_CLOEXEC);
    self->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (self->epoll < 0 || self->wake < 0)
        return shd_fail(SHERD_IO, "the store's server cannot start: %s", strerror(errno));
    SHD_TRY(watch(self, self->wake, &self->wake));
    for (int32_t i = 0; i < self->listener_count; i++) SHD_TRY(watch(self, self->listeners[i], &self->listeners[i]));
    SHD_TRY(shd_store_notes_start(&self->notes));
    return start_thread(self);
}

sherd_status shd_store_server_start(const shd_store_server_config *config, shd_store_server **server) {
    if (!config->job) return shd_fail(SHERD_ARGUMENT, "a store needs a job's id");
    shd_store_server *self = shd_alloc(1, sizeof *self);
    if (!self) return shd_fail(SHERD_MEMORY, "no memory for the store's server");
    self->epoll = self->wake = -1;
    sherd_status status = open_up(self, config);
    if (status != SHERD_OK) {
        release(self);
        return status;
    }
    *server = self;
    return SHERD_OK;
}

int32_t shd_store_server_port(const shd_store_server *server) { return shd_store_address_port(&server->addresses[0]); }

const char *shd_store_server_address(const shd_store_server *server) { return server->address; }

void shd_store_server_get_stats(shd_store_server *server, shd_store_server_stats *stats) {
    *stats = (shd_store_server_stats){.clients = server->clients,
                                      .keys = server->keys,
                                      .bytes = server->bytes,
                                      .joined = server->joined,
                                      .refused = server->refused,
                                      .logged = server->logged,
                                      .throttled = server->throttled};
}

void shd_store_server_stop(shd_store_server *server) {
    if (!server) return;
    const uint64_t one = 1;
    while (write(server->wake, &one, sizeof one) < 0 && errno == EINTR) {}
    pthread_join(server->thread, NULL);
    if (server->refused > 0)
        shd_log(SHERD_LOG_INFO, "store: %lld connections of strangers were refused", (long long)server->refused);
    release(server);
}
