#include "runtime/watch/stack.h"

#include "runtime/base/clock.h"
#include "runtime/comm/standing.h"

#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#ifdef SHD_HAS_UNWIND
#define UNW_LOCAL_ONLY
#include <libunwind.h>

static void name_frame(unw_cursor_t *cursor, shd_stack *out) {
    char name[SHD_STACK_NAME_BYTES - 20] = "?";
    unw_word_t offset = 0;
    /* -UNW_ENOMEM: cut, which is as good. */
    int status = unw_get_proc_name(cursor, name, sizeof name, &offset);
    if (status && status != -UNW_ENOMEM) snprintf(name, sizeof name, "?");
    snprintf(out->frames[out->count++], SHD_STACK_NAME_BYTES, "%s+0x%lx", name, (unsigned long)offset);
}

void shd_stack_take(shd_stack *out) {
    unw_context_t context;
    unw_cursor_t cursor;
    out->count = 0;
    if (unw_getcontext(&context) || unw_init_local(&cursor, &context)) return;
    while (out->count < SHD_STACK_FRAMES && unw_step(&cursor) > 0) name_frame(&cursor, out);
}

void shd_stack_take_at(void *context, shd_stack *out) {
    unw_cursor_t cursor;
    out->count = 0;
    if (unw_init_local2(&cursor, context, UNW_INIT_SIGNAL_FRAME)) return;
    do name_frame(&cursor, out);
    while (out->count < SHD_STACK_FRAMES && unw_step(&cursor) > 0);
}
#else
void shd_stack_take(shd_stack *out) { out->count = 0; }
void shd_stack_take_at(void *context, shd_stack *out) {
    (void)context;
    out->count = 0;
}
#endif

void shd_stack_join(const shd_stack *stack, char *out, size_t bytes) {
    size_t used = 0;
    for (int32_t i = 0; i < stack->count; i++) {
        size_t length = strlen(stack->frames[i]);
        if (used + length + 2 > bytes) break;
        memcpy(out + used, stack->frames[i], length);
        used += length;
        out[used++] = '\n';
    }
    out[used > 0 ? used - 1 : 0] = 0;
}

enum { LOOK_MS = 5 };

void shd_stack_ask(const shd_recorder *recorder, int32_t rank, double wait_ms) {
    shd_recorder_head head;
    shd_standing standing;
    char text[SHD_RECORDER_STACK_BYTES];
    const struct timespec nap = {.tv_nsec = LOOK_MS * 1000000L};
    if (!shd_recorder_look(recorder, rank, &head) || !head.stack_signal) return;
    shd_standing_look(head.pid, head.tid, head.born, &standing);
    if (standing.life != SHD_LIFE_RUNS && standing.life != SHD_LIFE_SLEEPS) return;
    if (syscall(SYS_tgkill, head.pid, head.tid, head.stack_signal)) return;
    double until_ms = shd_clock_ms() + wait_ms;
    while (!shd_recorder_stack(recorder, rank, text) && shd_clock_ms() < until_ms) nanosleep(&nap, NULL);
}

/* A line: "[<0>] futex_wait_queue+0x60/0x90". */
void shd_stack_read_kernel(int32_t pid, int32_t tid, shd_stack *out) {
    char path[64], line[200];
    out->count = 0;
    snprintf(path, sizeof path, "/proc/%d/task/%d/stack", pid, tid);
    FILE *file = fopen(path, "re");
    if (!file) return;
    while (out->count < SHD_STACK_FRAMES && fgets(line, sizeof line, file)) {
        const char *name = strchr(line, ']');
        name = name ? name + 1 + (name[1] == ' ') : line;
        line[strcspn(line, "\n")] = 0;
        snprintf(out->frames[out->count++], SHD_STACK_NAME_BYTES, "%.*s", SHD_STACK_NAME_BYTES - 1, name);
    }
    fclose(file);
}
