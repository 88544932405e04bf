/* The functions that a thread is in. */
#ifndef SHD_WATCH_STACK_H
#define SHD_WATCH_STACK_H

#include "runtime/comm/recorder.h"

#include <stddef.h>
#include <stdint.h>

enum { SHD_STACK_FRAMES = 24, SHD_STACK_NAME_BYTES = 80 };

typedef struct shd_stack {
    int32_t count;
    char frames[SHD_STACK_FRAMES][SHD_STACK_NAME_BYTES]; /* "shd_comm_pause+0x12", innermost first */
} shd_stack;

/* Of the calling thread, from its caller on. Without libunwind in the build: empty. */
void shd_stack_take(shd_stack *out);

/* The same of the code that a signal has interrupted; `context` is the handler's third argument. It may take locks of the
 * loader and memory of libunwind's: for processes that are about to end. */
void shd_stack_take_at(void *context, shd_stack *out);
/* Frames as lines, as many as there is room for. */
void shd_stack_join(const shd_stack *stack, char *out, size_t bytes);

/* Asks a rank that runs or sleeps for its stack, and waits up to `wait_ms` for the answer; nothing where it cannot be
 * asked. The answer is in its recorder. */
void shd_stack_ask(const shd_recorder *recorder, int32_t rank, double wait_ms);

/* The kernel's side of another thread, where the kernel shows it (to root): empty otherwise. */
void shd_stack_read_kernel(int32_t pid, int32_t tid, shd_stack *out);

#endif
