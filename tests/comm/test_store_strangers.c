/* The rendezvous store among strangers: who does not hold the secret, who damages, repeats, reorders or sends back
 * what others said, who is silent, who comes too often, and who only pretends to be the server. */
#include "tests/comm/store_rig.h"

#include "runtime/base/clock.h"
#include "runtime/base/memory.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sherd/log.h>
#include <sodium.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum { WIRE_BYTES = 2048 };

static sherd_status connect_with(int32_t port, const char *secret, const char *job) {
    shd_store_config config = rig_config(port);
    shd_store *store;
    config.secret = rig_secret(secret);
    config.job = job;
    sherd_status status = shd_store_connect(&config, &store);
    if (status == SHERD_OK) shd_store_close(store);
    return status;
}

static shd_store_server_stats stats_of(shd_store_server *server) {
    shd_store_server_stats stats;
    shd_store_server_get_stats(server, &stats);
    return stats;
}

/* Waits until the server has refused this many, five seconds at most. */
static bool refused(shd_store_server *server, int64_t count) {
    for (int i = 0; i < 500 && stats_of(server).refused < count; i++) usleep(10000);
    return stats_of(server).refused == count;
}

Test(store, another_secret_or_job_is_refused_at_once_and_named) {
    rig_log_start();
    shd_store_server *server = rig_serve(NULL);
    int32_t port = shd_store_server_port(server);
    double start_ms = shd_clock_ms();
    for (int i = 0; i < 10; i++) {
        cr_assert_eq(connect_with(port, "the secret of these tesst", RIG_JOB), SHERD_COMM);
        cr_assert(strstr(sherd_last_error(), "another secret"), "%s", sherd_last_error());
        cr_assert_eq(connect_with(port, RIG_SECRET, "job 2"), SHERD_COMM);
        cr_assert(strstr(sherd_last_error(), "another job"), "%s", sherd_last_error());
    }
    cr_assert_lt(shd_clock_ms() - start_ms, 4500);
    cr_assert_eq(connect_with(port, RIG_SECRET, RIG_JOB), SHERD_OK, "%s", sherd_last_error());
    cr_assert(refused(server, 20));
    shd_store_server_stop(server);
    cr_assert_eq(rig_log_count("a connection from 127.0.0.1:"), 1, "an address is named once");
    cr_assert_eq(rig_log_count("does not have this job's secret"), 1);
}

Test(store, another_version_is_told_apart) {
    shd_store_server *server = rig_serve(NULL);
    const shd_store_secret secret = rig_secret(RIG_SECRET);
    shd_store_keys keys;
    uint8_t hello[SHD_STORE_HELLO_BYTES], welcome[SHD_STORE_WELCOME_BYTES], nonce[SHD_STORE_NONCE_BYTES] = {0};
    cr_assert_eq(shd_store_keys_init(&secret, RIG_JOB, &keys), SHERD_OK);
    shd_store_write_hello(hello, &keys, nonce);
    hello[8] = SHD_STORE_VERSION + 1;
    int socket = rig_connect(shd_store_server_port(server));
    cr_assert(rig_send(socket, hello, sizeof hello));
    cr_assert(rig_receive(socket, welcome, sizeof welcome));
    shd_store_line line;
    cr_assert_eq(shd_store_read_welcome(welcome, &keys, nonce, &line), SHD_STORE_OTHER_VERSION);
    cr_assert(rig_is_closed(socket, 5));
    close(socket);
    shd_store_server_stop(server);
}

Test(store, garbage_gets_no_answer) {
    shd_store_server *server = rig_serve(NULL);
    int32_t port = shd_store_server_port(server);
    static const char get[] =
        "GET / HTTP/1.1\r\nHost: node1\r\nUser-Agent: a port scanner that says a lot about itself\r\n\r\n";
    uint8_t bytes[4][4096];
    memset(bytes[0], 0, sizeof bytes[0]);
    memset(bytes[1], 0xff, sizeof bytes[1]);
    randombytes_buf(bytes[2], sizeof bytes[2]);
    memcpy(bytes[3], get, sizeof get);
    for (int i = 0; i < 4; i++) {
        uint8_t byte;
        int socket = rig_connect(port);
        cr_assert(rig_send(socket, bytes[i], i == 3 ? sizeof get : sizeof bytes[i]));
        cr_assert_leq(recv(socket, &byte, 1, 0), 0, "it said something");
        close(socket);
    }
    for (int i = 0; i < 5; i++) close(rig_connect(port)); /* a scan */
    cr_assert(refused(server, 9));
    cr_assert_eq(connect_with(port, RIG_SECRET, RIG_JOB), SHERD_OK);
    shd_store_server_stop(server);
}

