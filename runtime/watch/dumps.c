#include "runtime/watch/dumps.h"

#include "runtime/base/memory.h"
#include "runtime/base/status.h"
#include "runtime/base/utf8.h"
#include "runtime/watch/dump.h"

#include <dirent.h>
#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* --- one dump ----------------------------------------------------------------------------------------------------- */

/* As much as there is room for, in whole characters; what terminals would not show becomes a question mark. */
static void take_text(const json_t *value, char *out, size_t bytes) {
    const char *text = json_string_value(value);
    size_t left = text ? json_string_length(value) : 0, used = 0;
    uint32_t code;
    for (int length; left > 0 && (length = shd_utf8_read(text, left, &code)) > 0; text += length) {
        bool shows = shd_utf8_shows(code);
        size_t taken = shows ? (size_t)length : 1;
        if (used + taken >= bytes) break;
        if (shows)
            memcpy(out + used, text, taken);
        else
            out[used] = '?';
        used += taken;
        left -= (size_t)length;
    }
    out[used] = 0;
}

/* Times, steps and bytes, that sums and differences of them do not overflow. */
static bool is_sane(json_int_t value) { return value >= -1 && value < (json_int_t)1 << 60; }

static sherd_status parse_event(const json_t *value, const json_t *units, const char *name, shd_dump_event *out) {
    json_int_t collective, step, bytes, queued, started, ended;
    const json_t *kind;
    json_error_t error;
    int unit, queue;
    if (json_unpack_ex((json_t *)(uintptr_t)value, &error, 0, "{s:o, s:i, s:I, s:I, s:i, s:I, s:I, s:I, s:I}", "kind",
                       &kind, "unit", &unit, "step", &step, "bytes", &bytes, "queue", &queue, "collective", &collective,
                       "queued_ns", &queued, "started_ns", &started, "ended_ns", &ended))
        return shd_fail(SHERD_DATA, "%s: an event is damaged: %s", name, error.text);
    if (!is_sane(step) || !is_sane(bytes) || !is_sane(collective) || !is_sane(queued) || !is_sane(started) ||
        !is_sane(ended))
        return shd_fail(SHERD_DATA, "%s: an event is damaged: a number is out of range", name);
    *out = (shd_dump_event){.step = step,
                            .bytes = bytes,
                            .collective = collective,
                            .queued_ns = queued,
                            .started_ns = started,
                            .ended_ns = ended,
                            .queue = queue};
    take_text(kind, out->kind, sizeof out->kind);
    if (unit >= 0) take_text(json_array_get(units, (size_t)unit), out->unit, sizeof out->unit);
    return SHERD_OK;
}

static sherd_status parse_events(const json_t *events, const json_t *units, const char *name, shd_rank_dump *out) {
    size_t count = json_array_size(events);
    if (!json_is_array(events) || !json_is_array(units) || count > SHD_DUMPS_MAX_EVENTS)
        return shd_fail(SHERD_DATA, "%s: its events are damaged", name);
    out->events = shd_alloc(count, sizeof *out->events);
    if (!out->events) return shd_fail(SHERD_MEMORY, "no memory for %zu events", count);
    for (size_t i = 0; i < count; i++)
        SHD_TRY(parse_event(json_array_get(events, i), units, name, &out->events[out->event_count++]));
    return SHERD_OK;
}

static sherd_status parse(const json_t *root, const char *name, int32_t *world_size, shd_rank_dump *out) {
    int version, rank, world, by, pid;
    json_int_t now, since, step;
    const json_t *host, *alarm, *life, *activity, *kind, *where, *units, *events;
    json_error_t error;
    if (json_unpack_ex((json_t *)(uintptr_t)root, &error, 0,
                       "{s:i, s:i, s:i, s:i, s:i, s:I, s:o, s:o, s:{s:o}, s:{s:o, s:I}, s:{s:o, s:o, s:I}, s:o, s:o}",
                       "sherd_dump", &version, "rank", &rank, "world_size", &world, "written_by", &by, "pid", &pid,
                       "now_ns", &now, "host", &host, "alarm", &alarm, "process", "life", &life, "activity", "name",
                       &activity, "step", &step, "where", "kind", &kind, "text", &where, "since_ns", &since, "units",
                       &units, "events", &events))
        return shd_fail(SHERD_DATA, "%s is no dump of a rank: %s", name, error.text);
    if (version != SHD_DUMP_VERSION)
        return shd_fail(SHERD_DATA, "%s is a dump of version %d; this build reads version %d", name, version,
                        SHD_DUMP_VERSION);
    if (!is_sane(now) || !is_sane(since) || !is_sane(step))
        return shd_fail(SHERD_DATA, "%s: a time or step is out of range", name);
    if (world < 1 || world > SHD_DUMPS_MAX_RANKS || rank < 0 || rank >= world)
        return shd_fail(SHERD_DATA, "%s: rank %d of %d", name, rank, world);
    *out = (shd_rank_dump){.there = true,
                           .rank = rank,
                           .written_by = by,
                           .pid = pid,
                           .alarm_rank = -1,
                           .now_ns = now,
                           .since_ns = since,
                           .step = step};
    take_text(host, out->host, sizeof out->host);
    take_text(life, out->life, sizeof out->life);
    take_text(activity, out->activity, sizeof out->activity);
    take_text(kind, out->where_kind, sizeof out->where_kind);
    take_text(where, out->where, sizeof out->where);
    if (json_is_object(alarm)) {
        out->alarm_rank = (int32_t)json_integer_value(json_object_get(alarm, "rank"));
        take_text(json_object_get(alarm, "text"), out->alarm, sizeof out->alarm);
    }
    const json_t *frames = json_object_get(root, "stack");
    for (size_t i = 0; i < json_array_size(frames) && i < SHD_DUMPS_FRAMES; i++)
        take_text(json_array_get(frames, i), out->stack[out->frame_count++], SHD_DUMPS_NAME_BYTES);
    *world_size = world;
    return parse_events(events, units, name, out);
}

