#include "io/timeline.h"

#include "io/file.h"
#include "io/json_line.h"
#include "runtime/base/memory.h"
#include "runtime/base/status.h"

#include <string.h>
#include <unistd.h>

/* Names are of units and instructions; a character may need a second one. */
enum { NAME_BYTES = 200, EVENT_BYTES = 4 * NAME_BYTES + 400 };

/* Viewers take process and thread 0 for the kernel's idle ones, and the number of a thread for its own in all of the trace. */
enum { TRACKS = SHD_TIMELINE_TRACKS };

shd_timeline shd_timeline_make(int64_t origin_ns) { return (shd_timeline){.origin_ns = origin_ns}; }

/* Begins the object of an event of phase `phase`. */
static shd_json_line begin(char bytes[EVENT_BYTES], const char *name, const char *phase, int32_t process,
                           int32_t track) {
    shd_json_line line = shd_json_line_make(bytes, EVENT_BYTES);
    shd_json_line_open(&line, NULL, '{');
    shd_json_line_text(&line, "name", name, NAME_BYTES);
    shd_json_line_text(&line, "ph", phase, 1);
    shd_json_line_integer(&line, "pid", 1 + process);
    shd_json_line_integer(&line, "tid", (1 + process) * TRACKS + track);
    return line;
}

static void add(shd_timeline *timeline, shd_json_line *line) {
    shd_json_line_close(line, '}');
    if (line->full) timeline->text.failed = true;
    shd_text_add(&timeline->text, "%s%s", timeline->text.length ? ",\n" : "", line->bytes);
}

static void add_name(shd_timeline *timeline, const char *what, int32_t process, int32_t track, const char *name) {
    char bytes[EVENT_BYTES];
    shd_json_line line = begin(bytes, what, "M", process, track);
    shd_json_line_open(&line, "args", '{');
    shd_json_line_text(&line, "name", name, NAME_BYTES);
    shd_json_line_close(&line, '}');
    add(timeline, &line);
}

static void add_order(shd_timeline *timeline, const char *what, int32_t process, int32_t track, int32_t order) {
    char bytes[EVENT_BYTES];
    shd_json_line line = begin(bytes, what, "M", process, track);
    shd_json_line_open(&line, "args", '{');
    shd_json_line_integer(&line, "sort_index", order);
    shd_json_line_close(&line, '}');
    add(timeline, &line);
}

void shd_timeline_add_track(shd_timeline *timeline, int32_t process, const char *process_name, int32_t track,
                            const char *name) {
    add_name(timeline, "process_name", process, track, process_name);
    add_order(timeline, "process_sort_index", process, track, process);
    add_name(timeline, "thread_name", process, track, name);
    add_order(timeline, "thread_sort_index", process, track, track);
}

void shd_timeline_add_slice(shd_timeline *timeline, const shd_timeline_slice *slice) {
    char bytes[EVENT_BYTES];
    shd_json_line line = begin(bytes, slice->name, "X", slice->process, slice->track);
    shd_json_line_text(&line, "cat", slice->category, NAME_BYTES);
    shd_json_line_thousandths(&line, "ts", (double)(slice->started_ns - timeline->origin_ns) / 1e3);
    shd_json_line_thousandths(&line, "dur", (double)(slice->ended_ns - slice->started_ns) / 1e3);
    shd_json_line_open(&line, "args", '{');
    if (slice->unit) shd_json_line_text(&line, "unit", slice->unit, NAME_BYTES);
    if (slice->micro_step >= 0) shd_json_line_integer(&line, "micro_step", slice->micro_step);
    if (slice->bytes >= 0) shd_json_line_integer(&line, "bytes", slice->bytes);
    if (slice->sequence >= 0) shd_json_line_integer(&line, "sequence", slice->sequence);
    if (slice->waited_ns >= 0) shd_json_line_thousandths(&line, "waited_us", (double)slice->waited_ns / 1e3);
    shd_json_line_close(&line, '}');
    add(timeline, &line);
}

static sherd_status write_all(const char *path, const char *events, const char *about) {
    static const char head[] = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n",
                      middle[] = "\n],\"otherData\":", tail[] = "}\n";
    const char *const parts[] = {head, events, middle, about, tail};
    int file;
    SHD_TRY(shd_file_create(path, &file));
    sherd_status status = SHERD_OK;
    for (size_t i = 0; i < sizeof parts / sizeof *parts && status == SHERD_OK; i++)
        status = shd_file_write(file, path, parts[i], (int64_t)strlen(parts[i]));
    shd_file_close(file);
    return status;
}

sherd_status shd_timeline_write(shd_timeline *timeline, const char *path, const char *about) {
    char fresh[SHD_PATH_BYTES], *events;
    SHD_TRY(shd_text_finish(&timeline->text, &events));
    sherd_status status = shd_path_make(fresh, "%s.fresh", path);
    if (status == SHERD_OK) status = write_all(fresh, events, about);
    shd_free(events);
    if (status == SHERD_OK) status = shd_path_rename(fresh, path);
    if (status != SHERD_OK) unlink(fresh);
    return status;
}

void shd_timeline_drop(shd_timeline *timeline) {
    shd_free(timeline->text.bytes);
    *timeline = (shd_timeline){0};
}
