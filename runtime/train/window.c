#include "runtime/train/window.h"

#include "runtime/base/arith.h"

#include <assert.h>

shd_window_run shd_window_next(shd_window *window) {
    if (window->count - window->start > window->context) {
        window->start = window->count - shd_max(1, window->context / 2);
        window->known = 0;
    }
    const int64_t first = window->start + window->known;
    assert(first < window->count);
    return (shd_window_run){
        .first = first, .past = window->known, .count = shd_min(window->longest_run, window->count - first)};
}

bool shd_window_add(shd_window *window, const shd_window_run *run) {
    window->known = run->past + run->count;
    return window->start + window->known == window->count;
}
