#include "io/alerts.h"

#include "io/json_line.h"
#include "io/line_file.h"
#include "runtime/base/memory.h"
#include "runtime/base/status.h"

#include <string.h>
#include <time.h>

enum { HEAD_BYTES = 1200, UNIT_BYTES = 200, EXAMPLE_BYTES = 200, FILE_BYTES = 4096 };

static double unix_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Every character of a text may need a second one. */
static size_t find_capacity(const shd_alert *alert) {
    size_t bytes = HEAD_BYTES;
    for (int64_t i = 0; i < alert->example_count; i++)
        bytes += EXAMPLE_BYTES + 2 * strnlen(alert->example(alert->user, i).file, FILE_BYTES);
    return bytes;
}

static void add_example(shd_json_line *line, const shd_alert_example *example) {
    shd_json_line_open(line, NULL, '{');
    shd_json_line_integer(line, "number", example->number);
    shd_json_line_integer(line, "rank", example->rank);
    shd_json_line_integer(line, "micro_step", example->micro_step);
    shd_json_line_text(line, "file", example->file, FILE_BYTES);
    shd_json_line_integer(line, example->token >= 0 ? "sequence" : "row", example->index);
    if (example->token >= 0) shd_json_line_integer(line, "token", example->token);
    shd_json_line_close(line, '}');
}

static void format(const shd_alert *alert, shd_json_line *line) {
    shd_json_line_open(line, NULL, '{');
    shd_json_line_thousandths(line, "time", unix_seconds());
    shd_json_line_integer(line, "step", alert->step);
    shd_json_line_text(line, "kind", alert->outlier ? "outlier" : "nonfinite", UNIT_BYTES);
    shd_json_line_text(line, "action", alert->action, UNIT_BYTES);
    shd_json_line_integer(line, "in_row", alert->in_row);
    shd_json_line_real(line, "loss", alert->loss, 17);
    shd_json_line_real(line, "grad_norm", alert->grad_norm, 17);
    shd_json_line_real(line, "param_norm", alert->param_norm, 17);
    if (alert->outlier) shd_json_line_real(line, "loss_zscore", alert->loss_zscore, 9);
    if (alert->outlier) shd_json_line_real(line, "grad_norm_zscore", alert->grad_norm_zscore, 9);
    if (alert->rank >= 0) shd_json_line_integer(line, "rank", alert->rank);
    if (alert->rank >= 0) shd_json_line_integer(line, "micro_step", alert->micro_step);
    if (alert->unit) shd_json_line_text(line, "unit", alert->unit, UNIT_BYTES);
    shd_json_line_open(line, "batch", '[');
    for (int64_t i = 0; i < alert->example_count; i++) {
        const shd_alert_example example = alert->example(alert->user, i);
        add_example(line, &example);
    }
    shd_json_line_close(line, ']');
    shd_json_line_close(line, '}');
    shd_json_line_end(line);
}

sherd_status shd_alert_add(const char *dir, const shd_alert *alert) {
    size_t capacity = find_capacity(alert);
    char *bytes = shd_alloc(capacity, 1);
    if (!bytes) return shd_fail(SHERD_MEMORY, "no memory for a line of alerts.jsonl");
    shd_json_line line = shd_json_line_make(bytes, capacity);
    format(alert, &line);
    sherd_status status = shd_line_append(dir, "alerts.jsonl", bytes, line.length);
    shd_free(bytes);
    return status;
}
