#include "runtime/watch/stack.h"

#include <stdio.h>
#include <string.h>

#ifdef SHD_HAS_UNWIND
#define UNW_LOCAL_ONLY
#include <libunwind.h>

void shd_stack_take(shd_stack *out) {
    unw_context_t context;
    unw_cursor_t cursor;
    out->count = 0;
    if (unw_getcontext(&context) || unw_init_local(&cursor, &context)) return;
    while (out->count < SHD_STACK_FRAMES && unw_step(&cursor) > 0) {
        char name[SHD_STACK_NAME_BYTES - 12] = "?";
        unw_word_t offset = 0;
        /* -UNW_ENOMEM: cut, which is as good. */
        int status = unw_get_proc_name(&cursor, name, sizeof name, &offset);
        if (status && status != -UNW_ENOMEM) snprintf(name, sizeof name, "?");
        snprintf(out->frames[out->count++], SHD_STACK_NAME_BYTES, "%s+0x%lx", name, (unsigned long)offset);
    }
}
#else
void shd_stack_take(shd_stack *out) { out->count = 0; }
#endif

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
