/* What the dumps of all ranks say together: which rank the others missed, and what it was doing. */
#ifndef SHD_WATCH_FINDING_H
#define SHD_WATCH_FINDING_H

#include "runtime/watch/dumps.h"

typedef enum shd_finding_kind {
    SHD_FOUND_MISMATCH,  /* ranks issued different collectives at the same place */
    SHD_FOUND_DEAD,      /* a rank is gone */
    SHD_FOUND_MISSING,   /* a rank did not arrive where others wait: stopped, hung, or busy with something else */
    SHD_FOUND_STRAGGLER, /* nobody is missing, but one rank takes longer for its own work than the others */
    SHD_FOUND_CONSISTENT /* none of these */
} shd_finding_kind;
/* "mismatch", "dead rank"… */
const char *shd_finding_text(shd_finding_kind kind);

/* Source of `slower`: the median over ranks of what they spent on their own work in the steps that all dumps hold. */
typedef struct shd_finding {
    shd_finding_kind kind;
    int32_t rank;       /* the culprit; of a mismatch the first rank of the smaller side; -1: none */
    int64_t step;       /* from 0; -1: not known */
    int64_t collective; /* MISMATCH: its number; else -1 */
    double slower;      /* STRAGGLER: its time over the median's */
    char what[140];     /* the collective or wait it is about: "REDUCE h.2"; "": none */
    char text[2000];    /* the verdict in words, sentences */
} shd_finding;

/* Threads: any. */
void shd_finding_make(const shd_dumps *dumps, shd_finding *out);

#endif
