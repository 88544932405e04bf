/* The same training over and over, told so that two tellings can be compared bit by bit: every step's loss and gradient
 * norm, which every parameter has a part in, and the table at the end. */
#ifndef SHD_TESTS_SESSION_STORY_H
#define SHD_TESTS_SESSION_STORY_H

#include "support/ranks.h"
#include "support/toy.h"

#include <stdbool.h>

enum { BATCH = 24, SAVED_AFTER = 2, STEPS = 4 };

typedef struct story {
    const char *dir;
    bool looped;          /* steps run with callbacks, instead of brackets */
    float table[17 * 33]; /* rank 0's view of the table when the last step began */
    double norms[STEPS], losses[STEPS];
} story;

/* AdamW with clipping on the toy model; world size and rank are run_ranks' affair. */
sherd_options story_options(int ranks, int stage, sherd_gather gather);

/* Trains on to `last` completed steps; rank 0 tells. Returns 0 or a line. */
int take_steps(sherd_session *session, const sherd_options *options, int64_t last, story *told);
/* Whole tellings, for run_ranks; the user is a story. The first saves after SAVED_AFTER steps, with a note, and waits; the
 * second goes on from there. */
int train_and_save(void *user, const sherd_options *options);
int load_and_train(void *user, const sherd_options *options);

/* Whether the steps after the save, and the table, are the same. */
bool is_same_story(const story *a, const story *b);

/* A new folder below /tmp, of which `dir` [40] gets the name. */
void make_folder(char *dir);
void remove_folder(const char *dir);
/* How many entries of `dir` have `part` in their names. */
int count_entries(const char *dir, const char *part);

#endif
