/* How far long work has come, for whoever shows it, and may stop it. */
#ifndef SHD_IO_ADVANCE_H
#define SHD_IO_ADVANCE_H

#include <sherd/status.h>
#include <stdbool.h>
#include <stdint.h>

/* `moved` is called now and then, on the thread that works, with what is done and what there is to do, in bytes. False:
 * the work is to end, and leave nothing behind. */
typedef struct shd_advance {
    bool (*moved)(void *user, int64_t done_bytes, int64_t all_bytes);
    void *user;
} shd_advance;

/* `advance` may be NULL. Fails: STATE when the work is to end. */
sherd_status shd_advance_tell(const shd_advance *advance, int64_t done_bytes, int64_t all_bytes);

#endif