/* --- frames ------------------------------------------------------------------------------------------------------- */

static const shd_store_request one_more = {.op = SHD_STORE_ADD, .number = 1, .key = "n", .key_bytes = 1};

static rig_member member_of(shd_store_server *server) {
    rig_member member;
    cr_assert(rig_greet(&member, shd_store_server_port(server), RIG_SECRET, RIG_JOB));
    cr_assert(rig_join_by_hand(&member));
    return member;
}

/* The counter, asked by an honest client. */
static int64_t count_of(shd_store_server *server) {
    int64_t value = -1;
    shd_store *store = rig_join(shd_store_server_port(server));
    cr_assert_eq(shd_store_add(store, "n", 0, &value), SHERD_OK);
    shd_store_close(store);
    return value;
}

Test(store, a_frame_that_is_repeated_ends_the_connection) {
    shd_store_server *server = rig_serve(NULL);
    rig_member member = member_of(server);
    uint8_t wire[WIRE_BYTES], body[WIRE_BYTES];
    shd_store_reply reply;
    size_t bytes = rig_frame(&member, &one_more, wire);
    cr_assert(rig_send(member.socket, wire, bytes));
    cr_assert(rig_answer(&member, &reply, body));
    cr_assert_eq(reply.number, 1);
    cr_assert(rig_send(member.socket, wire, bytes));
    cr_assert(rig_is_closed(member.socket, 5));
    cr_assert_eq(count_of(server), 1);
    close(member.socket);
    shd_store_server_stop(server);
}

Test(store, frames_that_change_places_end_the_connection) {
    shd_store_server *server = rig_serve(NULL);
    rig_member member = member_of(server);
    uint8_t first[WIRE_BYTES], second[WIRE_BYTES];
    rig_frame(&member, &one_more, first);
    size_t bytes = rig_frame(&member, &one_more, second);
    cr_assert(rig_send(member.socket, second, bytes));
    cr_assert(rig_is_closed(member.socket, 5));
    cr_assert_eq(count_of(server), 0);
    close(member.socket);
    shd_store_server_stop(server);
}

Test(store, a_frame_of_another_connection_or_sent_back_ends_the_connection) {
    shd_store_server *server = rig_serve(NULL);
    rig_member one = member_of(server), other = member_of(server);
    uint8_t wire[WIRE_BYTES];
    size_t bytes = rig_frame(&one, &one_more, wire);
    cr_assert(rig_send(other.socket, wire, bytes));
    cr_assert(rig_is_closed(other.socket, 5));
    /* What the server says to `one` comes back to it. */
    cr_assert(rig_send(one.socket, wire, bytes));
    size_t answer_bytes = shd_store_sent_bytes(SHD_STORE_FIXED_BYTES);
    cr_assert(rig_receive(one.socket, wire, answer_bytes));
    cr_assert(rig_send(one.socket, wire, answer_bytes));
    cr_assert(rig_is_closed(one.socket, 5));
    cr_assert_eq(count_of(server), 1);
    close(one.socket);
    close(other.socket);
    shd_store_server_stop(server);
}

Test(store, no_bit_of_a_frame_can_be_changed) {
    shd_store_server *server = rig_serve(NULL);
    uint8_t wire[WIRE_BYTES];
    size_t bytes = 0;
    for (size_t at = 0; at == 0 || at < bytes; at++) {
        rig_member member = member_of(server);
        bytes = rig_frame(&member, &one_more, wire);
        wire[at] ^= (uint8_t)(1 << at % 8);
        cr_assert(rig_send(member.socket, wire, bytes));
        shutdown(member.socket, SHUT_WR); /* a longer length waits for more */
        cr_assert(rig_is_closed(member.socket, 5), "byte %zu", at);
        close(member.socket);
    }
    cr_assert_eq(count_of(server), 0);
    shd_store_server_stop(server);
}

