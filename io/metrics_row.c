/* A row of metrics.jsonl: its numbers with their names, once, for all files that have them. */
#include "io/metrics.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>

/* --- figures ------------------------------------------------------------------------------------------------------ */

enum { SHORT = 9, EXACT = 17 };

/* The figures so far, and what those that follow are about. */
typedef struct figures {
    shd_metrics_figure *out;
    int32_t count;
    const char *group;
} figures;

static shd_metrics_figure *add(figures *list, const char *name, const char *ending, shd_figure_kind kind) {
    assert(list->count < SHD_METRICS_FIGURES);
    shd_metrics_figure *figure = &list->out[list->count++];
    *figure = (shd_metrics_figure){.group = list->group, .kind = kind};
    snprintf(figure->name, sizeof figure->name, "%s%s", name, ending);
    return figure;
}

static void add_whole(figures *list, const char *name, const char *ending, int64_t value) {
    add(list, name, ending, SHD_FIGURE_WHOLE)->whole = value;
}

static void add_real(figures *list, const char *name, const char *ending, double value, int digits) {
    shd_metrics_figure *figure = add(list, name, ending, SHD_FIGURE_REAL);
    figure->real = value;
    figure->digits = digits;
}

static void add_spread(figures *list, const char *name, const shd_metrics_spread *spread) {
    add_real(list, name, "_min", spread->min, SHORT);
    add_real(list, name, "_median", spread->median, SHORT);
    add_real(list, name, "_max", spread->max, SHORT);
}

/* The parts in whole units, so that what is printed adds up: microseconds, coarser where nine digits would not hold the
 * sum. */
static double round_parts(const shd_metrics_row *row, double parts[6]) {
    const double given[6] = {row->data_ms,      row->compute_ms,   row->exposed_comm_ms,
                             row->optimizer_ms, row->save_wait_ms, row->other_ms};
    double units_per_ms = 1000, sum;
    for (;; units_per_ms /= 10) {
        sum = 0;
        for (int i = 0; i < 6; i++) sum += round(given[i] * units_per_ms);
        if (!(sum >= 1e9) || isinf(sum)) break;
    }
    for (int i = 0; i < 6; i++) parts[i] = round(given[i] * units_per_ms) / units_per_ms;
    return sum / units_per_ms;
}

double shd_metrics_step_ms(const shd_metrics_row *row) {
    double parts[6];
    return round_parts(row, parts);
}

static void add_training(figures *list, const shd_metrics_row *row) {
    list->group = "train";
    add_whole(list, "step", "", row->step);
    add_real(list, "loss", "", row->loss, EXACT);
    add_real(list, "grad_norm", "", row->grad_norm, EXACT);
    add_real(list, "lr", "", row->lr, SHORT);
    if (row->has_param_norm) add_real(list, "param_norm", "", row->param_norm, EXACT);
    if (row->classified) add_real(list, "accuracy", "", row->accuracy, EXACT);
    if (row->loss_scale > 0) add_real(list, "loss_scale", "", row->loss_scale, EXACT);
    add(list, "skipped", "", SHD_FIGURE_TRUTH)->whole = row->skipped;
    add_whole(list, "skipped_steps", "", row->skipped_steps);
    add_whole(list, "nonfinite_steps", "", row->nonfinite_steps);
    add_whole(list, row->items, "", row->tokens);
    add_whole(list, row->items, "_seen", row->tokens_seen);
}

