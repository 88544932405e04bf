#include "runtime/report/page.h"

#include "runtime/base/memory.h"
#include "runtime/base/status.h"
#include "runtime/report/chart_parts.h"
#include "runtime/report/markup.h"

#include <string.h>

static void write_head(shd_text *out, const shd_run_record *record) {
    const char *name = json_string_value(shd_record_job(record, NULL, "name"));
    shd_text_add(
        out,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
        "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
        "<meta name=\"color-scheme\" content=\"light dark\">\n"
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
        "script-src 'sha256-%s'\">\n<title>",
        shd_page_script_hash);
    shd_markup_text(out, name ? name : record->dir);
    shd_text_add(out, " &middot; sherd report</title>\n<style>\n%s</style>\n</head>\n<body>\n", shd_page_style);
}

/* Of training, until each column begins; *out is NULL where rows do not tell. Owns: shd_free(*out). */
static sherd_status sum_times(const shd_history *history, double **out) {
    const shd_curve *curve = shd_history_find(history, "step_ms");
    *out = NULL;
    if (!curve) return SHERD_OK;
    double *elapsed_ms = shd_alloc((size_t)history->column_count, sizeof *elapsed_ms), sum = 0;
    if (!elapsed_ms) return shd_fail(SHERD_MEMORY, "out of memory for the times of a report");
    for (int32_t c = 0; c < history->column_count; c++) {
        elapsed_ms[c] = sum;
        sum += curve->columns[c].sum;
    }
    *out = elapsed_ms;
    return SHERD_OK;
}

/* What breaks the course of a run. */
static void take_guides(shd_canvas *canvas, const shd_run_record *record) {
    static const char *const kinds[] = {"resume", "restart", "rollback", "failure"};
    for (int32_t i = 0; i < record->event_count; i++)
        for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
            const shd_record_event *event = &record->events[i];
            if (strcmp(event->kind, kinds[k]) != 0 || event->step < 0) continue;
            if (canvas->guide_count == SHD_CHART_GUIDES) {
                canvas->guide_count = 0; /* as many lines would be a grid */
                return;
            }
            canvas->guides[canvas->guide_count++] = (double)shd_event_row(event->step);
        }
}

static void write_data(shd_text *out, const shd_canvas *canvas, const char *charts) {
    const shd_history *history = canvas->history;
    shd_text_add(
        out,
        "<script type=\"application/json\" id=\"data\">\n{\"first\":%lld,\"last\":%lld,\"width\":%lld,\"columns\":%d",
        (long long)history->first_step, (long long)history->last_step, (long long)history->width,
        (int)history->column_count);
    shd_text_add(out, ",\"elapsed\":[");
    for (int32_t c = 0; canvas->elapsed_ms && c < history->column_count; c++) {
        if (c > 0) shd_text_add(out, ",");
        shd_markup_number(out, canvas->elapsed_ms[c] / 1e3, 6);
    }
    shd_text_add(out, "],\n\"charts\":[%s]}\n</script>\n<script>%s</script>\n", charts, shd_page_script);
}

static sherd_status write_course(shd_text *out, const shd_run_record *record) {
    shd_text data = {0};
    shd_canvas canvas = {.history = &record->history, .html = out, .data = &data};
    if (record->history.row_count == 0) {
        shd_text_add(out, "<p>metrics.jsonl has no rows yet.</p>\n");
        return SHERD_OK;
    }
    double *elapsed_ms;
    SHD_TRY(sum_times(&record->history, &elapsed_ms));
    canvas.elapsed_ms = elapsed_ms;
    take_guides(&canvas, record);
    shd_page_lanes(&canvas, record);
    sherd_status status = shd_page_charts(&canvas, record);
    shd_text_add(&data, "%s", "");
    char *charts = NULL;
    sherd_status finished = shd_text_finish(&data, &charts);
    if (status == SHERD_OK) status = finished;
    if (status == SHERD_OK) write_data(out, &canvas, charts);
    shd_free(charts);
    shd_free(elapsed_ms);
    return status;
}

sherd_status shd_page_make(const shd_run_record *record, double made_s, char **html) {
    shd_text out = {0};
    write_head(&out, record);
    shd_page_summary(&out, record, made_s);
    shd_text_add(&out, "<main>\n");
    shd_page_troubles(&out, record);
    sherd_status status = write_course(&out, record);
    shd_page_events(&out, record);
    shd_page_alerts(&out, record);
    shd_page_checkpoints(&out, record);
    shd_page_job(&out, record);
    shd_page_provenance(&out, record);
    shd_text_add(&out, "</main>\n</body>\n</html>\n");
    char *text = NULL;
    sherd_status finished = shd_text_finish(&out, &text);
    if (status == SHERD_OK) status = finished;
    if (status == SHERD_OK)
        *html = text;
    else
        shd_free(text);
    return status;
}
