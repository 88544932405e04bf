/* What the dumps of all ranks say together: which rank the others missed, and what it was doing. */
#ifndef SHD_WATCH_JUDGEMENT_H
#define SHD_WATCH_JUDGEMENT_H

#include "runtime/watch/dumps.h"

typedef enum shd_judgement_kind {
    SHD_JUDGED_MISMATCH,  /* ranks issued different collectives at the same place */
    SHD_JUDGED_DEAD,      /* a rank is gone */
    SHD_JUDGED_MISSING,   /* a rank did not arrive where others wait: stopped, hung, or busy with something else */
    SHD_JUDGED_STRAGGLER, /* nobody is missing, but one rank takes longer for its own work than the others */
    SHD_JUDGED_CONSISTENT /* none of these */
} shd_judgement_kind;
/* "mismatch", "dead rank"… */
const char *shd_judgement_text(shd_judgement_kind kind);

/* Source of `slower`: the median over ranks of what they spent on their own work in the steps that all dumps hold. */
typedef struct shd_judgement {
    shd_judgement_kind kind;
    int32_t rank;       /* the culprit; of a mismatch the first rank of the smaller side; -1: none */
    int64_t step;       /* from 0; -1: not known */
    int64_t collective; /* MISMATCH: its number; else -1 */
    double slower;      /* STRAGGLER: its time over the median's */
    char what[256];     /* the collective or wait it is about: "REDUCE h.2"; "": none */
    char text[2000];    /* the verdict in words, sentences */
} shd_judgement;

/* Threads: any. */
void shd_judgement_make(const shd_dumps *dumps, shd_judgement *out);

#endif
