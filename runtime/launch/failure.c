#include "runtime/launch/failure.h"

#include "runtime/base/memory.h"
#include "runtime/base/status.h"
#include "runtime/launch/ends.h"
#include "runtime/launch/json_file.h"
#include "runtime/launch/screen.h"
#include "runtime/launch/tail.h"

#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* Columns that people read; how much of a message they do in a terminal. */
enum { COLUMNS = 80, MESSAGE_LINES = 12, RANKS_BYTES = 33 };

static int32_t local_rank(const shd_failure *failure) {
    return failure->report->failed_rank - failure->output->first_rank;
}

bool shd_failure_collect(shd_failure *failure, const shd_launch_report *report, const shd_output *output) {
    *failure = (shd_failure){.report = report, .output = output, .step = -1};
    int32_t rank = local_rank(failure);
    if (report->failed_rank < 0 || rank < 0 || rank >= output->rank_count || !output->ends) return false;
    char path[PATH_MAX];
    bool found = false;
    shd_output_path(output, rank, "error.json", path);
    /* One that cannot be read says nothing. */
    if (shd_error_file_read(path, &found, &failure->error) != SHERD_OK || !found) failure->error = (shd_error_file){0};
    if (output->tee) failure->last_lines = shd_tee_last_lines(output->tee, rank, SHD_TAIL_LINES);
    return true;
}

void shd_failure_fini(shd_failure *failure) {
    shd_error_file_fini(&failure->error);
    shd_free(failure->last_lines);
    failure->last_lines = NULL;
}

/* A text that grows; NULL once memory is out. */
typedef struct builder {
    char *text;
    size_t used, room;
} builder;

static bool reserve(builder *out, size_t bytes) {
    if (!out->text) return false;
    if (out->used + bytes <= out->room) return true;
    size_t room = 2 * (out->used + bytes);
    char *text = shd_realloc(out->text, room);
    if (!text) shd_free(out->text);
    out->text = text;
    out->room = room;
    return text;
}

