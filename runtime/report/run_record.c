#include "runtime/report/run_record.h"

#include "io/json.h"
#include "runtime/base/memory.h"
#include "runtime/base/status.h"
#include "runtime/report/chart_parts.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* --- metrics.jsonl ------------------------------------------------------------------------------------------------ */

static sherd_status take_fields(shd_history *history, const char *prefix, const json_t *object) {
    const char *key;
    json_t *value;
    double number;
    /* jansson's iterator does not change what it walks over. */
    json_object_foreach((json_t *)object, key, value) {
        char name[2 * SHD_HISTORY_NAME_BYTES];
        if (!prefix && !strcmp(key, "step")) continue;
        if (snprintf(name, sizeof name, "%s%s%s", prefix ? prefix : "", prefix ? "." : "", key) >= (int)sizeof name)
            history->left_out_count++;
        else if (shd_number_read(value, &number))
            SHD_TRY(shd_history_value(history, name, number));
        else if (json_is_object(value) && !prefix)
            SHD_TRY(take_fields(history, name, value));
    }
    return SHERD_OK;
}

static sherd_status take_row(void *user, const json_t *object) {
    shd_history *history = user;
    const json_t *step = json_object_get(object, "step");
    if (!json_is_integer(step)) return shd_fail(SHERD_DATA, "a row without a step");
    SHD_TRY(shd_history_row(history, json_integer_value(step)));
    return take_fields(history, NULL, object);
}

static sherd_status read_metrics(shd_run_record *record) {
    char path[SHD_PATH_BYTES];
    SHD_TRY(shd_path_make(path, "%s/metrics.jsonl", record->dir));
    SHD_TRY(shd_lines_read(path, take_row, &record->history, &record->metrics_lines));
    if (!record->metrics_lines.there)
        return shd_fail(SHERD_DATA, "%s has no metrics.jsonl: a report is made of log.dir, which is run.dir by default",
                        record->dir);
    shd_history_reduce(&record->history, SHD_DRAWN_COLUMNS);
    return SHERD_OK;
}

/* --- events.jsonl and alerts.jsonl -------------------------------------------------------------------------------- */

static sherd_status mark_lane(shd_run_record *record, const char *kind, int64_t step) {
    int32_t i = 0;
    const shd_history *history = &record->history;
    while (i < record->lane_count && strcmp(record->lanes[i].kind, kind) != 0) i++;
    if (i == SHD_RECORD_LANES || strlen(kind) >= sizeof record->lanes[i].kind) return SHERD_OK;
    shd_record_lane *lane = &record->lanes[i];
    if (i == record->lane_count) {
        lane->columns = shd_alloc((size_t)history->column_count + 1, sizeof *lane->columns);
        if (!lane->columns) return shd_fail(SHERD_MEMORY, "out of memory for events");
        memcpy(lane->kind, kind, strlen(kind) + 1);
        record->lane_count++;
    }
    lane->count++;
    if (step >= 0 && history->column_count > 0) lane->columns[shd_history_column(history, shd_event_row(step))] = true;
    return SHERD_OK;
}

int64_t shd_event_row(int64_t step) { return step > 0 ? step - 1 : 0; }

static int64_t whole_or(const json_t *object, const char *key, int64_t otherwise) {
    const json_t *value = json_object_get(object, key);
    return json_is_integer(value) ? (int64_t)json_integer_value(value) : otherwise;
}

/* Room for one more: of too many the one goes that follows the first half. */
static shd_record_event *make_room(shd_run_record *record) {
    if (record->event_count < SHD_RECORD_EVENTS) return &record->events[record->event_count++];
    shd_record_event *middle = &record->events[SHD_RECORD_EVENTS / 2];
    shd_free(middle->kind);
    shd_free(middle->text);
    memmove(middle, middle + 1, (SHD_RECORD_EVENTS / 2 - 1) * sizeof *middle);
    record->events_dropped++;
    return &record->events[SHD_RECORD_EVENTS - 1];
}

