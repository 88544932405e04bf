/* The functions that a thread is in. */
#ifndef SHD_WATCH_STACK_H
#define SHD_WATCH_STACK_H

#include <stdint.h>

enum { SHD_STACK_FRAMES = 32, SHD_STACK_NAME_BYTES = 80 };

typedef struct shd_stack {
    int32_t count;
    char frames[SHD_STACK_FRAMES][SHD_STACK_NAME_BYTES]; /* "shd_comm_pause+0x12", innermost first */
} shd_stack;

/* Of the calling thread, from its caller on. Without libunwind in the build: empty. */
void shd_stack_take(shd_stack *out);

/* The kernel's side of another thread, where the kernel shows it (to root): empty otherwise. */
void shd_stack_read_kernel(int32_t pid, int32_t tid, shd_stack *out);

#endif