static void add(builder *out, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void add(builder *out, const char *format, ...) {
    char line[512];
    va_list arguments;
    va_start(arguments, format);
    int bytes = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    size_t count = bytes < 0 ? 0 : (size_t)bytes < sizeof line ? (size_t)bytes : sizeof line - 1;
    if (!reserve(out, count + 1)) return;
    memcpy(out->text + out->used, line, count + 1);
    out->used += count;
}

/* The line after the one at `at`. */
static const char *next_line(const char *at) {
    at += strcspn(at, "\n");
    return at + (*at == '\n');
}

static int count_lines(const char *lines) {
    int count = 0;
    for (const char *at = lines; *at; at = next_line(at)) count++;
    return count;
}

/* Lines of a rank, as they can be shown, the last `most` or the first. */
static void add_lines(builder *out, const char *lines, int most, bool last) {
    int count = count_lines(lines), at_line = 0;
    int from = last && count > most ? count - most : 0;
    for (const char *at = lines; *at; at = next_line(at), at_line++) {
        size_t bytes = strcspn(at, "\n");
        if (at_line >= from && at_line < from + most && reserve(out, shd_screen_room(bytes) + 16)) {
            add(out, "    | ");
            out->used += shd_screen_plain(at, bytes, out->text + out->used);
            add(out, "\n");
        }
    }
    if (!last && count > most) add(out, "    | … %d more lines\n", count - most);
}

static void format_seconds(double ms, char text[16]) {
    double seconds = fabs(ms) / 1e3;
    snprintf(text, 16, seconds < 10 ? "%.2f s" : "%.0f s", seconds);
}

static void add_place(const shd_failure *failure, builder *out) {
    const shd_rank_end *end = &failure->output->ends[local_rank(failure)];
    char lasted[16];
    format_seconds(end->ended_ms - end->began_ms, lasted);
    add(out, "  when      ");
    if (failure->step >= 0) add(out, "%s, after step %" PRId64 ", ", failure->phase, failure->step);
    if (failure->step < 0 && failure->phase) add(out, "%s, ", failure->phase);
    add(out, "%s after its start", lasted);
    if (failure->report->attempt > 0) add(out, ", restart %d", failure->report->attempt);
    add(out, "\n");
    if (failure->host) add(out, "  host      %.60s\n", failure->host);
    if (failure->noticed) add(out, "  noticed   %.400s\n", failure->noticed);
}

/* Whether all that the rank wrote are lines of ours, which are on the terminal, as they come from few ranks. */
static bool is_said(const shd_failure *failure) {
    const char *own = failure->output->own_prefix;
    for (const char *at = failure->last_lines; own && *at; at = next_line(at))
        if (strncmp(at, own, strlen(own))) return false;
    return own;
}

static void add_said(const shd_failure *failure, builder *out) {
    const char *message = failure->error.message;
    if (message && !(failure->cause && strstr(failure->cause, message))) {
        add(out, "  it said\n");
        add_lines(out, message, MESSAGE_LINES, false);
    }
    if (!failure->last_lines || is_said(failure)) return;
    char path[PATH_MAX];
    shd_output_path(failure->output, local_rank(failure), "", path);
    add(out, "  its last lines%s", failure->output->log_dir ? ", of " : "\n");
    if (failure->output->log_dir) add(out, "%s\n", path);
    add_lines(out, failure->last_lines, SHD_FAILURE_LINES, true);
}

/* Whether two ends are one row of the table. */
static bool is_alike(const shd_failure *failure, const shd_rank_end *a, const shd_rank_end *b) {
    shd_end_kind kind = shd_end_kind_of(a, failure->peer_failed_code);
    return kind == shd_end_kind_of(b, failure->peer_failed_code) && a->exit_code == b->exit_code &&
           a->signal == b->signal && a->told == b->told;
}

/* The row of all ranks that ended as `first` did, which is the first of them. */
static void add_row(const shd_failure *failure, int32_t first, int32_t *ranks, builder *out) {
    const shd_output *output = failure->output;
    const shd_rank_end *ends = output->ends;
    double failed_ms = ends[local_rank(failure)].ended_ms, low = INFINITY, high = -INFINITY;
    int32_t count = 0;
    for (int32_t rank = first; rank < output->rank_count; rank++) {
        if (rank == local_rank(failure) || !is_alike(failure, &ends[first], &ends[rank])) continue;
        ranks[count++] = output->first_rank + rank;
        low = fmin(low, ends[rank].ended_ms - failed_ms);
        high = fmax(high, ends[rank].ended_ms - failed_ms);
    }
    char who[RANKS_BYTES], what[64], when[48] = "", from[16], to[16];
    shd_ranks_text(ranks, count, who, sizeof who);
    shd_end_text(&ends[first], shd_end_kind_of(&ends[first], failure->peer_failed_code), what);
    format_seconds(low, from);
    format_seconds(high, to);
    if (ends[first].ended && low < 0 && high >= 0)
        snprintf(when, sizeof when, "%s before to %s after", from, to);
    else if (ends[first].ended && low < 0)
        snprintf(when, sizeof when, "%s before", from);
    else if (ends[first].ended)
        snprintf(when, sizeof when, "%s after", to);
    add(out, "    %-14s  %-22s %s\n", who, what, when);
}

static void add_others(const shd_failure *failure, builder *out) {
    const shd_output *output = failure->output;
    if (output->rank_count < 2) return;
    int32_t *ranks = shd_alloc((size_t)output->rank_count, sizeof *ranks);
    if (!ranks) return;
    add(out, "  the other ranks%s\n", failure->report->world_size > output->rank_count ? " of this host" : "");
    for (int32_t rank = 0; rank < output->rank_count; rank++) {
        bool is_first = rank != local_rank(failure);
        for (int32_t before = 0; before < rank && is_first; before++)
            is_first = before == local_rank(failure) || !is_alike(failure, &output->ends[before], &output->ends[rank]);
        if (is_first) add_row(failure, rank, ranks, out);
    }
    shd_free(ranks);
}

char *shd_failure_text(const shd_failure *failure) {
    builder out = {.text = shd_alloc(1, 4096), .room = 4096};
    add_place(failure, &out);
    add_said(failure, &out);
    add_others(failure, &out);
    return out.text;
}

void shd_failure_text_free(char *text) { shd_free(text); }

static json_t *describe_signal(int signal) {
    const char *name = signal ? sigabbrev_np(signal) : NULL;
    return signal ? name ? json_string(name) : json_integer(signal) : json_null();
}

static json_t *describe_end(const shd_failure *failure, int32_t rank) {
    static const char *const words[] = {"not started", "done",          "failed", "lost another rank",
                                        "killed",      "ended as told", "failed", "killed by launcher"};
    const shd_output *output = failure->output;
    const shd_rank_end *end = &output->ends[rank];
    double after_ms = end->ended_ms - output->ends[local_rank(failure)].ended_ms;
    return json_pack("{s: i, s: i, s: s, s: o, s: o, s: o, s: o}", "rank", output->first_rank + rank, "pid",
                     (int)end->pid, "end", words[shd_end_kind_of(end, failure->peer_failed_code)], "exit_code",
                     end->ended && !end->signal ? json_integer(end->exit_code) : json_null(), "signal",
                     describe_signal(end->signal), "told", describe_signal(end->told), "seconds_after_failure",
                     end->ended ? json_real(round(after_ms) / 1e3) : json_null());
}

static json_t *split_lines(const char *lines) {
    json_t *list = json_array();
    while (lines && *lines) {
        size_t bytes = strcspn(lines, "\n");
        json_array_append_new(list, json_stringn(lines, bytes));
        lines += bytes + (lines[bytes] == '\n');
    }
    return list;
}

sherd_status shd_failure_write(const shd_failure *failure, const char *path) {
    const shd_launch_report *report = failure->report;
    const shd_output *output = failure->output;
    const shd_rank_end *end = &output->ends[local_rank(failure)];
    char logs[PATH_MAX];
    shd_output_path(output, local_rank(failure), "", logs);
    json_t *ranks = json_array();
    for (int32_t rank = 0; rank < output->rank_count; rank++) json_array_append_new(ranks, describe_end(failure, rank));
    json_t *root = json_pack(
        "{s: I, s: i, s: i, s: i, s: o, s: i, s: o, s: o, s: b, s: b}", "time", (json_int_t)time(NULL), "attempt",
        (int)report->attempt, "world_size", (int)report->world_size, "rank", (int)report->failed_rank, "host",
        shd_json_file_text(failure->host), "pid", (int)report->failed_pid, "exit_code",
        report->signal ? json_null() : json_integer(report->exit_code), "signal", describe_signal(report->signal),
        "lost_another_rank", (int)report->blames_peer, "ended_too_early", (int)report->early_exit);
    json_t *more = json_pack(
        "{s: o, s: o, s: o, s: o, s: o, s: o, s: o, s: o, s: o}", "seconds",
        json_real(round(end->ended_ms - end->began_ms) / 1e3), "step",
        failure->step >= 0 ? json_integer(failure->step) : json_null(), "phase", shd_json_file_text(failure->phase),
        "cause", shd_json_file_text(failure->cause), "noticed", shd_json_file_text(failure->noticed), "error",
        shd_json_file_text(failure->error.message), "callstack", shd_json_file_text(failure->error.callstack), "logs",
        shd_json_file_text(output->log_dir ? logs : NULL), "last_lines", split_lines(failure->last_lines));
    if (root && (!more || json_object_update(root, more) < 0 || json_object_set(root, "ranks", ranks) < 0)) {
        json_decref(root);
        root = NULL;
    }
    json_decref(more);
    json_decref(ranks);
    return shd_json_file_write(path, root);
}
