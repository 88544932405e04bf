/* What the top of the page tells. */
#include "runtime/report/markup.h"
#include "runtime/report/page.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* --- how it ended ------------------------------------------------------------------------------------------------- */

typedef struct outcome {
    const char *mark;              /* class of the style: good, bad, open */
    const char *word;              /* "done" */
    const shd_record_event *event; /* that says so; may be NULL */
} outcome;

static bool is_kind(const shd_record_event *event, const char *kind) { return !strcmp(event->kind, kind); }

/* By the last event that begins or ends a run; older runs have only their rows. A failure stays in its file when the job
 * has been started again. */
static outcome find_outcome(const shd_run_record *record) {
    const json_t *steps = shd_record_job(record, "train", "steps");
    const shd_record_event *begun = NULL;
    for (int32_t i = record->event_count; i-- > 0;) {
        const shd_record_event *event = &record->events[i];
        if (is_kind(event, "end")) return (outcome){"good", "done", event};
        if (is_kind(event, "stop")) return (outcome){"open", "stopped", event};
        if (is_kind(event, "failure")) return (outcome){"bad", "failed", event};
        if (is_kind(event, "start") || is_kind(event, "resume") || is_kind(event, "restart")) begun = event;
        if (begun) break;
    }
    if (json_is_integer(steps) && record->history.last_step + 1 >= json_integer_value(steps))
        return (outcome){"good", "done", NULL};
    double failed_s = json_number_value(json_object_get(record->failure, "time"));
    if (record->failure && (!begun || failed_s > begun->time_s)) return (outcome){"bad", "failed", NULL};
    return (outcome){"open", "no end recorded: running, or killed", NULL};
}

/* --- what ran ----------------------------------------------------------------------------------------------------- */

static void add_job_text(shd_text *out, const shd_run_record *record, const char *section, const char *key,
                         const char *before, const char *after) {
    const json_t *value = shd_record_job(record, section, key);
    if (json_is_string(value)) {
        shd_text_add(out, "%s", before);
        shd_markup_text(out, json_string_value(value));
        shd_text_add(out, "%s", after);
    } else if (json_is_integer(value)) {
        shd_text_add(out, "%s%" JSON_INTEGER_FORMAT "%s", before, json_integer_value(value), after);
    }
}

static void write_subject(shd_text *out, const shd_run_record *record) {
    char number[SHD_NUMBER_BYTES];
    if (!record->job && record->parameter_count < 0) return;
    shd_text_add(out, "<p class=\"subject\">");
    add_job_text(out, record, "model", "family", "", "");
    if (record->parameter_count >= 0) {
        shd_number_text((double)record->parameter_count, number);
        shd_text_add(out, " of %s parameters", number);
    }
    add_job_text(out, record, "model", "n_layer", ", ", " layers");
    add_job_text(out, record, "model", "d_model", " of ", "");
    add_job_text(out, record, "model", "context", ", context ", "");
    add_job_text(out, record, "run", "ranks", "; ranks: ", "");
    add_job_text(out, record, "shard", "stage", ", stage ", "");
    add_job_text(out, record, "train", "precision", ", ", "");
    add_job_text(out, record, "optimizer", "name", "; ", "");
    add_job_text(out, record, "train", "global_batch", ", global batch ", "");
    shd_text_add(out, "</p>\n");
}

/* "on vm: AMD EPYC, 2 cores, 23.5 GiB": what of it is known. */
static void write_machine(shd_text *out, const shd_run_record *record) {
    const json_t *cpu = json_object_get(record->provenance, "cpu"),
                 *hosts = json_object_get(record->provenance, "hosts");
    const json_t *memory = json_object_get(json_object_get(record->provenance, "memory"), "total_bytes");
    const char *model = json_string_value(json_object_get(cpu, "model")), *host;
    const json_t *cores = json_object_get(cpu, "cores");
    char text[SHD_NUMBER_BYTES];
    json_t *ranks;
    if (!model && json_object_size(hosts) == 0) return;
    shd_text_add(out, "<p class=\"subject\">");
    if (json_object_size(hosts) > 4) {
        shd_text_add(out, "%zu hosts", json_object_size(hosts));
    } else {
        const char *before = "";
        json_object_foreach((json_t *)hosts, host, ranks) {
            shd_text_add(out, "%s", before);
            shd_markup_head(out, host, 64);
            before = ", ";
        }
    }
    if (model) {
        shd_text_add(out, json_object_size(hosts) > 0 ? ": " : "");
        shd_markup_head(out, model, 200);
    }
    if (json_is_integer(cores)) {
        shd_count_text((int64_t)json_integer_value(cores), text);
        shd_text_add(out, ", %s cores", text);
    }
    if (json_is_integer(memory)) {
        shd_size_text((double)json_integer_value(memory), text);
        shd_text_add(out, ", %s", text);
    }
    shd_text_add(out, "</p>\n");
}

