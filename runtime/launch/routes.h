/* Where the output of each rank of this host goes: torchrun's --redirects, --tee and --local-ranks-filter.
 *
 * Streams are torchrun's numbers, 0 none, 1 stdout, 2 stderr, 3 both: one number for all ranks, or "0:1,2:3", by local
 * rank, where a rank that is not named has none. */
#ifndef SHD_LAUNCH_ROUTES_H
#define SHD_LAUNCH_ROUTES_H

#include <sherd/status.h>
#include <stdbool.h>
#include <stdint.h>

enum { SHD_STREAM_OUT, SHD_STREAM_ERR, SHD_STREAMS };

typedef struct shd_route {
    bool taken; /* the rank writes into a pipe; else it has the launcher's own */
    bool filed; /* it goes to the file of the stream */
    bool shown; /* and to the launcher's stream of that name, line by line */
} shd_route;

typedef struct shd_routes {
    int32_t rank_count;
    shd_route (*ranks)[SHD_STREAMS]; /* one pair a local rank */
} shd_routes;

/* `redirects`, `tee` and `filter` ("0,3") as given, or NULL. Fails: ARGUMENT, naming the option and what it may be; MEMORY. */
sherd_status shd_routes_init(shd_routes *routes, int32_t rank_count, const char *redirects, const char *tee,
                             const char *filter);
/* All that ranks write is filed and shown. Fails: MEMORY. */
sherd_status shd_routes_init_all(shd_routes *routes, int32_t rank_count);
/* Accepts a zeroed value. */
void shd_routes_fini(shd_routes *routes);
/* Whether any stream is taken, or filed. */
bool shd_routes_take(const shd_routes *routes);
bool shd_routes_file(const shd_routes *routes);

#endif
