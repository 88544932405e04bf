/* Events, alerts, checkpoints, the job and where it came from. */
#include "runtime/report/chart_parts.h"
#include "runtime/report/markup.h"
#include "runtime/report/page.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* --- events ------------------------------------------------------------------------------------------------------- */

/* The heights of lanes in the style, in units of the picture. */
static void write_lane(const shd_canvas *canvas, const char *classes, int32_t row, int32_t rows, const bool *columns) {
    double top = (double)row / rows * SHD_PLOT_UNITS, height = (double)SHD_PLOT_UNITS / rows;
    shd_text_add(canvas->html, "<path class=\"%s\" d=\"", classes);
    for (int32_t c = 0; c < canvas->history->column_count; c++)
        if (columns[c])
            shd_text_add(canvas->html, "M%.1f %.1fv%.1f",
                         shd_plot_x(canvas->history, shd_history_middle(canvas->history, c)), top + 0.2 * height,
                         0.6 * height);
    shd_text_add(canvas->html, "\"/>\n");
}

static const char *lane_class(const char *kind) {
    static const char *const bad[] = {"failure", "save_failed", "rollback", "restart"};
    static const char *const odd[] = {"skip", "outlier", "straggler", "stop"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (!strcmp(kind, bad[i])) return "event bad";
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++)
        if (!strcmp(kind, odd[i])) return "event warned";
    return "event";
}

void shd_page_lanes(const shd_canvas *canvas, const shd_run_record *record) {
    shd_text *out = canvas->html;
    int32_t rows = record->lane_count;
    if (rows == 0) return;
    shd_text_add(out,
                 "<figure class=\"chart\" id=\"lanes\">\n<figcaption><h3>Events</h3></figcaption>\n"
                 "<div class=\"plot lanes\" style=\"height:%dpx\">\n<svg viewBox=\"0 0 %d %d\" "
                 "preserveAspectRatio=\"none\" role=\"img\" aria-label=\"Events by step; the table of events has them "
                 "all\">\n",
                 20 * (int)rows, SHD_PLOT_UNITS, SHD_PLOT_UNITS);
    shd_chart_guides(canvas);
    for (int32_t i = 0; i < rows; i++)
        write_lane(canvas, lane_class(record->lanes[i].kind), i, rows, record->lanes[i].columns);
    shd_text_add(out, "</svg>\n");
    for (int32_t i = 0; i < rows; i++) {
        shd_text_add(out, "<span class=\"label c0\" style=\"bottom:%.2f%%\">", 100 * (1 - (i + 0.5) / rows));
        shd_markup_text(out, record->lanes[i].kind);
        shd_text_add(out, " <b>%" PRId64 "</b></span>\n", record->lanes[i].count);
    }
    shd_chart_steps(canvas);
    shd_text_add(out, "</div>\n</figure>\n");
}

static void add_whole_cell(shd_text *out, int64_t value) {
    char text[SHD_NUMBER_BYTES];
    shd_count_text(value, text);
    shd_text_add(out, "<td class=\"number\">%s</td>", value >= 0 ? text : "");
}

static void add_text_cell(shd_text *out, const char *text) {
    shd_text_add(out, "<td class=\"text\">");
    shd_markup_text(out, text);
    shd_text_add(out, "</td>");
}

static void begin_table(shd_text *out, const char *id, const char *title, const char *const *columns) {
    shd_text_add(out, "<section id=\"%s\">\n<h2>%s</h2>\n<div class=\"wide\"><table>\n<thead><tr>", id, title);
    for (; *columns; columns++) shd_text_add(out, "<th scope=\"col\">%s</th>", *columns);
    shd_text_add(out, "</tr></thead>\n<tbody>\n");
}

static void end_table(shd_text *out) { shd_text_add(out, "</tbody></table></div>\n</section>\n"); }

static void add_moment_cell(shd_text *out, double time_s) {
    char moment[SHD_NUMBER_BYTES];
    shd_moment_text(time_s, moment);
    shd_text_add(out, "<td class=\"moment\">%s</td>", moment);
}

void shd_page_events(shd_text *out, const shd_run_record *record) {
    static const char *const columns[] = {"time", "event", "steps done", "rank", "what", NULL};
    if (record->event_count == 0) return;
    begin_table(out, "events", "Events", columns);
    for (int32_t i = 0; i < record->event_count; i++) {
        const shd_record_event *event = &record->events[i];
        if (record->events_dropped > 0 && i == SHD_RECORD_EVENTS / 2)
            shd_text_add(out, "<tr><td colspan=\"5\">… %" PRId64 " more events …</td></tr>\n", record->events_dropped);
        shd_text_add(out, "<tr>");
        add_moment_cell(out, event->time_s);
        shd_text_add(out, "<td class=\"%s\">", lane_class(event->kind));
        shd_markup_head(out, event->kind, 64);
        shd_text_add(out, "</td>");
        add_whole_cell(out, event->step);
        add_whole_cell(out, event->rank);
        add_text_cell(out, event->text);
        shd_text_add(out, "</tr>\n");
    }
    end_table(out);
}