/* --- numbers ------------------------------------------------------------------------------------------------------ */

/* `value` and `detail` are text of this program. */
static void write_tile(shd_text *out, const char *name, const char *value, const char *detail) {
    shd_text_add(out, "<div><dt>%s</dt><dd>%s<small>%s</small></dd></div>\n", name, value, detail);
}

/* The least, or greatest, of a curve, and the step. */
static void tile_best(shd_text *out, const shd_history *history, const char *field, const char *name, bool greatest,
                      double factor, const char *unit) {
    const shd_curve *curve = shd_history_find(history, field);
    char number[SHD_NUMBER_BYTES], step[SHD_NUMBER_BYTES], value[80], detail[80];
    if (!curve || curve->all.count == 0) return;
    shd_number_text(factor * (greatest ? curve->all.high : curve->all.low), number);
    shd_count_text(greatest ? curve->high_step : curve->low_step, step);
    snprintf(value, sizeof value, "%s%s", number, unit);
    snprintf(detail, sizeof detail, "at step %s", step);
    write_tile(out, name, value, detail);
}

static void tile_last_loss(shd_text *out, const shd_history *history) {
    const shd_curve *curve = shd_history_find(history, "loss");
    char number[SHD_NUMBER_BYTES], detail[80];
    if (!curve) return;
    int64_t odd = curve->all.odd_count;
    shd_number_text(curve->last, number);
    char step[SHD_NUMBER_BYTES];
    shd_count_text(curve->last_step, step);
    snprintf(detail, sizeof detail, "at step %s", step);
    if (odd > 0) snprintf(detail, sizeof detail, "at step %s; not finite in %" PRId64, step, odd);
    write_tile(out, "Last training loss", curve->all.count > 0 ? number : "not finite",
               curve->all.count > 0 ? detail : "in every step");
}

static void tile_steps(shd_text *out, const shd_run_record *record) {
    const json_t *steps = shd_record_job(record, "train", "steps");
    char done[SHD_NUMBER_BYTES], all[SHD_NUMBER_BYTES], detail[80] = "";
    shd_count_text(record->history.last_step + 1, done);
    if (json_is_integer(steps)) {
        shd_count_text((int64_t)json_integer_value(steps), all);
        snprintf(detail, sizeof detail, "of %s", all);
    }
    write_tile(out, "Steps", done, detail);
}

static void tile_speed(shd_text *out, const shd_history *history, const char *items) {
    char field[32], number[SHD_NUMBER_BYTES], value[80], detail[80];
    const shd_curve *count = shd_history_find(history, items), *times = shd_history_find(history, "step_ms");
    if (!count || !times || !(times->all.sum > 0)) return;
    shd_number_text(count->all.sum / times->all.sum * 1e3, number);
    snprintf(value, sizeof value, "%s/s", number);
    snprintf(field, sizeof field, "%s_seen", items);
    const shd_curve *seen = shd_history_find(history, field);
    shd_number_text(seen ? seen->last : count->all.sum, number);
    snprintf(detail, sizeof detail, "%s in all", number);
    write_tile(out, strcmp(items, "samples") ? "Tokens" : "Samples", value, detail);
}

