/* What a check has found: a state, a line for people, what to do about it, and the numbers that were measured. */
#ifndef SHD_TRAIN_CHECKS_FINDING_H
#define SHD_TRAIN_CHECKS_FINDING_H

#include <sherd/status.h>
#include <stdbool.h>
#include <stdint.h>

enum { SHD_FINDING_BYTES = 1000, SHD_FINDING_VALUES = 16 };

/* SKIPPED: not made, since it does not apply here, or because of another check's error; the text says which. */
typedef enum shd_check_state { SHD_CHECK_OK, SHD_CHECK_WARNING, SHD_CHECK_ERROR, SHD_CHECK_SKIPPED } shd_check_state;
/* "ok", "warning", "error", "skipped". */
const char *shd_check_state_text(shd_check_state state);

typedef struct shd_finding_value {
    const char *name; /* with its unit, as in metrics.jsonl: "write_bytes_per_s" */
    double number;
} shd_finding_value;

typedef struct shd_finding {
    const char *check; /* its name */
    shd_check_state state;
    sherd_status status;            /* why there is an ERROR; else OK */
    char text[SHD_FINDING_BYTES];   /* one line, UTF-8 */
    char advice[SHD_FINDING_BYTES]; /* what to do; "": nothing, or the text says it */
    shd_finding_value values[SHD_FINDING_VALUES];
    int32_t value_count;
    double ms; /* that the check took */
} shd_finding;

/* Sets the text, and OK. */
void shd_finding_say(shd_finding *finding, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Goes on with the text. */
void shd_finding_add(shd_finding *finding, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Sets what to do about it, and a WARNING where nothing worse is set. */
void shd_finding_warn(shd_finding *finding, const char *advice, ...) __attribute__((format(printf, 2, 3)));
/* Sets what to do about an error that is about to be returned. */
void shd_finding_advise(shd_finding *finding, const char *advice, ...) __attribute__((format(printf, 2, 3)));
/* SKIPPED, and why. */
void shd_finding_skip(shd_finding *finding, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Notes a number; those beyond SHD_FINDING_VALUES are dropped. `name` is a constant. */
void shd_finding_note(shd_finding *finding, const char *name, double number);

/* "1.5 GiB", for texts; in place, no allocation. */
typedef struct shd_bytes_words {
    char text[24];
} shd_bytes_words;
shd_bytes_words shd_bytes_say(double bytes);

#endif