Test(store, a_frame_that_is_cut_does_nothing) {
    shd_store_server *server = rig_serve(NULL);
    uint8_t wire[WIRE_BYTES];
    size_t bytes = 0;
    for (size_t sent = 1; sent == 1 || sent < bytes; sent += 3) {
        rig_member member = member_of(server);
        bytes = rig_frame(&member, &one_more, wire);
        cr_assert(rig_send(member.socket, wire, sent));
        close(member.socket);
    }
    cr_assert_eq(count_of(server), 0);
    shd_store_server_stop(server);
}

Test(store, a_recorded_session_cannot_be_played_again) {
    shd_store_server *server = rig_serve(NULL);
    int32_t port = shd_store_server_port(server);
    const shd_store_secret secret = rig_secret(RIG_SECRET);
    /* An honest session, of which somebody keeps every byte. */
    uint8_t hello[SHD_STORE_HELLO_BYTES], join[WIRE_BYTES], add[WIRE_BYTES], welcome[SHD_STORE_WELCOME_BYTES];
    uint8_t nonce[SHD_STORE_NONCE_BYTES], body[WIRE_BYTES];
    rig_member member;
    shd_store_reply reply;
    cr_assert_eq(shd_store_keys_init(&secret, RIG_JOB, &member.keys), SHERD_OK);
    randombytes_buf(nonce, sizeof nonce);
    shd_store_write_hello(hello, &member.keys, nonce);
    member.socket = rig_connect(port);
    cr_assert(rig_send(member.socket, hello, sizeof hello) && rig_receive(member.socket, welcome, sizeof welcome));
    cr_assert_eq(shd_store_read_welcome(welcome, &member.keys, nonce, &member.line), SHD_STORE_WELCOME);
    size_t join_bytes = rig_frame(&member, &(shd_store_request){.op = SHD_STORE_JOIN}, join);
    size_t add_bytes = rig_frame(&member, &one_more, add);
    cr_assert(rig_send(member.socket, join, join_bytes) && rig_answer(&member, &reply, body));
    cr_assert(rig_send(member.socket, add, add_bytes) && rig_answer(&member, &reply, body));
    cr_assert_eq(reply.number, 1);
    close(member.socket);

    for (int i = 0; i < 3; i++) {
        int socket = rig_connect(port);
        cr_assert(rig_send(socket, hello, sizeof hello));
        cr_assert(rig_receive(socket, welcome, sizeof welcome));
        cr_assert(rig_send(socket, join, join_bytes));
        cr_assert(rig_is_closed(socket, 5));
        close(socket);
    }
    cr_assert_eq(count_of(server), 1);
    cr_assert(refused(server, 3));
    shd_store_server_stop(server);
}

Test(store, whoever_has_not_joined_cannot_make_it_take_much) {
    shd_store_server *server = rig_serve(NULL);
    rig_member member;
    uint8_t wire[WIRE_BYTES];
    cr_assert(rig_greet(&member, shd_store_server_port(server), RIG_SECRET, RIG_JOB));
    size_t bytes = rig_frame(&member, &one_more, wire); /* longer than a join */
    cr_assert(rig_send(member.socket, wire, bytes));
    cr_assert(rig_is_closed(member.socket, 5));
    close(member.socket);
    member = member_of(server);
    shd_store_write_length(wire, SHD_STORE_BODY_BYTES + 1);
    cr_assert(rig_send(member.socket, wire, SHD_STORE_LENGTH_BYTES));
    cr_assert(rig_is_closed(member.socket, 5));
    close(member.socket);
    member = member_of(server);
    bytes = rig_frame(&member, &(shd_store_request){.op = SHD_STORE_JOIN}, wire); /* once is enough */
    cr_assert(rig_send(member.socket, wire, bytes));
    cr_assert(rig_is_closed(member.socket, 5));
    close(member.socket);
    cr_assert_eq(count_of(server), 0);
    shd_store_server_stop(server);
}