sherd_status shd_dump_parse(const char *text, size_t bytes, const char *name, int32_t *world_size, shd_rank_dump *out) {
    json_error_t error;
    shd_rank_dump dump = {0};
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
    /* What jansson says of it quotes it. */
    if (!root) return shd_fail(SHERD_DATA, "%s is no JSON: line %d, column %d", name, error.line, error.column);
    sherd_status status = parse(root, name, world_size, &dump);
    json_decref(root);
    if (status == SHERD_OK)
        *out = dump;
    else
        shd_free(dump.events);
    return status;
}

/* --- a folder ----------------------------------------------------------------------------------------------------- */

enum { FILE_BYTES_MAX = 512 << 20 };

static sherd_status read_text(const char *path, char **text, size_t *bytes) {
    struct stat facts;
    FILE *file = fopen(path, "re");
    if (!file || fstat(fileno(file), &facts) || !S_ISREG(facts.st_mode) || facts.st_size > FILE_BYTES_MAX) {
        int cause = file ? EINVAL : errno;
        if (file) fclose(file);
        return shd_fail(SHERD_IO, "cannot read %s: %s", path, strerror(cause));
    }
    char *room = shd_alloc((size_t)facts.st_size + 1, 1);
    size_t got = room ? fread(room, 1, (size_t)facts.st_size, file) : 0;
    fclose(file);
    if (!room) return shd_fail(SHERD_MEMORY, "no memory to read %s", path);
    *text = room;
    *bytes = got;
    return SHERD_OK;
}

/* The first dump says how many ranks there are. */
static sherd_status add(shd_dumps *dumps, const char *path, const shd_rank_dump *dump, int32_t world_size) {
    if (!dumps->ranks) {
        dumps->ranks = shd_alloc((size_t)world_size, sizeof *dumps->ranks);
        if (!dumps->ranks) return shd_fail(SHERD_MEMORY, "no memory for the dumps of %d ranks", world_size);
        dumps->world_size = world_size;
        for (int32_t r = 0; r < world_size; r++) dumps->ranks[r].rank = r;
    }
    if (dumps->world_size != world_size || dumps->ranks[dump->rank].there)
        return shd_fail(SHERD_DATA, "%s is the dump of another job than those beside it: rank %d of %d", path,
                        dump->rank, world_size);
    dumps->ranks[dump->rank] = *dump;
    dumps->there++;
    return SHERD_OK;
}

static sherd_status load(shd_dumps *dumps, const char *path) {
    char *text = NULL;
    size_t bytes = 0;
    int32_t world_size = 0;
    shd_rank_dump dump;
    SHD_TRY(read_text(path, &text, &bytes));
    sherd_status status = shd_dump_parse(text, bytes, path, &world_size, &dump);
    shd_free(text);
    SHD_TRY(status);
    status = add(dumps, path, &dump, world_size);
    if (status != SHERD_OK) shd_free(dump.events);
    return status;
}

static bool is_dump(const char *name) {
    size_t length = strlen(name);
    return !strncmp(name, "rank-", 5) && length > 10 && !strcmp(name + length - 5, ".json");
}

static sherd_status load_all(shd_dumps *dumps, const char *dir) {
    char path[PATH_MAX];
    DIR *folder = opendir(dir);
    if (!folder) return shd_fail(SHERD_IO, "cannot open %s: %s", dir, strerror(errno));
    sherd_status status = SHERD_OK;
    for (const struct dirent *entry; status == SHERD_OK && (entry = readdir(folder));) {
        if (!is_dump(entry->d_name)) continue;
        snprintf(path, sizeof path, "%s/%s", dir, entry->d_name);
        status = load(dumps, path);
    }
    closedir(folder);
    if (status == SHERD_OK && dumps->there == 0)
        status = shd_fail(SHERD_DATA, "%s holds no dumps (rank-00000.json …)", dir);
    return status;
}

sherd_status shd_dumps_load(const char *dir, shd_dumps **out) {
    shd_dumps *dumps = shd_alloc(1, sizeof *dumps);
    if (!dumps) return shd_fail(SHERD_MEMORY, "no memory for dumps");
    sherd_status status = load_all(dumps, dir);
    if (status == SHERD_OK)
        *out = dumps;
    else
        shd_dumps_destroy(dumps);
    return status;
}

void shd_dumps_destroy(shd_dumps *dumps) {
    if (!dumps) return;
    for (int32_t r = 0; dumps->ranks && r < dumps->world_size; r++) shd_free(dumps->ranks[r].events);
    shd_free(dumps->ranks);
    shd_free(dumps);
}
