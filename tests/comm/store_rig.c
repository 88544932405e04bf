#include "tests/comm/store_rig.h"

#include "runtime/base/clock.h"
#include "runtime/base/memory.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sherd/log.h>
#include <signal.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

shd_store_secret rig_secret(const char *text) {
    shd_store_secret secret;
    cr_assert_eq(shd_store_secret_from_text(text, &secret), SHERD_OK, "%s", sherd_last_error());
    return secret;
}

shd_store_server *rig_serve(const shd_store_server_config *limits) {
    shd_store_server_config config = {.job = RIG_JOB, .secret = rig_secret(RIG_SECRET)};
    shd_store_server *server = NULL;
    if (limits) {
        config.max_clients = limits->max_clients;
        config.max_bytes = limits->max_bytes;
        config.max_keys = limits->max_keys;
    }
    cr_assert_eq(shd_store_server_start(&config, &server), SHERD_OK, "%s", sherd_last_error());
    return server;
}

pid_t rig_serve_apart(int32_t *port) {
    int ends[2];
    cr_assert_eq(pipe(ends), 0);
    const shd_store_server_config config = {.job = RIG_JOB, .secret = rig_secret(RIG_SECRET)};
    pid_t child = fork();
    if (child == 0) {
        shd_store_server *server;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (shd_store_server_start(&config, &server) != SHERD_OK) _exit(1);
        *port = shd_store_server_port(server);
        if (write(ends[1], port, sizeof *port) != sizeof *port) _exit(1);
        for (;;) pause();
    }
    cr_assert(child > 0);
    close(ends[1]);
    cr_assert_eq(read(ends[0], port, sizeof *port), sizeof *port);
    close(ends[0]);
    return child;
}

void rig_kill(pid_t server) {
    kill(server, SIGKILL);
    waitpid(server, NULL, 0);
}

shd_store_config rig_config(int32_t port) {
    return (shd_store_config){
        .port = port, .job = RIG_JOB, .secret = rig_secret(RIG_SECRET), .connect_timeout_s = 10, .call_timeout_s = 10};
}

shd_store *rig_join(int32_t port) {
    const shd_store_config config = rig_config(port);
    shd_store *store = NULL;
    cr_assert_eq(shd_store_connect(&config, &store), SHERD_OK, "%s", sherd_last_error());
    return store;
}

const char *rig_text(shd_store *store, const char *key) {
    static _Thread_local char text[512];
    char *value = NULL;
    size_t bytes = 0;
    cr_assert_eq(shd_store_get(store, key, 0, &value, &bytes), SHERD_OK, "%s", sherd_last_error());
    cr_assert_lt(bytes, sizeof text);
    memcpy(text, value, bytes + 1);
    shd_free(value);
    return text;
}

typedef struct share {
    rig_body body;
    void *argument;
    int index, result;
} share;

static void *run_share(void *argument) {
    share *mine = argument;
    mine->result = mine->body(mine->index, mine->argument);
    return NULL;
}

bool rig_threads(int count, rig_body body, void *argument) {
    pthread_t threads[256];
    share shares[256];
    bool good = true;
    for (int i = 0; i < count; i++) {
        shares[i] = (share){.body = body, .argument = argument, .index = i};
        if (pthread_create(&threads[i], NULL, run_share, &shares[i]) != 0) abort();
    }
    for (int i = 0; i < count; i++) {
        pthread_join(threads[i], NULL);
        if (shares[i].result != 0) fprintf(stderr, "thread %d: %d\n", i, shares[i].result);
        good = good && shares[i].result == 0;
    }
    return good;
}

/* --- the log ------------------------------------------------------------------------------------------------------ */

enum { LOG_LINES = 512, LOG_BYTES = 256 };
static struct {
    pthread_mutex_t mutex;
    int count;
    char lines[LOG_LINES][LOG_BYTES];
} seen = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static void take_line(void *user, sherd_log_level level, const char *line) {
    (void)user, (void)level;
    pthread_mutex_lock(&seen.mutex);
    if (seen.count < LOG_LINES) snprintf(seen.lines[seen.count++], LOG_BYTES, "%s", line);
    pthread_mutex_unlock(&seen.mutex);
}

void rig_log_start(void) { sherd_log_set(take_line, NULL, SHERD_LOG_DEBUG); }

