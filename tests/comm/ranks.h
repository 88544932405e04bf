/* Ranks for tests: a body run by N threads of this process, or by N forked processes. */
#ifndef TESTS_COMM_RANKS_H
#define TESTS_COMM_RANKS_H

#include "runtime/comm/comm.h"

enum { RANKS_MAX = SHD_COMM_MAX_RANKS, RANKS_TEXT = 512 };

/* What one rank does; 0 is success, anything else is the test's own code (below 100). `argument` is shared by threads,
 * copied by fork. */
typedef int (*rank_fn)(int32_t rank, int32_t world_size, void *argument);

typedef enum rank_style { AS_THREADS, AS_PROCESSES } rank_style;

/* How each rank ended, and what it left as its words. */
typedef struct ranks_result {
    int code[RANKS_MAX];              /* the body's value; 128 + N when signal N ended the process; 127 when it hung */
    char text[RANKS_MAX][RANKS_TEXT]; /* the rank's last error when its body returned */
    double ended_ms[RANKS_MAX];       /* since the start */
} ranks_result;

/* Runs `body` on every rank and waits for all, at most `limit_s` seconds with processes (then they are killed). */
ranks_result ranks_run(rank_style style, int32_t world_size, rank_fn body, void *argument, double limit_s);

/* True when every rank ended with 0. */
bool ranks_all_ok(const ranks_result *result, int32_t world_size);

/* A rendezvous name of this process and call that nobody else has. */
const char *ranks_new_name(char *room, int room_bytes);

/* A config with short time-outs. */
shd_comm_config ranks_config(int32_t rank, int32_t world_size, const char *name, int64_t exported_bytes);

#endif