static void add_times(figures *list, const shd_metrics_row *row) {
    static const char *const names[6] = {"data_ms",      "compute_ms",   "exposed_comm_ms",
                                         "optimizer_ms", "save_wait_ms", "other_ms"};
    double parts[6], step_ms = round_parts(row, parts), steps_per_s = step_ms > 0 ? 1000 / step_ms : 0;
    list->group = "time";
    add_real(list, "step_ms", "", step_ms, SHORT);
    for (int i = 0; i < 6; i++) add_real(list, names[i], "", parts[i], SHORT);
    if (row->compared) {
        add_spread(list, "rank_step_ms", &row->rank_step_ms);
        add_spread(list, "rank_wait_ms", &row->rank_wait_ms);
        add_whole(list, "slowest_rank", "", row->slowest_rank);
    }
    list->group = "speed";
    add_real(list, row->items, "_per_s", (double)row->tokens * steps_per_s, SHORT);
    if (row->model_flop > 0) add_real(list, "model_tflop_per_s", "", row->model_flop * steps_per_s / 1e12, SHORT);
    if (row->model_flop > 0 && row->peak_flop_per_s > 0)
        add_real(list, "mfu", "", row->model_flop * steps_per_s / row->peak_flop_per_s, SHORT);
    add_whole(list, "data_ready", "", row->data_ready);
}

/* What the machine does not tell is left out. */
static void add_known(figures *list, const char *name, double value) {
    if (!isnan(value)) add_real(list, name, "", value, SHORT);
}

static void add_usage(figures *list, const shd_metrics_usage *usage) {
    list->group = "machine";
    add_known(list, "cpu_cores", usage->cpu_cores);
    add_known(list, "host_cpu_share", usage->host_cpu_share);
    add_known(list, "read_bytes_per_s", usage->read_bytes_per_s);
    add_known(list, "write_bytes_per_s", usage->write_bytes_per_s);
    add_known(list, "network_in_bytes_per_s", usage->network_in_bytes_per_s);
    add_known(list, "network_out_bytes_per_s", usage->network_out_bytes_per_s);
    add_whole(list, "resident_bytes", "", usage->resident_bytes);
}

int32_t shd_metrics_figures(const shd_metrics_row *row, shd_metrics_figure out[SHD_METRICS_FIGURES]) {
    figures list = {.out = out};
    add_training(&list, row);
    add_times(&list, row);
    list.group = "memory";
    add_whole(&list, "peak_bytes", "", row->peak_bytes);
    if (row->usage) add_usage(&list, row->usage);
    list.group = "validation";
    if (row->validated) add_real(&list, "validation_loss", "", row->validation_loss, EXACT);
    if (row->validated && row->classified) add_real(&list, "validation_accuracy", "", row->validation_accuracy, EXACT);
    return list.count;
}

/* --- the line ----------------------------------------------------------------------------------------------------- */

static void add_sources(shd_json_line *out, const char *items, const char *ending, const int64_t *values,
                        int32_t count) {
    char key[32];
    snprintf(key, sizeof key, "source_%s%s", items, ending);
    shd_json_line_open(out, key, '[');
    for (int32_t i = 0; i < count; i++) shd_json_line_integer(out, NULL, values[i]);
    shd_json_line_close(out, ']');
}

/* The two lists of 64 sources take up to 2600 bytes, 64 figures as much. */
void shd_metrics_format(const shd_metrics_row *row, shd_json_line *out) {
    shd_metrics_figure list[SHD_METRICS_FIGURES];
    int32_t count = shd_metrics_figures(row, list);
    shd_json_line_open(out, NULL, '{');
    for (int32_t i = 0; i < count; i++) {
        const shd_metrics_figure *figure = &list[i];
        switch (figure->kind) {
        case SHD_FIGURE_WHOLE: shd_json_line_integer(out, figure->name, figure->whole); break;
        case SHD_FIGURE_REAL: shd_json_line_real(out, figure->name, figure->real, figure->digits); break;
        case SHD_FIGURE_TRUTH: shd_json_line_bool(out, figure->name, figure->whole != 0); break;
        }
    }
    if (row->source_count > 0) {
        add_sources(out, row->items, "", row->source_tokens, row->source_count);
        add_sources(out, row->items, "_seen", row->source_tokens_seen, row->source_count);
    }
    if (row->usage && row->usage->memory_count > 0) {
        shd_json_line_open(out, "memory_bytes", '{');
        for (int32_t i = 0; i < row->usage->memory_count; i++)
            shd_json_line_integer(out, row->usage->memory_names[i], row->usage->memory_bytes[i]);
        shd_json_line_close(out, '}');
    }
    shd_json_line_close(out, '}');
    shd_json_line_end(out);
}
