#include "tests/watch/made_dumps.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void dumps_make(made_dumps *made, int32_t world_size) {
    static const struct {
        const char *kind, *unit;
        int64_t ms;
        bool collective;
    } step[DUMPS_STEP_EVENTS] = {{"DATA", "", 1, false},
                                 {"FORWARD", "h.0", 20, false},
                                 {"REDUCE", "h.0", 5, true},
                                 {"BACKWARD", "h.0", 40, false},
                                 {"EXCHANGE", "", 2, true}};
    memset(made, 0, sizeof *made);
    made->dumps = (shd_dumps){.world_size = world_size, .there = world_size, .ranks = made->ranks};
    for (int32_t r = 0; r < world_size; r++) {
        made->ranks[r] = (shd_rank_dump){.there = true,
                                         .rank = r,
                                         .written_by = r,
                                         .pid = 100 + r,
                                         .alarm_rank = -1,
                                         .now_ns = 10000000000,
                                         .since_ns = 9000000000,
                                         .step = DUMPS_STEPS - 1,
                                         .host = "here",
                                         .life = "runs",
                                         .activity = "between steps",
                                         .where_kind = "nothing",
                                         .where = "between steps, after step 5",
                                         .events = made->events[r],
                                         .event_count = DUMPS_STEPS * DUMPS_STEP_EVENTS};
        int64_t now_ns = 1000000, collective = 0;
        for (int32_t i = 0; i < DUMPS_STEPS * DUMPS_STEP_EVENTS; i++) {
            int32_t which = i % DUMPS_STEP_EVENTS;
            shd_dump_event *event = &made->events[r][i];
            *event = (shd_dump_event){.step = i / DUMPS_STEP_EVENTS,
                                      .bytes = step[which].collective ? 4096 : 0,
                                      .collective = step[which].collective ? collective++ : -1,
                                      .queued_ns = now_ns,
                                      .started_ns = now_ns,
                                      .ended_ns = now_ns + step[which].ms * 1000000};
            snprintf(event->kind, sizeof event->kind, "%s", step[which].kind);
            snprintf(event->unit, sizeof event->unit, "%s", step[which].unit);
            now_ns = event->ended_ns;
        }
    }
}

static void set(made_dumps *made, int32_t rank, const char *kind, const char *life, const char *where) {
    shd_rank_dump *dump = &made->ranks[rank];
    snprintf(dump->where_kind, sizeof dump->where_kind, "%s", kind);
    snprintf(dump->life, sizeof dump->life, "%s", life);
    snprintf(dump->where, sizeof dump->where, "%s", where);
    snprintf(dump->activity, sizeof dump->activity, "in a step");
}

void dumps_wait(made_dumps *made, int32_t rank, const char *where) { set(made, rank, "wait", "runs", where); }

void dumps_work(made_dumps *made, int32_t rank, const char *life, const char *where) {
    set(made, rank, "work", life, where);
}

shd_dump_event *dumps_collective(made_dumps *made, int32_t rank, int64_t number) {
    for (int64_t i = 0; i < made->ranks[rank].event_count; i++)
        if (made->ranks[rank].events[i].collective == number) return &made->ranks[rank].events[i];
    abort();
}

/* --- files -------------------------------------------------------------------------------------------------------- */

static char folder[64];

static void remove_folder(void) {
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    if (system(command)) fprintf(stderr, "%s is left\n", folder);
}

const char *dumps_folder(void) {
    snprintf(folder, sizeof folder, "/tmp/sherd-dumps-XXXXXX");
    if (!mkdtemp(folder)) abort();
    atexit(remove_folder);
    return folder;
}

void dumps_write(const char *where, const char *name, const char *text) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s", where, name);
    FILE *file = fopen(path, "w");
    if (!file || fputs(text, file) < 0 || fclose(file)) abort();
}

char *dumps_read(const char *where, const char *name) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s", where, name);
    FILE *file = fopen(path, "r");
    if (!file) return NULL;
    char *text = calloc(1, 4 << 20);
    size_t got = text ? fread(text, 1, (4 << 20) - 1, file) : 0;
    fclose(file);
    if (text) text[got] = 0;
    return text;
}
