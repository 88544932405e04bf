/* Which charts there are, in the order of the page. */
#include "runtime/report/chart_parts.h"
#include "runtime/report/markup.h"
#include "runtime/report/page.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Parts of memory have names of their own. */
#define MEMORY "memory_bytes."

/* Colours of the style: 1 blue, 2 vermilion, 3 green, 4 purple, 5 amber, 6 grey. */
static const shd_chart learning[] = {
    {.id = "loss",
     .title = "Loss",
     .unit = "nats per target",
     .may_be_log = true,
     .lines = {{"loss", "training", 1}, {"validation_loss", "validation", 2}}},
    {.id = "accuracy",
     .title = "Accuracy",
     .unit = " of targets",
     .quantity = SHD_SHARE,
     .lines = {{"accuracy", "training", 1}, {"validation_accuracy", "validation", 2}}},
    {.id = "lr", .title = "Learning rate", .unit = "", .from_zero = true, .small = true, .lines = {{"lr", "rate", 1}}},
    {.id = "grad-norm",
     .title = "Gradient norm",
     .unit = "before clipping",
     .may_be_log = true,
     .lines = {{"grad_norm", "norm", 1}}},
    {.id = "param-norm", .title = "Parameter norm", .unit = "", .small = true, .lines = {{"param_norm", "norm", 1}}},
    {.id = "loss-scale",
     .title = "Loss scale",
     .unit = "",
     .may_be_log = true,
     .small = true,
     .lines = {{"loss_scale", "scale", 1}}},
    {.id = "skipped",
     .skips_zero = true,
     .title = "Steps that updated nothing",
     .unit = "so far",
     .from_zero = true,
     .small = true,
     .lines = {{"skipped_steps", "skipped", 2}, {"nonfinite_steps", "not finite", 4}}},
};

static const shd_chart speed[] = {
    {.id = "throughput",
     .clips = true,
     .title = "Throughput",
     .unit = "tokens per second",
     .from_zero = true,
     .lines = {{"tokens_per_s", "all ranks", 1}}},
    {.id = "throughput-samples",
     .clips = true,
     .title = "Throughput",
     .unit = "samples per second",
     .from_zero = true,
     .lines = {{"samples_per_s", "all ranks", 1}}},
    {.id = "time",
     .clips = true,
     .title = "Time of a step",
     .unit = ", of rank 0",
     .kind = SHD_CHART_STACK,
     .quantity = SHD_MILLISECONDS,
     .from_zero = true,
     .total = "step_ms",
     .lines = {{"compute_ms", "compute", 1},
               {"exposed_comm_ms", "exposed communication", 2},
               {"data_ms", "data", 5},
               {"optimizer_ms", "optimizer", 3},
               {"save_wait_ms", "waiting for saves", 4},
               {"other_ms", "other", 6}}},
    {.id = "rank-step",
     .clips = true,
     .title = "Step time over the ranks",
     .unit = ", from the fastest to the slowest",
     .kind = SHD_CHART_SPREAD,
     .quantity = SHD_MILLISECONDS,
     .from_zero = true,
     .lines = {{"rank_step_ms_median", "median", 1},
               {"rank_step_ms_min", "fastest", 1},
               {"rank_step_ms_max", "slowest", 1}}},
    {.id = "rank-wait",
     .clips = true,
     .title = "Waiting over the ranks",
     .unit = ", from the least to the most",
     .kind = SHD_CHART_SPREAD,
     .quantity = SHD_MILLISECONDS,
     .from_zero = true,
     .lines = {{"rank_wait_ms_median", "median", 2},
               {"rank_wait_ms_min", "least", 2},
               {"rank_wait_ms_max", "most", 2}}},
    {.id = "mfu",
     .title = "Model FLOPs utilisation",
     .unit = " of the peak",
     .quantity = SHD_SHARE,
     .from_zero = true,
     .small = true,
     .lines = {{"mfu", "used", 1}}},
    {.id = "flops",
     .title = "Model arithmetic",
     .unit = "TFLOP per second, all ranks",
     .from_zero = true,
     .small = true,
     .lines = {{"model_tflop_per_s", "done", 1}}},
    {.id = "data-ready",
     .title = "Steps read ahead",
     .unit = "when a step asks for its data",
     .from_zero = true,
     .small = true,
     .lines = {{"data_ready", "ready", 1}}},
};

