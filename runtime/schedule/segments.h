/* Each buffer's bytes, cut wherever an access of any rank begins or ends, so that an access touches whole segments. */
#ifndef SHD_SCHEDULE_SEGMENTS_H
#define SHD_SCHEDULE_SEGMENTS_H

#include "runtime/schedule/host.h"

typedef struct shd_cuts {
    int64_t *bytes; /* [count]: rising; segment i is [bytes[i], bytes[i + 1]) */
    int32_t count, capacity;
} shd_cuts;

typedef struct shd_segments {
    int32_t buffer_count;
    shd_cuts *buffers;
} shd_segments;

/* Programs and plans must have been checked. Fails: MEMORY; the segments are then empty. End with fini. */
sherd_status shd_segments_init(shd_segments *segments, const shd_host *host);
void shd_segments_fini(shd_segments *segments);

/* How many segments a buffer has. */
static inline int32_t shd_segments_count(const shd_segments *segments, int32_t buffer) {
    int32_t cuts = segments->buffers[buffer].count;
    return cuts > 0 ? cuts - 1 : 0;
}
/* The segment that begins at `byte`, which is a cut. */
int32_t shd_segments_find(const shd_segments *segments, int32_t buffer, int64_t byte);

#endif