/* "step 12, nonfinite, skip, rank 1": what of it is there. */
static void write_alert_head(shd_text *out, const json_t *alert) {
    static const char *const words[] = {"kind", "action", "unit"};
    const json_t *step = json_object_get(alert, "step"), *rank = json_object_get(alert, "rank");
    char number[SHD_NUMBER_BYTES];
    if (json_is_integer(step)) {
        shd_count_text((int64_t)json_integer_value(step), number);
        shd_text_add(out, "row %s", number);
    } else {
        shd_text_add(out, "no step");
    }
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        const char *word = json_string_value(json_object_get(alert, words[i]));
        if (!word) continue;
        shd_text_add(out, ", ");
        shd_markup_head(out, word, 200);
    }
    if (json_is_integer(rank)) shd_text_add(out, ", rank %" JSON_INTEGER_FORMAT, json_integer_value(rank));
}

void shd_page_alerts(shd_text *out, const shd_run_record *record) {
    size_t count = json_array_size(record->alerts);
    if (count == 0) return;
    shd_text_add(out, "<section id=\"alerts\">\n<h2>Alerts</h2>\n");
    for (size_t i = 0; i < count; i++) {
        shd_text_add(out, "<details class=\"alert\"%s><summary>", count == 1 ? " open" : "");
        write_alert_head(out, json_array_get(record->alerts, i));
        shd_text_add(out, "</summary>\n");
        shd_page_tree(out, json_array_get(record->alerts, i), false);
        shd_text_add(out, "</details>\n");
    }
    if (record->alerts_lines.good > (int64_t)count)
        shd_text_add(out, "<p class=\"note\">%" PRId64 " more are in alerts.jsonl.</p>\n",
                     record->alerts_lines.good - (int64_t)count);
    shd_text_add(out, "</section>\n");
}

/* --- checkpoints -------------------------------------------------------------------------------------------------- */

static void write_checkpoint(shd_text *out, const shd_checkpoint_entry *entry) {
    char size[SHD_NUMBER_BYTES] = "", ratio[SHD_NUMBER_BYTES] = "";
    if (entry->stored_bytes > 0) {
        shd_size_text((double)entry->stored_bytes, size);
        shd_number_text((double)entry->raw_bytes / (double)entry->stored_bytes, ratio);
    }
    shd_text_add(out, "<tr><th scope=\"row\">");
    shd_markup_text(out, entry->name);
    shd_text_add(out, "</th>");
    add_whole_cell(out, entry->step);
    add_moment_cell(out, (double)entry->time_s);
    shd_text_add(out, "<td class=\"number\">%s</td><td class=\"number\">%s</td>", size, ratio);
    add_text_cell(out, entry->flaw ? entry->flaw : "complete");
    shd_text_add(out, "</tr>\n");
}

void shd_page_checkpoints(shd_text *out, const shd_run_record *record) {
    static const char *const columns[] = {"name", "steps done", "saved", "size", "compression", "state", NULL};
    if (record->checkpoints.count == 0) return;
    begin_table(out, "checkpoints", "Checkpoints on disk", columns);
    for (int64_t i = 0; i < record->checkpoints.count; i++) write_checkpoint(out, &record->checkpoints.entries[i]);
    end_table(out);
}

/* --- the job and where it came from --------------------------------------------------------------------------------- */

void shd_page_job(shd_text *out, const shd_run_record *record) {
    if (!record->job) return;
    shd_text_add(out, "<section id=\"job\">\n<h2>Job</h2>\n");
    if (record->job_of_checkpoint) shd_text_add(out, "<p class=\"note\">As the newest checkpoint has it.</p>\n");
    shd_text_add(out, "<div class=\"trees\">\n");
    shd_page_tree(out, record->job, true);
    shd_text_add(out, "</div>\n</section>\n");
}

void shd_page_provenance(shd_text *out, const shd_run_record *record) {
    if (!record->provenance) return;
    json_t *rest = json_copy(record->provenance);
    if (!rest) {
        out->failed = true;
        return;
    }
    json_object_del(rest, "job");
    shd_text_add(out, "<section id=\"provenance\">\n<h2>Provenance</h2>\n<div class=\"trees\">\n");
    shd_page_tree(out, rest, true);
    shd_text_add(out, "</div>\n</section>\n");
    json_decref(rest);
}