static const shd_chart machine[] = {
    {.id = "memory",
     .title = "Memory",
     .unit = ", of the rank that holds most",
     .quantity = SHD_BYTES,
     .from_zero = true,
     .small = true,
     .lines = {{"peak_bytes", "plan", 1}}},
    {.id = "resident",
     .title = "Resident memory",
     .unit = ", of rank 0's process",
     .quantity = SHD_BYTES,
     .from_zero = true,
     .small = true,
     .lines = {{"resident_bytes", "resident", 1}}},
    {.id = "cores",
     .title = "Processors busy",
     .unit = "by rank 0",
     .from_zero = true,
     .small = true,
     .lines = {{"cpu_cores", "cores", 1}}},
    {.id = "host-cpu",
     .title = "Processors of the host busy",
     .unit = " of all",
     .quantity = SHD_SHARE,
     .from_zero = true,
     .small = true,
     .lines = {{"host_cpu_share", "busy", 1}}},
    {.id = "disk",
     .title = "Storage",
     .unit = " per second, by rank 0",
     .quantity = SHD_BYTES,
     .from_zero = true,
     .small = true,
     .lines = {{"read_bytes_per_s", "read", 1}, {"write_bytes_per_s", "written", 2}}},
    {.id = "network",
     .skips_zero = true,
     .title = "Network",
     .unit = " per second, of the host",
     .quantity = SHD_BYTES,
     .from_zero = true,
     .small = true,
     .lines = {{"network_in_bytes_per_s", "in", 1}, {"network_out_bytes_per_s", "out", 2}}},
};

/* Fields that are told elsewhere, or are sums of others. */
static const char *const told[] = {"step_ms",      "tokens",  "tokens_seen", "samples",
                                   "samples_seen", "skipped", "slowest_rank"};

#define COUNT(list) ((int32_t)(sizeof(list) / sizeof *(list)))

static bool any_applies(const shd_history *history, const shd_chart *charts, int32_t count) {
    for (int32_t i = 0; i < count; i++)
        if (shd_chart_applies(history, &charts[i])) return true;
    return false;
}

static bool has_field(const shd_chart *charts, int32_t count, const char *field) {
    for (int32_t i = 0; i < count; i++)
        for (int32_t k = 0; k < SHD_CHART_LINES && charts[i].lines[k].field; k++)
            if (!strcmp(charts[i].lines[k].field, field)) return true;
    return false;
}

static bool is_known(const char *field) {
    for (int32_t i = 0; i < COUNT(told); i++)
        if (!strcmp(told[i], field)) return true;
    return has_field(learning, COUNT(learning), field) || has_field(speed, COUNT(speed), field) ||
           has_field(machine, COUNT(machine), field) || !strncmp(field, MEMORY, strlen(MEMORY));
}

/* `pairs`: small charts, two of them side by side where there is room. */
static void begin_section(shd_canvas *canvas, const char *id, const char *title, bool pairs) {
    shd_text_add(canvas->html, "<section id=\"%s\" class=\"charts %s\">\n<h2>%s</h2>\n", id, pairs ? "pairs" : "",
                 title);
}

static sherd_status write_charts(shd_canvas *canvas, const shd_run_record *record, const shd_chart *charts,
                                 int32_t count) {
    sherd_status status = SHERD_OK;
    const json_t *clip = shd_record_job(record, "train", "clip");
    bool mean_squares = false;
    const char *kind = json_string_value(shd_record_job(record, "model", "loss"));
    if (kind) mean_squares = !strcmp(kind, "mse");
    for (int32_t i = 0; i < count && status == SHERD_OK; i++) {
        shd_chart chart = charts[i];
        if (!strcmp(chart.id, "grad-norm") && json_number_value(clip) > 0) {
            chart.reference = json_number_value(clip);
            chart.reference_label = "clip";
        }
        if (!strcmp(chart.id, "loss") && mean_squares) chart.unit = "mean of squares";
        status = shd_chart_write(canvas, &chart);
    }
    return status;
}

