/* How far long work has come, for whoever shows it. */
#ifndef SHD_IO_ADVANCE_H
#define SHD_IO_ADVANCE_H

#include <stddef.h>
#include <stdint.h>

/* `moved` is called now and then, on the thread that works, with what is done and what there is to do, in bytes. */
typedef struct shd_advance {
    void (*moved)(void *user, int64_t done_bytes, int64_t all_bytes);
    void *user;
} shd_advance;

/* `advance` may be NULL. */
static inline void shd_advance_tell(const shd_advance *advance, int64_t done_bytes, int64_t all_bytes) {
    if (advance && advance->moved) advance->moved(advance->user, done_bytes, all_bytes);
}

#endif
