/* What the folder of a run has: metrics.jsonl, and all or none of events.jsonl, alerts.jsonl, provenance.json,
 * failure.json and checkpoints. Nobody vouches for any of it. */
#ifndef SHD_REPORT_RUN_RECORD_H
#define SHD_REPORT_RUN_RECORD_H

#include "io/checkpoint_folder.h"
#include "io/file.h"
#include "runtime/report/history.h"
#include "runtime/report/line_reader.h"

enum {
    SHD_RECORD_EVENTS = 1000, /* that are kept: the first half of them, and the last */
    SHD_RECORD_ALERTS = 200,  /* the first ones */
    SHD_RECORD_EXAMPLES = 16, /* of the batch of one */
    SHD_RECORD_LANES = 16,
    SHD_RECORD_NOTES = 16
};

typedef struct shd_record_event {
    double time_s; /* since 1970; 0: not told */
    int64_t
        step; /* steps that were done, or number of the step from 1: row `step` - 1 of metrics.jsonl; -1: not told */
    int64_t rank; /* -1: not told */
    char *kind, *text;
} shd_record_event;

/* All events of one kind; "on disk": complete checkpoints. */
typedef struct shd_record_lane {
    char kind[32];
    int64_t count;
    bool *columns; /* of the history: there was one */
} shd_record_lane;

typedef struct shd_run_record {
    const char *dir;     /* borrowed */
    shd_history history; /* reduced to at most SHD_DRAWN_COLUMNS columns */
    shd_line_counts metrics_lines, events_lines, alerts_lines;
    shd_record_event events[SHD_RECORD_EVENTS];
    int32_t event_count; /* of those kept */
    int64_t events_dropped;
    shd_record_lane lanes[SHD_RECORD_LANES]; /* by first appearance; kinds beyond are in no lane */
    int32_t lane_count;
    double first_time_s, last_time_s; /* of the events; 0: none has a time */
    json_t
        *alerts; /* a list; each with SHD_RECORD_EXAMPLES of its batch at most, and "batch_left_out", how many more */
    json_t *provenance, *failure; /* NULL: there is none */
    json_t *job;                  /* as resolved: provenance.json's, else that of the newest checkpoint; may be NULL */
    bool job_of_checkpoint;
    int64_t parameter_count; /* of the model; -1: not known */
    char checkpoint_dir[SHD_PATH_BYTES];
    shd_checkpoint_list checkpoints;
    char *notes[SHD_RECORD_NOTES]; /* what could not be read, and why */
    int32_t note_count;
} shd_run_record;

/* Reads it all. `record` is some 100 KiB, and all zero before. Files other than metrics.jsonl that cannot be read become
 * notes. Owns: release with shd_run_record_release, also after a failure. Fails: DATA (`dir` has no metrics.jsonl), IO (it
 * cannot be read), MEMORY. */
sherd_status shd_run_record_read(const char *dir, shd_run_record *record);
void shd_run_record_release(shd_run_record *record);

/* The row of metrics.jsonl that an event's step means: events count what is done, from 1, rows from 0. */
int64_t shd_event_row(int64_t step);

/* A value of the job; NULL: it is not known. `section` may be NULL. */
const json_t *shd_record_job(const shd_run_record *record, const char *section, const char *key);

#endif
