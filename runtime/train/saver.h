/* When a run saves, and what becomes of its saves.
 *
 * A checkpoint is due at the boundary after a step: by checkpoint.every, when somebody has asked for one (a signal,
 * checkpoint.every_minutes), and at the end of the run, be it the last step or a stop. All but the last are begun and
 * then written while training goes on; what became of one is collected at a later boundary. Only the last one, and a
 * save that is in the way of another (checkpoint.if_busy), is waited for.
 *
 * A save that fails does not end a run by itself: checkpoint.on_error says how many may fail. But a run in which one
 * failed never ends well.
 *
 * Every rank decides the same, from the step and from what all ranks have told each other; the clock of
 * checkpoint.every_minutes is rank 0's, which tells the others (shd_saver_wishes). Threads: the session's. */
#ifndef SHD_TRAIN_SAVER_H
#define SHD_TRAIN_SAVER_H

#include "io/folder.h"
#include "runtime/train/train.h"

#include <sherd/session.h>

/* Failures in a row after which checkpoint.on_error: stop ends a run. */
enum { SHD_SAVE_FAILURES = 3 };

typedef struct shd_saver {
    const shd_job *job;
    sherd_session *session;
    const shd_train_hooks *hooks;
    bool speaks; /* rank 0 logs, and has the clock */
    /* Makes the note of a checkpoint of the state as it is; released with shd_free. */
    sherd_status (*note)(void *user, char **out);
    void *user;
    /* What follows starts at zero, but for the two steps. */
    int64_t begun_step,
        saved_step;     /* of the newest save that was begun, and that is complete: at first where the run starts */
    int64_t seen_count; /* the session's count of ended saves, as far as they were collected */
    bool asked;         /* a save that was asked for and has not begun */
    bool marked;        /* hooks->saving was told true */
    int32_t failures_in_row;
    double begun_ms;      /* when the newest one was begun, or the run */
    double wait_ms;       /* what the saves have kept this rank waiting outside of steps, since it was last taken */
    shd_folder_id folder; /* checkpoint.dir as rank 0 last knew it; inode 0: it does not */
    shd_train_saves total;
    char cause[200]; /* of the save that has failed last, with the rank that failed, if it is another one */
} shd_saver;

/* Before the first save: rank 0 remembers which folder checkpoint.dir is, if it is there, and says when it becomes another. */
void shd_saver_know_folder(shd_saver *saver);

/* Whether rank 0's clock wants a checkpoint: to be told to all ranks with the coming step. Cheap. */
bool shd_saver_wishes(const shd_saver *saver);

/* At a step boundary: collects what has ended, and begins a save when one is due. `asked`: all ranks were told that
 * somebody wants one. `last`: the run ends here; then the state is saved when this returns, unless it fails.
 * Fails: as the save that ends the run by checkpoint.on_error did, or, with `last`, as this one; STATE, COMM and worse.
 * All ranks alike. */
sherd_status shd_saver_boundary(shd_saver *saver, int64_t step, bool asked, bool last);

/* Ends the save that is under way, if one is, and collects what became of it: before the state is replaced, or the run
 * ends without saving. Fails: as shd_saver_boundary. */
sherd_status shd_saver_settle(shd_saver *saver);

/* Saves the state after `step` steps before a run ends that has failed in another way, on all ranks alike and with its
 * session alive; a failure of its own is only logged. */
void shd_saver_rescue(shd_saver *saver, int64_t step);

/* What became of all saves, after the last boundary. Fails: IO, when one has failed; the run may have been complete. */
sherd_status shd_saver_verdict(const shd_saver *saver);

/* saver->wait_ms, which starts at zero again. */
double shd_saver_take_wait(shd_saver *saver);

#endif
