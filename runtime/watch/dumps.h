/* The dumps of a job's ranks, read back. Whatever stands in them was written by another program: it is checked. */
#ifndef SHD_WATCH_DUMPS_H
#define SHD_WATCH_DUMPS_H

#include <sherd/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SHD_DUMPS_MAX_RANKS = 4096, SHD_DUMPS_MAX_EVENTS = 1 << 20, SHD_DUMPS_NAME_BYTES = 64, SHD_DUMPS_FRAMES = 24 };

typedef struct shd_dump_event {
    int64_t step, bytes, collective; /* -1: none */
    int64_t queued_ns, started_ns, ended_ns;
    int32_t queue;
    char kind[SHD_DUMPS_NAME_BYTES]; /* "REDUCE" */
    char unit[SHD_DUMPS_NAME_BYTES]; /* "h.2"; "": none */
} shd_dump_event;

/* What a rank's dump says; `there` false: it has none. */
typedef struct shd_rank_dump {
    bool there;
    int32_t rank, written_by, pid,
        alarm_rank;                 /* written_by -1: the launcher, afterwards; -2: a visitor, while the job ran;
                                     * alarm_rank -1: there was none */
    int64_t now_ns, since_ns, step; /* step of its activity */
    char host[SHD_DUMPS_NAME_BYTES], life[16], activity[SHD_DUMPS_NAME_BYTES];
    char where_kind[16], where[256], alarm[800];
    int32_t frame_count;
    char stack[SHD_DUMPS_FRAMES][SHD_DUMPS_NAME_BYTES]; /* innermost first */
    shd_dump_event *events;                             /* [event_count], as they were issued */
    int64_t event_count;
} shd_rank_dump;

typedef struct shd_dumps {
    int32_t world_size, there; /* there: ranks that have a dump */
    shd_rank_dump *ranks;      /* [world_size] */
} shd_dumps;

/* Reads all rank-*.json of a folder. Owns: shd_dumps_destroy. Fails: IO (no such folder), DATA (no dump in it, one that is
 * damaged, or dumps of different jobs: the file is named), MEMORY. */
sherd_status shd_dumps_load(const char *dir, shd_dumps **out);
/* Accepts NULL. */
void shd_dumps_destroy(shd_dumps *dumps);

/* One dump, from its text; `name` is for messages. Owns: *out's events, shd_free. Fails: DATA, MEMORY. */
sherd_status shd_dump_parse(const char *text, size_t bytes, const char *name, int32_t *world_size, shd_rank_dump *out);

#endif