static int compare_last(const void *a, const void *b) {
    const shd_curve *const *x = a, *const *y = b;
    return ((*x)->last < (*y)->last) - ((*x)->last > (*y)->last);
}

/* Memory by what it is for, as the last row that tells has it: bars, as it hardly changes over a run. */
static void write_memory_parts(shd_canvas *canvas) {
    const shd_history *history = canvas->history;
    const shd_curve *parts[SHD_HISTORY_CURVES];
    int32_t count = 0;
    double sum = 0;
    for (int32_t i = 0; i < history->curve_count; i++) {
        const shd_curve *curve = &history->curves[i];
        if (strncmp(curve->name, MEMORY, strlen(MEMORY)) != 0 || !(curve->last > 0)) continue;
        parts[count++] = curve;
        sum += curve->last;
    }
    if (count == 0) return;
    qsort(parts, (size_t)count, sizeof *parts, compare_last);
    shd_text_add(canvas->html,
                 "<figure id=\"memory-parts\">\n<figcaption><h3>Memory by use</h3> <span class=\"unit\">of "
                 "rank 0</span></figcaption>\n<table class=\"bars\"><tbody>\n");
    for (int32_t i = 0; i < count; i++) {
        char size[SHD_NUMBER_BYTES];
        shd_size_text(parts[i]->last, size);
        shd_text_add(canvas->html, "<tr><th scope=\"row\">");
        shd_markup_text(canvas->html, parts[i]->name + strlen(MEMORY));
        shd_text_add(canvas->html,
                     "</th><td class=\"bar\"><i style=\"width:%.1f%%\"></i></td><td class=\"number\">%s</td>",
                     100 * parts[i]->last / parts[0]->last, size);
        shd_text_add(canvas->html, "<td class=\"number\">%.1f %%</td></tr>\n", 100 * parts[i]->last / sum);
    }
    shd_text_add(canvas->html, "</tbody></table>\n</figure>\n");
}

/* Fields that this program does not know, under their own names. */
static sherd_status write_others(shd_canvas *canvas) {
    sherd_status status = SHERD_OK;
    bool any = false;
    for (int32_t i = 0; i < canvas->history->curve_count && status == SHERD_OK; i++) {
        const char *name = canvas->history->curves[i].name;
        char id[24];
        if (is_known(name)) continue;
        if (!any) begin_section(canvas, "others", "Other fields", true);
        any = true;
        snprintf(id, sizeof id, "field-%d", (int)i);
        const shd_chart chart = {
            .id = id, .title = name, .unit = "", .may_be_log = true, .small = true, .lines = {{name, "value", 1}}};
        status = shd_chart_write(canvas, &chart);
    }
    if (any) shd_text_add(canvas->html, "</section>\n");
    return status;
}

sherd_status shd_page_charts(shd_canvas *canvas, const shd_run_record *record) {
    static const struct {
        const char *id, *title;
        const shd_chart *charts;
        int32_t count;
    } sections[] = {{"learning", "Learning", learning, COUNT(learning)},
                    {"speed", "Speed", speed, COUNT(speed)},
                    {"machine", "Machine", machine, COUNT(machine)}};
    for (int32_t i = 0; i < COUNT(sections); i++) {
        if (!any_applies(canvas->history, sections[i].charts, sections[i].count)) continue;
        begin_section(canvas, sections[i].id, sections[i].title, sections[i].charts == machine);
        sherd_status status = write_charts(canvas, record, sections[i].charts, sections[i].count);
        if (status == SHERD_OK && sections[i].charts == machine) write_memory_parts(canvas);
        shd_text_add(canvas->html, "</section>\n");
        if (status != SHERD_OK) return status;
    }
    return write_others(canvas);
}
