#include "runtime/cli/advance_line.h"

#include "runtime/cli/options.h"
#include "runtime/cli/progress.h"
#include "runtime/cli/verdict.h"

#include <signal.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t stop_signal; /* 0: none has come */

static double now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

static void draw(shd_advance_line *line, int64_t done_bytes, int64_t all_bytes) {
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

static bool moved(void *user, int64_t done_bytes, int64_t all_bytes) {
    shd_advance_line *line = user;
    if (line->shows) draw(line, done_bytes, all_bytes);
    return stop_signal == 0;
}

void shd_advance_line_init(shd_advance_line *line, const char *verb) {
    *line = (shd_advance_line){.verb = verb, .shows = isatty(STDERR_FILENO) == 1, .start_ms = now_ms()};
    line->advance = (shd_advance){.moved = moved, .user = line};
    /* Short work is done before anything is seen of it. */
    line->drawn_ms = line->start_ms + 200;
}

void shd_advance_line_end(shd_advance_line *line) {
    if (line->drawn) fprintf(stderr, "\r\033[K");
    line->drawn = false;
}

static void take_signal(int signal) { stop_signal = signal; }

void shd_advance_line_hold_signals(void) {
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
    /* One only: a second one ends what does not end by itself. */
    const struct sigaction action = {.sa_handler = take_signal, .sa_flags = (int)SA_RESETHAND | SA_RESTART};
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
        struct sigaction before;
        /* nohup and background jobs have them ignored. */
        if (sigaction(signals[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN)
            sigaction(signals[i], &action, NULL);
    }
}

int shd_advance_line_exit_code(sherd_status status) {
    if (status != SHERD_OK) shd_say_error("%s", sherd_last_error());
    return status == SHERD_STATE && stop_signal ? SHD_EXIT_SIGNAL + stop_signal : shd_status_exit_code(status);
}