/* --- many --------------------------------------------------------------------------------------------------------- */

Test(store, the_silent_neither_stall_others_nor_stay) {
    enum { SILENT = 300 };
    rig_log_start();
    shd_store_server *server = rig_serve(NULL);
    int32_t port = shd_store_server_port(server);
    int sockets[SILENT];
    uint8_t byte = 's';
    int64_t held = shd_memory_held(SHD_MEMORY_OBJECTS);
    for (int i = 0; i < SILENT; i++) {
        sockets[i] = rig_connect(port);
        cr_assert(rig_send(sockets[i], &byte, i % 2)); /* half of them begin, and go no further */
    }
    double start_ms = shd_clock_ms();
    for (int i = 0; i < 20; i++) cr_assert_eq(connect_with(port, RIG_SECRET, RIG_JOB), SHERD_OK);
    cr_assert_lt(shd_clock_ms() - start_ms, 4500);
    cr_assert_lt(shd_memory_held(SHD_MEMORY_OBJECTS) - held, 400000, "of 128 strangers");
    cr_assert(rig_is_closed(sockets[0], 1), "the oldest makes room");
    cr_assert_not(rig_is_closed(sockets[SILENT - 1], 0), "the youngest has time");
    cr_assert(rig_is_closed(sockets[SILENT - 1], 8), "but not for ever");
    cr_assert(refused(server, SILENT));
    for (int i = 0; i < SILENT; i++) close(sockets[i]);
    shd_store_server_stop(server);
    cr_assert_eq(rig_log_count("a connection from"), 1);
}

typedef struct flood {
    int32_t port;
    _Atomic bool over;
    _Atomic int64_t count;
} flood;

static void *pour(void *argument) {
    flood *self = argument;
    uint8_t bytes[SHD_STORE_HELLO_BYTES];
    while (!self->over) {
        int socket = rig_connect(self->port);
        if (socket < 0) continue;
        randombytes_buf(bytes, sizeof bytes);
        rig_send(socket, bytes, sizeof bytes);
        const struct linger at_once = {.l_onoff = 1}; /* keeps no port in TIME_WAIT */
        setsockopt(socket, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
        close(socket);
        self->count++;
    }
    return NULL;
}

Test(store, a_flood_does_not_stall_the_honest) {
    rig_log_start();
    shd_store_server *server = rig_serve(NULL);
    flood self = {.port = shd_store_server_port(server)};
    int64_t held = shd_memory_held(SHD_MEMORY_OBJECTS);
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) cr_assert_eq(pthread_create(&threads[i], NULL, pour, &self), 0);
    usleep(300000);
    double worst_ms = 0, end_ms = shd_clock_ms() + 1500;
    int honest = 0;
    for (; shd_clock_ms() < end_ms; honest++) {
        double start_ms = shd_clock_ms();
        shd_store *store = rig_join(self.port);
        cr_assert_eq(shd_store_add(store, "n", 1, NULL), SHERD_OK);
        shd_store_close(store);
        if (shd_clock_ms() - start_ms > worst_ms) worst_ms = shd_clock_ms() - start_ms;
    }
    cr_assert_lt(shd_memory_held(SHD_MEMORY_OBJECTS) - held, 1 << 20);
    self.over = true;
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    fprintf(stderr, "flood: %lld connections, %d honest ones, the slowest %.1f ms; accepting paused %lld times\n",
            (long long)self.count, honest, worst_ms, (long long)stats_of(server).throttled);
    cr_assert_gt(self.count, 1000);
    cr_assert_gt(honest, 2);
    cr_assert_lt(worst_ms, 2500, "%g ms", worst_ms); /* a lost SYN is sent again after a second */
    cr_assert_eq(count_of(server), honest);
    shd_store_server_stop(server);
    cr_assert_eq(rig_log_count("a connection from"), 1);
}

