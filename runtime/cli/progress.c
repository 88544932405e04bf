#include "runtime/cli/progress.h"

#include "runtime/cli/wrap.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* How much of the smoothed values a new step makes up once many are in. */
static const double smoothing = 0.05;
enum { REDRAW_MS = 100, FIELD_BYTES = 48, SUMMARY_BYTES = 1024 };
/* From so many steps, and seconds, of this run on the time left is told. */
enum { GUESS_STEPS = 5, GUESS_S = 1 };

/* Milliseconds of the monotonic clock. */
static double now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

void shd_bytes_text(double bytes, char text[16]) {
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    int unit = 0;
    while (bytes >= 1000 && unit < 4) {
        bytes /= 1024;
        unit++;
    }
    snprintf(text, 16, unit == 0 || bytes >= 99.95 ? "%.0f %s" : "%.1f %s", bytes, units[unit]);
}

void shd_time_text(double seconds, char text[16]) {
    int64_t whole = seconds < 0 || !isfinite(seconds) ? 0 : (int64_t)fmin(seconds + 0.5, 3.6e8);
    if (whole < 3600)
        snprintf(text, 16, "%d:%02d", (int)(whole / 60), (int)(whole % 60));
    else
        snprintf(text, 16, "%d:%02d:%02d", (int)(whole / 3600), (int)(whole / 60 % 60), (int)(whole % 60));
}

void shd_progress_init(shd_progress *progress, FILE *out, int64_t steps, int64_t every) {
    *progress = (shd_progress){.out = out,
                               .live = isatty(fileno(out)) == 1,
                               .steps = steps,
                               .every = every < 1 ? 1 : every,
                               .first_step = -1,
                               .start_ms = now_ms()};
    pthread_mutex_init(&progress->lock, NULL);
}

void shd_progress_fini(shd_progress *progress) { pthread_mutex_destroy(&progress->lock); }

/* Of the finite losses of steps that counted; there is none while smooth_weight is 0. */
static double smoothed_loss(const shd_progress *progress) { return progress->smooth_sum / progress->smooth_weight; }

/* Steps of this run, those that it has gone back behind included. */
static int64_t count_steps(const shd_progress *progress) {
    return progress->last.step - progress->first_step + progress->taken_back_count;
}

/* The line must not reach the last column: some terminals go on to the next row there. */
static int line_columns(FILE *out) {
    int columns = shd_terminal_columns(out);
    return columns > 0 ? columns - 1 : 79;
}

/* The fields in the order they are shown. */
typedef enum field { STEP, LOSS, SMOOTH, ACCURACY, GRAD, RATE, SPEED, MEMORY, LEFT, FIELDS } field;

static void write_fields(const shd_progress *progress, double at_ms, char fields[FIELDS][FIELD_BYTES]) {
    const shd_progress_row *row = &progress->last;
    char bytes[16], left[16] = "-";
    int64_t done = count_steps(progress);
    double spent_s = (at_ms - progress->start_ms) / 1e3;
    shd_bytes_text((double)row->peak_bytes, bytes);
    /* The first steps are slow, memory being touched for the first time: a guess from them alone would be absurd. */
    bool known = (done >= GUESS_STEPS && spent_s >= GUESS_S) || row->step == progress->steps;
    if (known) shd_time_text(spent_s / (double)done * (double)(progress->steps - row->step), left);
    snprintf(fields[STEP], FIELD_BYTES, "step %" PRId64 "/%" PRId64, row->step, progress->steps);
    snprintf(fields[LOSS], FIELD_BYTES, "loss %.4f", row->loss);
    fields[SMOOTH][0] = fields[ACCURACY][0] = 0;
    if (progress->smooth_weight > 0) snprintf(fields[SMOOTH], FIELD_BYTES, "smooth %.4f", smoothed_loss(progress));
    if (row->classified) snprintf(fields[ACCURACY], FIELD_BYTES, "accuracy %.1f%%", 100 * row->accuracy);
    if (row->skipped && row->loss_scale == 1)
        snprintf(fields[GRAD], FIELD_BYTES, "skipped");
    else if (row->skipped)
        snprintf(fields[GRAD], FIELD_BYTES, "skipped at scale %g", row->loss_scale);
    else
        snprintf(fields[GRAD], FIELD_BYTES, "grad %.3g", row->grad_norm);
    snprintf(fields[RATE], FIELD_BYTES, "lr %.2e", row->lr);
    snprintf(fields[SPEED], FIELD_BYTES, row->samples ? "%.0f samples/s" : "%.0f tok/s", progress->last_tokens_per_s);
    snprintf(fields[MEMORY], FIELD_BYTES, "%s/rank", bytes);
    snprintf(fields[LEFT], FIELD_BYTES, "left %s", left);
}

void shd_progress_format(const shd_progress *progress, double at_ms, int columns, char text[SHD_PROGRESS_BYTES]) {
    static const field dispensable[] = {RATE, MEMORY, GRAD, SMOOTH, SPEED, LEFT, ACCURACY, LOSS};
    enum { DISPENSABLE = sizeof dispensable / sizeof *dispensable };
    char fields[FIELDS][FIELD_BYTES];
    write_fields(progress, at_ms, fields);
    for (int left_out = 0; left_out <= DISPENSABLE; left_out++) {
        int length = -2;
        for (int i = 0; i < FIELDS; i++) length += *fields[i] ? (int)strlen(fields[i]) + 2 : 0;
        if (length <= columns || left_out == DISPENSABLE) break;
        *fields[dispensable[left_out]] = 0;
    }
    int used = 0;
    for (int i = 0; i < FIELDS; i++)
        if (*fields[i])
            used += snprintf(text + used, (size_t)(SHD_PROGRESS_BYTES - used), "%s%s", used ? "  " : "", fields[i]);
    if (columns >= 0 && columns < used) text[columns] = 0;
}