int rig_log_count(const char *containing) {
    int count = 0;
    pthread_mutex_lock(&seen.mutex);
    for (int i = 0; i < seen.count; i++) count += strstr(seen.lines[i], containing) != NULL;
    pthread_mutex_unlock(&seen.mutex);
    return count;
}

double rig_cpu_ms(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1e3 +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-3;
}

/* --- raw sockets -------------------------------------------------------------------------------------------------- */

int rig_connect(int32_t port) {
    const struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const struct timeval patience = {.tv_sec = 10};
    int made = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(made, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    setsockopt(made, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    if (connect(made, (const struct sockaddr *)&address, sizeof address) == 0) return made;
    close(made);
    return -1;
}

bool rig_send(int socket, const void *bytes, size_t count) {
    return send(socket, bytes, count, MSG_NOSIGNAL) == (ssize_t)count;
}

bool rig_receive(int socket, void *bytes, size_t count) {
    return recv(socket, bytes, count, MSG_WAITALL) == (ssize_t)count;
}

bool rig_is_closed(int socket, double seconds) {
    char bytes[4096];
    double end_ms = shd_clock_ms() + 1000 * seconds;
    for (;;) {
        double left_ms = end_ms - shd_clock_ms();
        struct pollfd polled = {.fd = socket, .events = POLLIN};
        if (poll(&polled, 1, left_ms > 0 ? (int)left_ms + 1 : 0) == 0) return false;
        if (recv(socket, bytes, sizeof bytes, 0) <= 0) return true;
    }
}

bool rig_greet(rig_member *member, int32_t port, const char *secret, const char *job) {
    const shd_store_secret made = rig_secret(secret);
    uint8_t nonce[SHD_STORE_NONCE_BYTES], hello[SHD_STORE_HELLO_BYTES], welcome[SHD_STORE_WELCOME_BYTES];
    if (shd_store_keys_init(&made, job, &member->keys) != SHERD_OK) return false;
    member->socket = rig_connect(port);
    randombytes_buf(nonce, sizeof nonce);
    shd_store_write_hello(hello, &member->keys, nonce);
    return member->socket >= 0 && rig_send(member->socket, hello, sizeof hello) &&
           rig_receive(member->socket, welcome, sizeof welcome) &&
           shd_store_read_welcome(welcome, &member->keys, nonce, &member->line) == SHD_STORE_WELCOME;
}

size_t rig_frame(rig_member *member, const shd_store_request *request, uint8_t *wire) {
    size_t body_bytes = shd_store_request_bytes(request);
    uint8_t *frame = malloc(body_bytes + SHD_STORE_AROUND_BYTES);
    shd_store_write_request(frame + SHD_STORE_BODY_AT, request);
    shd_store_seal(&member->line, frame, body_bytes);
    memcpy(wire, frame + SHD_STORE_NUMBER_BYTES, shd_store_sent_bytes(body_bytes));
    free(frame);
    return shd_store_sent_bytes(body_bytes);
}

bool rig_answer(rig_member *member, shd_store_reply *reply, uint8_t *body) {
    uint8_t frame[SHD_STORE_FIXED_BYTES + 1024 + SHD_STORE_AROUND_BYTES];
    if (!rig_receive(member->socket, frame + SHD_STORE_NUMBER_BYTES, SHD_STORE_LENGTH_BYTES)) return false;
    size_t bytes = shd_store_read_length(frame + SHD_STORE_NUMBER_BYTES);
    if (bytes > SHD_STORE_FIXED_BYTES + 1024) return false;
    if (!rig_receive(member->socket, frame + SHD_STORE_BODY_AT, bytes + SHD_STORE_TAG_BYTES)) return false;
    if (!shd_store_open(&member->line, frame, bytes)) return false;
    memcpy(body, frame + SHD_STORE_BODY_AT, bytes);
    return shd_store_read_reply(body, bytes, reply);
}

bool rig_join_by_hand(rig_member *member) {
    uint8_t wire[SHD_STORE_FIXED_BYTES + SHD_STORE_AROUND_BYTES], body[2048];
    shd_store_reply reply;
    size_t bytes = rig_frame(member, &(shd_store_request){.op = SHD_STORE_JOIN}, wire);
    return rig_send(member->socket, wire, bytes) && rig_answer(member, &reply, body) && reply.status == SHD_STORE_DONE;
}