Test(store, without_descriptors_it_waits_and_does_not_spin) {
    rig_log_start();
    shd_store_server *server = rig_serve(NULL);
    shd_store *store = rig_join(shd_store_server_port(server));
    struct rlimit limit, before;
    getrlimit(RLIMIT_NOFILE, &before);
    int next = rig_connect(shd_store_server_port(server));
    usleep(100000); /* the server has taken it */
    limit = before;
    limit.rlim_cur = (rlim_t)next + 2; /* its end took next + 1 */
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    close(next);
    int again = rig_connect(shd_store_server_port(server)); /* takes the only one that is left */
    double cpu_ms = rig_cpu_ms();
    usleep(500000);
    cr_assert_lt(rig_cpu_ms() - cpu_ms, 100);
    cr_assert_eq(shd_store_set(store, "k", "v", 1), SHERD_OK, "members are served");
    setrlimit(RLIMIT_NOFILE, &before);
    close(again);
    cr_assert_eq(connect_with(shd_store_server_port(server), RIG_SECRET, RIG_JOB), SHERD_OK);
    shd_store_close(store);
    shd_store_server_stop(server);
}

/* A terminal that somebody has stopped: takes no line before `lock` is given back. */
static struct {
    pthread_mutex_t lock;
    atomic_int taken;
} terminal = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void write_line(void *user, sherd_log_level level, const char *line) {
    (void)user, (void)level, (void)line;
    pthread_mutex_lock(&terminal.lock);
    terminal.taken++;
    pthread_mutex_unlock(&terminal.lock);
}

Test(store, a_log_that_takes_nothing_holds_up_nobody, .timeout = 60) {
    sherd_log_set(write_line, NULL, SHERD_LOG_WARN);
    shd_store_server *server = rig_serve(NULL);
    int32_t port = shd_store_server_port(server);
    shd_store *store = rig_join(port);
    pthread_mutex_lock(&terminal.lock);
    int stranger = rig_connect(port);
    cr_assert(rig_send(stranger, "GET / HTTP/1.1\r\n\r\n", 18));
    cr_assert(refused(server, 1));
    cr_assert_eq(shd_store_set(store, "key", "value", 5), SHERD_OK, "%s", sherd_last_error());
    cr_assert_eq(terminal.taken, 0);
    close(stranger);
    shd_store_close(store);
    double start_ms = shd_clock_ms();
    shd_store_server_stop(server);
    cr_assert_lt(shd_clock_ms() - start_ms, 3000, "a stop waits for the log");
    pthread_mutex_unlock(&terminal.lock);
    for (int i = 0; i < 1000 && shd_memory_held(SHD_MEMORY_OBJECTS); i++) usleep(5000);
    cr_assert_eq(terminal.taken, 1, "the line is said when it can be");
    cr_assert_eq(shd_memory_held(SHD_MEMORY_OBJECTS), 0);
}

/* --- those who pretend to be the server --------------------------------------------------------------------------- */

typedef struct impostor {
    int listener;
    int32_t port;
    const void *says; /* NULL: plays the server with `secret` up to a frame that it spoils at `spoilt` */
    size_t bytes;
    size_t spoilt;
    bool silent, echoes; /* echoes: says what it hears once it has passed the welcome on */
} impostor;

static void play(const impostor *self, int socket) {
    uint8_t hello[SHD_STORE_HELLO_BYTES], welcome[SHD_STORE_WELCOME_BYTES], nonce[SHD_STORE_NONCE_BYTES] = {7};
    uint8_t frame[SHD_STORE_FIXED_BYTES + SHD_STORE_AROUND_BYTES];
    shd_store_secret secret;
    shd_store_keys keys;
    shd_store_line line;
    const uint8_t *client_nonce;
    size_t frame_bytes = shd_store_sent_bytes(SHD_STORE_FIXED_BYTES);
    if (shd_store_secret_from_text(RIG_SECRET, &secret) != SHERD_OK) abort();
    if (shd_store_keys_init(&secret, RIG_JOB, &keys) != SHERD_OK) abort();
    if (!rig_receive(socket, hello, sizeof hello)) return;
    if (shd_store_read_hello(hello, &keys, &client_nonce) != SHD_STORE_WELCOME) return;
    shd_store_line_init(&line, SHD_STORE_SERVER, &keys, client_nonce, nonce);
    shd_store_write_welcome(welcome, SHD_STORE_WELCOME, &line, nonce);
    rig_send(socket, welcome, sizeof welcome);
    for (int i = 0; i < 2; i++) { /* join, and one call */
        uint8_t wire[WIRE_BYTES];
        if (!rig_receive(socket, wire, SHD_STORE_LENGTH_BYTES)) return;
        size_t bytes = shd_store_read_length(wire) + SHD_STORE_TAG_BYTES;
        if (!rig_receive(socket, wire + SHD_STORE_LENGTH_BYTES, bytes)) return;
        if (self->echoes) {
            rig_send(socket, wire, SHD_STORE_LENGTH_BYTES + bytes);
            continue;
        }
        shd_store_write_reply(frame + SHD_STORE_BODY_AT, &(shd_store_reply){.number = 41});
        shd_store_seal(&line, frame, SHD_STORE_FIXED_BYTES);
        if (i == 1 && self->spoilt < frame_bytes) frame[SHD_STORE_NUMBER_BYTES + self->spoilt] ^= 16;
        rig_send(socket, frame + SHD_STORE_NUMBER_BYTES, frame_bytes);
    }
}

