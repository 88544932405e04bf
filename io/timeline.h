/* A trace of what ran when, in the JSON format of Chrome's traces, which ui.perfetto.dev and chrome://tracing open.
 *
 * It is built in memory and written at once, complete or not at all. Times are nanoseconds of any clock, the same for all;
 * the file has microseconds from the first of them on. Slices of one track do not overlap, or lie within each other. */
#ifndef SHD_IO_TIMELINE_H
#define SHD_IO_TIMELINE_H

#include "io/text.h"

#include <sherd/status.h>
#include <stdint.h>

typedef struct shd_timeline {
    shd_text text;
    int64_t origin_ns; /* time 0 of the file */
} shd_timeline;

enum { SHD_TIMELINE_TRACKS = 16 }; /* of a process, at most */

/* Something that ran. What is negative, and a NULL text, is not part of it. */
typedef struct shd_timeline_slice {
    const char *name;
    const char *category; /* plain ASCII: for filters of viewers */
    int32_t process, track;
    int64_t started_ns, ended_ns;
    const char *unit;
    int64_t micro_step, bytes, sequence;
    int64_t waited_ns; /* between being issued and started */
} shd_timeline_slice;

/* Begins an empty trace. */
shd_timeline shd_timeline_make(int64_t origin_ns);
/* Names a track of a process, and the process; they are shown in the order of their numbers. */
void shd_timeline_add_track(shd_timeline *timeline, int32_t process, const char *process_name, int32_t track,
                            const char *name);
void shd_timeline_add_slice(shd_timeline *timeline, const shd_timeline_slice *slice);
/* Writes it to `path`, in place of an older one; `about` is a JSON object. Releases what the trace holds, also when it
 * fails. Fails: IO, MEMORY (also of what was added). */
sherd_status shd_timeline_write(shd_timeline *timeline, const char *path, const char *about);
/* Releases it unwritten. */
void shd_timeline_drop(shd_timeline *timeline);

#endif