static void tile_times(shd_text *out, const shd_run_record *record) {
    const shd_curve *times = shd_history_find(&record->history, "step_ms");
    char span[SHD_NUMBER_BYTES], clock[SHD_NUMBER_BYTES], detail[80] = "";
    if (!times || times->all.count == 0) return;
    shd_span_text(times->all.sum / 1e3, span);
    if (record->last_time_s > record->first_time_s) {
        shd_span_text(record->last_time_s - record->first_time_s, clock);
        snprintf(detail, sizeof detail, "%s by the clock", clock);
    }
    write_tile(out, "Time in steps", span, detail);
}

static void tile_memory(shd_text *out, const shd_history *history) {
    const shd_curve *curve = shd_history_find(history, "peak_bytes");
    char size[SHD_NUMBER_BYTES];
    if (!curve || curve->all.count == 0) return;
    shd_size_text(curve->all.high, size);
    write_tile(out, "Memory of a rank", size, "at most, as planned");
}

static void write_tiles(shd_text *out, const shd_run_record *record) {
    const shd_history *history = &record->history;
    if (history->row_count == 0) return;
    shd_text_add(out, "<dl class=\"tiles\">\n");
    tile_best(out, history, "validation_loss", "Best validation loss", false, 1, "");
    tile_best(out, history, "validation_accuracy", "Best validation accuracy", true, 100, " %");
    tile_last_loss(out, history);
    tile_steps(out, record);
    tile_speed(out, history, "tokens");
    tile_speed(out, history, "samples");
    tile_times(out, record);
    tile_memory(out, history);
    shd_text_add(out, "</dl>\n");
}

static void write_links(shd_text *out, const shd_run_record *record) {
    const struct {
        bool there;
        const char *id, *name;
    } links[] = {{record->history.row_count > 0, "learning", "Learning"},
                 {record->history.row_count > 0, "speed", "Speed"},
                 {record->event_count > 0, "events", "Events"},
                 {json_array_size(record->alerts) > 0, "alerts", "Alerts"},
                 {record->checkpoints.count > 0, "checkpoints", "Checkpoints"},
                 {record->job != NULL, "job", "Job"},
                 {record->provenance != NULL, "provenance", "Provenance"}};
    shd_text_add(out, "<nav aria-label=\"Sections\">");
    for (size_t i = 0; i < sizeof links / sizeof *links; i++)
        if (links[i].there) shd_text_add(out, "<a href=\"#%s\">%s</a> ", links[i].id, links[i].name);
    shd_text_add(out, "</nav>\n");
}

void shd_page_summary(shd_text *out, const shd_run_record *record, double made_s) {
    const char *name = json_string_value(shd_record_job(record, NULL, "name"));
    const outcome ended = find_outcome(record);
    char moment[SHD_NUMBER_BYTES];
    shd_text_add(out, "<header>\n<h1>");
    shd_markup_text(out, name ? name : record->dir);
    shd_text_add(out, "</h1>\n<p class=\"outcome\"><strong class=\"%s\">%s</strong>", ended.mark, ended.word);
    if (ended.event && *ended.event->text) {
        shd_text_add(out, " ");
        shd_markup_text(out, ended.event->text);
    }
    shd_text_add(out, "</p>\n");
    write_subject(out, record);
    write_machine(out, record);
    shd_text_add(out, "<p class=\"source\"><code>");
    shd_markup_text(out, record->dir);
    shd_moment_text(made_s, moment);
    shd_text_add(out, "</code>, as it was at <time>%s</time></p>\n", moment);
    write_tiles(out, record);
    write_links(out, record);
    shd_text_add(out, "</header>\n");
}

/* --- what went wrong ---------------------------------------------------------------------------------------------- */

static void write_damage(shd_text *out, const char *file, const shd_line_counts *lines) {
    if (lines->damaged > 0)
        shd_text_add(out,
                     "<li>%s: %" PRId64 " line%s could not be used, the first of them line %" PRId64
                     "; the other %" PRId64 " are shown.</li>\n",
                     file, lines->damaged, lines->damaged == 1 ? "" : "s", lines->first_damaged, lines->good);
    if (lines->torn)
        shd_text_add(out, "<li>%s: the last line is not whole: it was being written, or its writer was killed.</li>\n",
                     file);
}

static bool is_damaged(const shd_line_counts *lines) { return lines->damaged > 0 || lines->torn; }