static void *pretend(void *argument) {
    const impostor *self = argument;
    int socket = accept(self->listener, NULL, NULL);
    if (self->says)
        rig_send(socket, self->says, self->bytes);
    else if (!self->silent)
        play(self, socket);
    uint8_t byte;
    while (recv(socket, &byte, 1, 0) > 0) {}
    close(socket);
    return NULL;
}

/* Lets a client meet it and call add; what that came to. */
static sherd_status meet_impostor(impostor *self, int64_t *value) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof address;
    pthread_t thread;
    self->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert_eq(bind(self->listener, (struct sockaddr *)&address, sizeof address), 0);
    cr_assert_eq(listen(self->listener, 8), 0);
    cr_assert_eq(getsockname(self->listener, (struct sockaddr *)&address, &bytes), 0);
    cr_assert_eq(pthread_create(&thread, NULL, pretend, self), 0);
    shd_store_config config = rig_config(ntohs(address.sin_port));
    config.connect_timeout_s = 0.7;
    shd_store *store = NULL;
    sherd_status status = shd_store_connect(&config, &store);
    if (status == SHERD_OK) status = shd_store_add(store, "n", 1, value);
    if (store && status != SHERD_OK) cr_assert_eq(shd_store_add(store, "n", 1, value), status, "it stays dead");
    shd_store_close(store);
    pthread_join(thread, NULL);
    close(self->listener);
    return status;
}

Test(store, an_impostor_is_found_out) {
    uint8_t welcome[SHD_STORE_WELCOME_BYTES], nonce[SHD_STORE_NONCE_BYTES] = {0};
    shd_store_line line = {0};
    int64_t value = 0;
    static const char ssh[] = "SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u3\r\n";
    cr_assert_eq(meet_impostor(&(impostor){.says = ssh, .bytes = sizeof ssh - 1}, &value), SHERD_COMM);
    cr_assert(strstr(sherd_last_error(), "not a store"), "%s", sherd_last_error());
    shd_store_write_welcome(welcome, SHD_STORE_WELCOME, &line, nonce);
    cr_assert_eq(meet_impostor(&(impostor){.says = welcome, .bytes = sizeof welcome}, &value), SHERD_COMM);
    cr_assert(strstr(sherd_last_error(), "another secret"), "%s", sherd_last_error());
    cr_assert_eq(meet_impostor(&(impostor){.silent = true}, &value), SHERD_TIMEOUT);
    cr_assert(strstr(sherd_last_error(), "said nothing"), "%s", sherd_last_error());
    cr_assert_eq(meet_impostor(&(impostor){.echoes = true}, &value), SHERD_COMM, "its own join as the answer to it");
    cr_assert(strstr(sherd_last_error(), "not authentic"), "%s", sherd_last_error());
    cr_assert_eq(meet_impostor(&(impostor){.spoilt = SIZE_MAX}, &value), SHERD_OK, "the real one");
    cr_assert_eq(value, 41);
    for (size_t at = 4; at < shd_store_sent_bytes(SHD_STORE_FIXED_BYTES); at += 5)
        cr_assert_eq(meet_impostor(&(impostor){.spoilt = at}, &value), SHERD_COMM, "byte %zu", at);
}
