/* Ranks as threads of the test's process: the same session and shm code as between processes. */
#ifndef SHD_TESTS_SUPPORT_RANKS_H
#define SHD_TESTS_SUPPORT_RANKS_H

#include <sherd/sherd.h>
#include <stdbool.h>

enum { RANKS_MAX = 16 };

/* One rank's part; a non-zero return fails the job. Assertions do not reach the test from here: return a line number
 * instead. */
typedef int (*rank_fn)(void *user, const sherd_options *options);

/* Runs `body` on `world_size` threads, each with `options` and its own rank, all meeting under a fresh name. Returns 0,
 * or the first non-zero return by rank. */
int run_ranks(int world_size, const sherd_options *options, rank_fn body, void *user);

/* Ends the calling rank with the line of the failed expectation, for rank functions. */
#define EXPECT(condition)                                                                                              \
    do {                                                                                                               \
        if (!(condition)) return __LINE__;                                                                             \
    } while (0)

#endif
