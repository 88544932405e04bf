/* Dumps of made-up ranks, and folders for them. */
#ifndef TESTS_WATCH_MADE_DUMPS_H
#define TESTS_WATCH_MADE_DUMPS_H

#include "runtime/watch/dumps.h"

enum { DUMPS_MAX_RANKS = 8, DUMPS_STEPS = 5, DUMPS_STEP_EVENTS = 5 };

/* All ranks have done the same in DUMPS_STEPS steps, of a DATA, FORWARD, REDUCE, BACKWARD and EXCHANGE each; now they are
 * between steps. Lives until the test ends. */
typedef struct made_dumps {
    shd_dumps dumps;
    shd_rank_dump ranks[DUMPS_MAX_RANKS];
    shd_dump_event events[DUMPS_MAX_RANKS][DUMPS_STEPS * DUMPS_STEP_EVENTS];
} made_dumps;
void dumps_make(made_dumps *made, int32_t world_size);

/* The rank waits in `where`, or does it. */
void dumps_wait(made_dumps *made, int32_t rank, const char *where);
void dumps_work(made_dumps *made, int32_t rank, const char *life, const char *where);

/* Of rank `rank` the event that is collective `number`. */
shd_dump_event *dumps_collective(made_dumps *made, int32_t rank, int64_t number);

/* A new folder that is gone when the test's process is; files in it. */
const char *dumps_folder(void);
void dumps_write(const char *folder, const char *name, const char *text);
/* Whole, terminated; NULL: no such file. The caller frees it. */
char *dumps_read(const char *folder, const char *name);

#endif
