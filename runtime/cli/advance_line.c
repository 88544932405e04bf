#include "runtime/cli/advance_line.h"

#include "runtime/cli/progress.h"

#include <stdio.h>
#include <time.h>
#include <unistd.h>

static double now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

static void moved(void *user, int64_t done_bytes, int64_t all_bytes) {
    shd_advance_line *line = user;
    const double now = now_ms(), seconds = (now - line->start_ms) / 1e3;
    if (now - line->drawn_ms < 100 || all_bytes <= 0) return;
    char done[16], all[16], rate[16], left[16];
    shd_bytes_text((double)done_bytes, done);
    shd_bytes_text((double)all_bytes, all);
    shd_bytes_text(seconds > 0 ? (double)done_bytes / seconds : 0, rate);
    shd_time_text(done_bytes > 0 ? seconds * (double)(all_bytes - done_bytes) / (double)done_bytes : 0, left);
    fprintf(stderr, "\r\033[K%s %3.0f %%  %s of %s  %s/s  %s left", line->verb,
            100 * (double)done_bytes / (double)all_bytes, done, all, rate, left);
    line->drawn = true;
    line->drawn_ms = now;
}

void shd_advance_line_init(shd_advance_line *line, const char *verb) {
    *line = (shd_advance_line){.verb = verb, .start_ms = now_ms()};
    /* Short work is done before anything is seen of it. */
    line->drawn_ms = line->start_ms + 200;
    if (isatty(STDERR_FILENO)) line->advance = (shd_advance){.moved = moved, .user = line};
}

void shd_advance_line_end(shd_advance_line *line) {
    if (line->drawn) fprintf(stderr, "\r\033[K");
    line->drawn = false;
}