/* With the lock held. */
static void erase(shd_progress *progress) {
    if (!progress->drawn) return;
    fputs("\r\033[K", progress->out);
    fflush(progress->out);
    progress->drawn = false;
}
static void draw(shd_progress *progress, double at_ms) {
    shd_progress_format(progress, at_ms, line_columns(progress->out), progress->line);
    fprintf(progress->out, "\r%s\033[K", progress->line);
    fflush(progress->out);
    progress->drawn = true;
    progress->drawn_ms = at_ms;
}

void shd_progress_start(shd_progress *progress, int64_t step) {
    pthread_mutex_lock(&progress->lock);
    progress->first_step = step;
    progress->start_ms = now_ms();
    pthread_mutex_unlock(&progress->lock);
}

static void take(shd_progress *progress, const shd_progress_row *row) {
    if (progress->first_step < 0) progress->first_step = row->step - 1;
    if (row->step <= progress->last.step) progress->taken_back_count += progress->last.step - row->step + 1;
    progress->last = *row;
    if (isfinite(row->loss) && !row->skipped) {
        progress->smooth_sum += smoothing * (row->loss - progress->smooth_sum);
        progress->smooth_weight += smoothing * (1 - progress->smooth_weight);
    }
    double speed_share = progress->last_tokens_per_s > 0 ? 0.1 : 1;
    progress->last_tokens_per_s += speed_share * (row->tokens_per_s - progress->last_tokens_per_s);
    progress->skipped_count += row->skipped;
    if (row->validated) {
        progress->last_validation = row->validation_loss;
        progress->last_validation_step = row->step;
        progress->last_validation_accuracy = row->validation_accuracy;
    }
}

void shd_progress_step(shd_progress *progress, const shd_progress_row *row) {
    pthread_mutex_lock(&progress->lock);
    take(progress, row);
    double at_ms = now_ms();
    bool last = row->step == progress->steps, validated = row->validated;
    if (progress->live && (last || at_ms - progress->drawn_ms >= REDRAW_MS)) draw(progress, at_ms);
    if (!progress->live && (last || validated || row->step % progress->every == 0)) {
        char text[SHD_PROGRESS_BYTES];
        shd_progress_format(progress, at_ms, SHD_PROGRESS_BYTES - 1, text);
        fprintf(progress->out, "%s", text);
        if (validated) fprintf(progress->out, "  validation %.4f", row->validation_loss);
        if (validated && row->classified) fprintf(progress->out, " accuracy %.1f%%", 100 * row->validation_accuracy);
        fputc('\n', progress->out);
        fflush(progress->out);
    }
    if (progress->live && validated) {
        erase(progress);
        fprintf(progress->out, "step %" PRId64 "/%" PRId64 "  validation loss %.4f", row->step, progress->steps,
                row->validation_loss);
        if (row->classified) fprintf(progress->out, " accuracy %.1f%%", 100 * row->validation_accuracy);
        fputc('\n', progress->out);
        draw(progress, at_ms);
    }
    pthread_mutex_unlock(&progress->lock);
}

void shd_progress_say(shd_progress *progress, FILE *out, const char *line) {
    pthread_mutex_lock(&progress->lock);
    bool again = progress->drawn;
    erase(progress);
    shd_print_line(out, line);
    fflush(out);
    if (again) draw(progress, now_ms());
    pthread_mutex_unlock(&progress->lock);
}

/* Adds to a text of SUMMARY_BYTES. */
static void add(char *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void add(char *text, const char *format, ...) {
    size_t used = strlen(text);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text + used, SUMMARY_BYTES - used, format, arguments);
    va_end(arguments);
}

static void write_summary(const shd_progress *progress) {
    char text[SUMMARY_BYTES] = "", spent[16];
    int64_t steps = count_steps(progress);
    bool validated = progress->last_validation_step > 0;
    shd_time_text((now_ms() - progress->start_ms) / 1e3, spent);
    add(text, "done: %" PRId64 " step%s in %s", steps, steps == 1 ? "" : "s", spent);
    if (progress->skipped_count > 0)
        add(text, ", %" PRId64 " of %" PRId64 " step%s skipped", progress->skipped_count, steps, steps == 1 ? "" : "s");
    if (progress->taken_back_count > 0) add(text, ", %" PRId64 " taken back", progress->taken_back_count);
    add(text, ", loss %.4f", progress->last.loss);
    if (progress->smooth_weight > 0) add(text, " (%.4f smoothed over this run)", smoothed_loss(progress));
    if (validated) add(text, ", validation loss %.4f", progress->last_validation);
    if (validated && progress->last.classified)
        add(text, " and accuracy %.1f%%", 100 * progress->last_validation_accuracy);
    if (validated) add(text, " after step %" PRId64, progress->last_validation_step);
    shd_print_line(progress->out, text);
}

void shd_progress_finish(shd_progress *progress, bool went_well) {
    pthread_mutex_lock(&progress->lock);
    if (progress->drawn) {
        draw(progress, now_ms());
        fputc('\n', progress->out);
        progress->drawn = false;
    }
    if (went_well && progress->last.step > 0) write_summary(progress);
    fflush(progress->out);
    pthread_mutex_unlock(&progress->lock);
}
