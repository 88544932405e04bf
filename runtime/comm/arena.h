/* Memory that processes share: an anonymous file without a name, so that nothing is left of it when its last user is
 * gone, however that user went. */
#ifndef SHD_COMM_ARENA_H
#define SHD_COMM_ARENA_H

#include <sherd/status.h>
#include <stdint.h>

/* Makes a zeroed file of `bytes` (> 0), its memory reserved now and its size sealed, so that no later touch can fault.
 * `name` is for /proc only. The caller closes *fd. Fails: MEMORY. */
sherd_status shd_arena_create(const char *name, int64_t bytes, int *fd);

/* True when `fd` is such a file of that size. */
bool shd_arena_is(int fd, int64_t bytes);

/* Maps it; the mapping outlives the descriptor. Unmap with munmap. Fails: MEMORY. */
sherd_status shd_arena_map(int fd, int64_t bytes, bool writable, void **out);

#endif