static sherd_status take_event(void *user, const json_t *object) {
    shd_run_record *record = user;
    const char *kind = json_string_value(json_object_get(object, "event"));
    const char *text = json_string_value(json_object_get(object, "text"));
    double time_s = json_number_value(json_object_get(object, "time"));
    int64_t step = whole_or(object, "step", -1);
    if (!kind) return shd_fail(SHERD_DATA, "no kind of event");
    SHD_TRY(mark_lane(record, kind, step));
    shd_record_event *event = make_room(record);
    *event = (shd_record_event){.time_s = time_s,
                                .step = step,
                                .rank = whole_or(object, "rank", -1),
                                .kind = shd_strdup(kind),
                                .text = shd_strdup(text ? text : "")};
    if (!event->kind || !event->text) return shd_fail(SHERD_MEMORY, "out of memory for an event");
    if (time_s > 0 && record->first_time_s == 0) record->first_time_s = time_s;
    if (time_s > record->last_time_s) record->last_time_s = time_s;
    return SHERD_OK;
}

/* An alert without most of its batch has no more, whoever wrote it. */
enum { ALERT_BYTES = 256 << 10 };

/* Whether an example is of where the first number was that is not finite; where that is not known, any is. */
static bool is_suspect(const json_t *alert, const json_t *example) {
    static const char *const keys[] = {"rank", "micro_step"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const json_t *known = json_object_get(alert, keys[i]);
        if (known && !json_equal(known, json_object_get(example, keys[i]))) return false;
    }
    return true;
}

/* Of a batch, which may have thousands, those examples that are the first to look at, or the first ones. */
static json_t *cut_batch(const json_t *alert, const json_t *batch) {
    json_t *kept = json_array(), *example;
    size_t i;
    json_array_foreach(batch, i, example) {
        if (json_array_size(kept) >= SHD_RECORD_EXAMPLES) break;
        if (is_suspect(alert, example)) json_array_append(kept, example);
    }
    bool none = json_array_size(kept) == 0;
    for (i = 0; none && i < json_array_size(batch) && i < SHD_RECORD_EXAMPLES; i++)
        json_array_append(kept, json_array_get(batch, i));
    return kept;
}

static sherd_status take_alert(void *user, const json_t *object) {
    shd_run_record *record = user;
    const json_t *batch = json_object_get(object, "batch");
    if (json_array_size(record->alerts) >= SHD_RECORD_ALERTS) return SHERD_OK;
    json_t *kept = json_copy((json_t *)object); /* one level deep; only counted references change */
    if (kept && json_is_array(batch)) {
        json_t *cut = cut_batch(object, batch);
        size_t left_out = json_array_size(batch) - json_array_size(cut);
        json_object_set_new(kept, "batch", cut);
        if (left_out > 0) json_object_set_new(kept, "batch_left_out", json_integer((json_int_t)left_out));
    }
    if (kept && json_dumpb(kept, NULL, 0, JSON_COMPACT) > ALERT_BYTES) {
        json_decref(kept);
        return shd_fail(SHERD_DATA, "an alert of more than %d bytes beside its batch", ALERT_BYTES);
    }
    if (!kept || json_array_append_new(record->alerts, kept)) return shd_fail(SHERD_MEMORY, "out of memory for alerts");
    return SHERD_OK;
}

/* --- the rest ----------------------------------------------------------------------------------------------------- */

/* What cannot be read becomes a note, but for want of memory. */
static sherd_status note(shd_run_record *record, sherd_status status, const char *file) {
    if (status == SHERD_OK || status == SHERD_MEMORY) return status;
    char text[SHD_PATH_BYTES + 400];
    snprintf(text, sizeof text, "%s: %s", file, sherd_last_error());
    if (record->note_count == SHD_RECORD_NOTES) return SHERD_OK;
    char *kept = shd_strdup(text);
    if (!kept) return shd_fail(SHERD_MEMORY, "out of memory for a note");
    record->notes[record->note_count++] = kept;
    return SHERD_OK;
}

static sherd_status read_lines(shd_run_record *record, const char *file, shd_line_take *take, shd_line_counts *counts) {
    char path[SHD_PATH_BYTES];
    SHD_TRY(shd_path_make(path, "%s/%s", record->dir, file));
    return note(record, shd_lines_read(path, take, record, counts), file);
}

static sherd_status read_object(shd_run_record *record, const char *file, json_t **out) {
    char path[SHD_PATH_BYTES];
    SHD_TRY(shd_path_make(path, "%s/%s", record->dir, file));
    return note(record, shd_object_read(path, out), file);
}

