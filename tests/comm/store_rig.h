/* What the tests of the rendezvous store share: servers here and in processes of their own, clients, threads, raw
 * sockets. */
#ifndef TESTS_COMM_STORE_RIG_H
#define TESTS_COMM_STORE_RIG_H

#include "runtime/comm/store.h"
#include "runtime/comm/store_wire.h"

#include <sys/types.h>

#define RIG_JOB    "job 1"
#define RIG_SECRET "the secret of these tests"

shd_store_secret rig_secret(const char *text);

/* A server at 127.0.0.1 on a free port; `limits` gives its limits, and may be NULL. Asserts success. */
shd_store_server *rig_serve(const shd_store_server_config *limits);
/* The same in a process of its own, which lives until it is killed. */
pid_t rig_serve_apart(int32_t *port);
/* Kills and reaps it. */
void rig_kill(pid_t server);

/* For 127.0.0.1; short time-outs. */
shd_store_config rig_config(int32_t port);
/* Asserts success. Main thread only. */
shd_store *rig_join(int32_t port);
/* The value as text that lives until the next call on this thread; asserts that it is there. */
const char *rig_text(shd_store *store, const char *key);

/* Runs `body` with 0 … count - 1 on as many threads; whether all returned 0. */
typedef int (*rig_body)(int index, void *argument);
bool rig_threads(int count, rig_body body, void *argument);

/* Lines of the log since rig_log_start, which makes this process count them. */
void rig_log_start(void);
int rig_log_count(const char *containing);

/* CPU time of the whole process, ms. */
double rig_cpu_ms(void);

/* A raw connection to 127.0.0.1, blocking, with a time-out of 10 s for each receive; -1 when it was refused. */
int rig_connect(int32_t port);
bool rig_send(int socket, const void *bytes, size_t count);
/* Receives all `count`; false when the other side has closed or is silent. */
bool rig_receive(int socket, void *bytes, size_t count);
/* Whether the other side closes within `seconds`, whatever it says before. */
bool rig_is_closed(int socket, double seconds);

/* A member by hand: hello, welcome, join. */
typedef struct rig_member {
    int socket;
    shd_store_keys keys;
    shd_store_line line;
} rig_member;
bool rig_greet(rig_member *member, int32_t port, const char *secret, const char *job);
bool rig_join_by_hand(rig_member *member);
/* The frame of a request as it goes over the wire, in `wire`; its bytes. */
size_t rig_frame(rig_member *member, const shd_store_request *request, uint8_t *wire);
/* Whether an answer comes, and its number. */
bool rig_answer(rig_member *member, shd_store_reply *reply, uint8_t *body);

#endif