/* "Rank 0 of 2 on vm, killed by signal SEGV, in step 12": what of it is there. */
static void write_failure_head(shd_text *out, const json_t *failure) {
    static const struct {
        const char *key, *before;
    } parts[] = {{"world_size", " of "},        {"host", " on "},    {"signal", ", killed by signal "},
                 {"exit_code", ", exit code "}, {"step", ", step "}, {"phase", ", in "}};
    const json_t *rank = json_object_get(failure, "rank");
    if (!json_is_integer(rank)) return;
    shd_text_add(out, "<p><strong>Rank %" JSON_INTEGER_FORMAT, json_integer_value(rank));
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        const json_t *value = json_object_get(failure, parts[i].key);
        if (json_is_string(value)) {
            shd_text_add(out, "%s", parts[i].before);
            shd_markup_head(out, json_string_value(value), 400);
        } else if (json_is_integer(value)) {
            shd_text_add(out, "%s%" JSON_INTEGER_FORMAT, parts[i].before, json_integer_value(value));
        }
    }
    shd_text_add(out, "</strong></p>\n");
}

/* Of a longer cause the rest is left out. */
enum { CAUSE_BYTES = 4000 };

/* What matters stands alone: the cause, what the rank wrote last, how the others ended; the rest can be opened. */
static void write_failure_body(shd_text *out, const json_t *failure) {
    static const char *const texts[] = {"cause", "noticed"}, *const lists[] = {"last_lines", "ranks"};
    json_t *rest = json_copy((json_t *)failure);
    if (!rest) {
        out->failed = true;
        return;
    }
    if (json_equal(json_object_get(rest, "error"), json_object_get(rest, "cause"))) json_object_del(rest, "error");
    for (size_t i = 0; i < 2; i++) {
        const char *text = json_string_value(json_object_get(rest, texts[i]));
        if (!text) continue;
        shd_text_add(out, "<p>");
        shd_markup_head(out, text, CAUSE_BYTES);
        shd_text_add(out, "</p>\n");
        json_object_del(rest, texts[i]);
    }
    for (size_t i = 0; i < 2; i++) {
        const json_t *list = json_object_get(rest, lists[i]);
        if (json_array_size(list) == 0) continue;
        shd_page_tree(out, list, false);
        json_object_del(rest, lists[i]);
    }
    shd_text_add(out, "<details><summary>All that is known</summary>\n");
    shd_page_tree(out, rest, false);
    shd_text_add(out, "</details>\n");
    json_decref(rest);
}

/* It stays in the folder when the job has been started again. */
static void write_failure(shd_text *out, const shd_run_record *record) {
    bool current = !strcmp(find_outcome(record).mark, "bad");
    shd_text_add(out, "<section id=\"failure\" class=\"trouble%s\">\n<h2>%s</h2>\n", current ? "" : " past",
                 current ? "Failure" : "An earlier failure");
    write_failure_head(out, record->failure);
    write_failure_body(out, record->failure);
    shd_text_add(out, "</section>\n");
}

void shd_page_troubles(shd_text *out, const shd_run_record *record) {
    int64_t left_out = record->history.left_out_count;
    if (record->failure) write_failure(out, record);
    if (!is_damaged(&record->metrics_lines) && !is_damaged(&record->events_lines) &&
        !is_damaged(&record->alerts_lines) && record->note_count == 0 && left_out == 0)
        return;
    shd_text_add(out, "<section id=\"unread\" class=\"trouble\">\n<h2>What could not be read</h2>\n<ul>\n");
    write_damage(out, "metrics.jsonl", &record->metrics_lines);
    write_damage(out, "events.jsonl", &record->events_lines);
    write_damage(out, "alerts.jsonl", &record->alerts_lines);
    for (int32_t i = 0; i < record->note_count; i++) {
        shd_text_add(out, "<li>");
        shd_markup_text(out, record->notes[i]);
        shd_text_add(out, "</li>\n");
    }
    if (left_out > 0)
        shd_text_add(out, "<li>metrics.jsonl: %" PRId64 " values of further fields are not shown.</li>\n", left_out);
    shd_text_add(out, "</ul>\n</section>\n");
}