/* Where they are by default, else where the job says. */
static sherd_status read_checkpoints(shd_run_record *record) {
    const char *told = json_string_value(shd_record_job(record, "checkpoint", "dir"));
    SHD_TRY(shd_path_make(record->checkpoint_dir, "%s/checkpoints", record->dir));
    if (access(record->checkpoint_dir, F_OK) != 0 && told) SHD_TRY(shd_path_make(record->checkpoint_dir, "%s", told));
    if (access(record->checkpoint_dir, F_OK) != 0) {
        record->checkpoint_dir[0] = 0;
        return SHERD_OK;
    }
    return note(record, shd_checkpoint_list_folders(record->checkpoint_dir, &record->checkpoints), "checkpoints");
}

/* Where the complete ones stand; of the newest the job, which older runs have nowhere else, and the size of the model. */
static sherd_status take_checkpoints(shd_run_record *record) {
    const shd_checkpoint_entry *newest = NULL;
    shd_checkpoint *checkpoint;
    for (int64_t i = 0; i < record->checkpoints.count; i++) {
        if (!record->checkpoints.entries[i].is_step || record->checkpoints.entries[i].flaw) continue;
        newest = &record->checkpoints.entries[i];
        SHD_TRY(mark_lane(record, "on disk", newest->step));
    }
    if (!newest) return SHERD_OK;
    /* Retention may remove it meanwhile: that is no failure of the report. */
    sherd_status status = shd_checkpoint_open(newest->path, &checkpoint);
    if (status != SHERD_OK) return status == SHERD_MEMORY ? status : SHERD_OK;
    const shd_checkpoint_manifest *manifest = shd_checkpoint_content(checkpoint);
    record->parameter_count = 0;
    for (int32_t t = 0; t < manifest->tensor_count; t++)
        record->parameter_count += manifest->values[(int64_t)t * (1 + manifest->state_count)].element_count;
    json_t *all = NULL;
    if (!record->job && manifest->note &&
        shd_json_parse(manifest->note, (int64_t)strlen(manifest->note), &all) == SHERD_OK) {
        record->job = json_incref(json_object_get(all, "job"));
        record->job_of_checkpoint = record->job != NULL;
        json_decref(all);
    }
    shd_checkpoint_close(checkpoint);
    return SHERD_OK;
}

sherd_status shd_run_record_read(const char *dir, shd_run_record *record) {
    record->dir = dir;
    record->parameter_count = -1;
    SHD_TRY(read_metrics(record));
    record->alerts = json_array();
    if (!record->alerts) return shd_fail(SHERD_MEMORY, "out of memory for alerts");
    SHD_TRY(read_lines(record, "events.jsonl", take_event, &record->events_lines));
    SHD_TRY(read_lines(record, "alerts.jsonl", take_alert, &record->alerts_lines));
    SHD_TRY(read_object(record, "provenance.json", &record->provenance));
    SHD_TRY(read_object(record, "failure.json", &record->failure));
    record->job = json_incref(json_object_get(record->provenance, "job"));
    const json_t *parameters = json_object_get(json_object_get(record->provenance, "plan"), "parameters");
    if (json_is_integer(parameters)) record->parameter_count = (int64_t)json_integer_value(parameters);
    SHD_TRY(read_checkpoints(record));
    return take_checkpoints(record);
}

void shd_run_record_release(shd_run_record *record) {
    shd_history_release(&record->history);
    for (int32_t i = 0; i < record->event_count; i++) {
        shd_free(record->events[i].kind);
        shd_free(record->events[i].text);
    }
    for (int32_t i = 0; i < record->lane_count; i++) shd_free(record->lanes[i].columns);
    for (int32_t i = 0; i < record->note_count; i++) shd_free(record->notes[i]);
    json_decref(record->alerts);
    json_decref(record->provenance);
    json_decref(record->failure);
    json_decref(record->job);
    shd_checkpoint_list_release(&record->checkpoints);
    *record = (shd_run_record){0};
}

const json_t *shd_record_job(const shd_run_record *record, const char *section, const char *key) {
    return json_object_get(section ? json_object_get(record->job, section) : record->job, key);
}
