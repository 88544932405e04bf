/* Folders of checkpoints below one parent: names, how one comes to be complete, what is there, what is removed.
 *
 *   step-%08d                  a complete checkpoint: a folder gets this name by one rename, after everything in it,
 *                              and the folder itself, is on disk. Only such names are ever looked for.
 *   step-%08d.partial-%016x    being written, or being removed, by the job with this id; or what a killed one left
 *   step-%08d.replaced-%016x   complete, and in the place of step-%08d while there is no such folder: only for an
 *                              instant, and only where the file system cannot exchange two names (renameat2,
 *                              RENAME_EXCHANGE)
 *   step-%08d.aside-%016x      complete, of a branch that a job has left by going on from an older step: nobody looks
 *                              for it, nobody removes it
 *
 * Whenever the process is killed, and whenever power fails, each step that was ever committed and not given up has one
 * complete checkpoint under a name that shd_checkpoint_find knows. What is removed first gets a .partial name, is
 * unlinked from there, and so is never seen in half.
 *
 * Nothing is followed that is a symbolic link, nothing touched that has another name, and a folder that holds anything
 * but rank-%05d.bin and manifest.json is left as it is, and said to be.
 *
 * WHOSE A PARTIAL FOLDER IS. Every rank that writes into one holds two shared locks (flock), which the kernel drops
 * with the process: one on the folder, from shd_checkpoint_partial_enter on, and one on its file, from its creation to
 * the end of the save. A partial folder is removed only by who has exclusive locks on it and on every rank file in it,
 * and keeps them until the folder is gone. So, where locks work:
 *   - A rank that has entered keeps its folder: its lock is in the way. It keeps it until the save's end.
 *   - A rank that comes to a folder about to be removed waits for its lock, then finds that the path is gone, or is of
 *     another folder, and makes a new one (shd_checkpoint_partial_enter compares both after it has the lock). So nobody
 *     writes into a folder that is removed, and there is no moment between making and locking that matters.
 *   - Network file systems may keep a folder's lock to the host that took it, while those on files are known to all.
 *     Then a rank of another host is only seen by its file. Files of which none is locked are of a save that can no
 *     longer be committed, by anybody: a rank lets its file go only after the commit, which renames the folder, or
 *     after giving the save up. A folder without files may be about to get its first one: it is removed by rmdir, which
 *     leaves a folder that has got it; a rank that comes an instant later fails to make its file, and says so. No
 *     checkpoint is lost by it.
 *   - Where flock is not supported nothing is ever removed, which is said once a call.
 *
 * All functions: paths and system errors are in the cause. Threads: any, on different steps, unless said. */
#ifndef SHD_IO_CHECKPOINT_FOLDER_H
#define SHD_IO_CHECKPOINT_FOLDER_H

#include "io/checkpoint.h"
#include "io/file.h"

#include <stdbool.h>
#include <stdint.h>

/* `parent`/step-%08d. Fails: ARGUMENT (too long). */
sherd_status shd_checkpoint_step_path(char out[SHD_PATH_BYTES], const char *parent, int64_t step);
/* `parent`/step-%08d.partial-%016x, where the job `id` writes. An id is a random number of one session. Likewise. */
sherd_status shd_checkpoint_partial_path(char out[SHD_PATH_BYTES], const char *parent, int64_t step, uint64_t id);

/* The path of the checkpoint at `path`: `path` itself, or the one with the most steps in it. *found is NULL when there
 * is none (also when `path` does not exist); release it with shd_free. Folders without a manifest, partial ones and
 * foreign names do not count. Fails: IO (`path`, or a newer step-* folder in it, cannot be looked into), MEMORY. */
sherd_status shd_checkpoint_find(const char *path, char **found);

/* Makes the partial folder at `path`, and what is missing above it, unless a peer has, and says that it is somebody's
 * until shd_file_close(*descriptor): hold it until the save's end, and make no file in the folder without.
 * Fails: IO, ARGUMENT. */
sherd_status shd_checkpoint_partial_enter(const char *path, int *descriptor);

/* Makes `parent`/step-%08d.partial-`id` the complete checkpoint of manifest->step, once every rank's file is written;
 * in place of an older one of this step. Rank 0 only. Checks that all rank files are there and that together they hold
 * every element of every parameter and state in the dtype that it is to have, writes the manifest beside them and
 * renames once. Fails: DATA (the note is no JSON object; a file is missing or damaged; elements that no rank wrote),
 * ARGUMENT (a name that is not UTF-8), IO, MEMORY. Then the older one is as it was, and the partial folder can be
 * discarded. */
sherd_status shd_checkpoint_commit(const char *parent, uint64_t id, const shd_checkpoint_manifest *manifest);

/* Removes the partial folder after a save that failed, when every rank has let it go: no lock is asked for. Best effort:
 * what cannot be removed stays and does no harm. */
void shd_checkpoint_discard(const char *parent, int64_t step, uint64_t id);
/* The same by a rank that gives up alone, while others may still write there or commit it: it is removed only when it is
 * nobody's any more, as leftovers are. */
void shd_checkpoint_abandon(const char *parent, int64_t step, uint64_t id);

/* Removes the partial folders that are nobody's, finishes or takes back what was being replaced. To be called by one
 * process at a time: by whoever has claimed `parent`. *removed is how many partial folders are gone. What cannot be
 * removed stays, and is logged.
 * Fails: IO (`parent` cannot be listed; one that does not exist is empty), MEMORY. */
sherd_status shd_checkpoint_clear_leftovers(const char *parent, int32_t *removed);

/* What stays when a new checkpoint is complete. */
typedef struct shd_checkpoint_retention {
    int32_t keep;       /* the newest so many, by steps; 0: all */
    int64_t keep_every; /* and those whose steps it divides; 0: none of them */
} shd_checkpoint_retention;

/* Removes the complete checkpoints of fewer than `newest` steps, the ones that `retention` lets go. `newest` has just
 * been committed, counts as the first that is kept, and stays, as do those of more steps. Damaged ones are neither
 * counted nor removed, and one that somebody reads stays until the next call. `id` as above. Best effort: what cannot be removed is logged and stays whole. */
void shd_checkpoint_retain(const char *parent, const shd_checkpoint_retention *retention, int64_t newest, uint64_t id);

/* Renames every step-%08d of more than `step` steps, complete or not, to .aside-`id`, durably: they are of a branch
 * that a job has left by going on from `step`. To be called before the first commit after that, never after it: killed
 * between both, the newest is then `step`, where the other way round it would be the branch's. *moved is how many.
 * Fails: IO, MEMORY; some may have been renamed then. */
sherd_status shd_checkpoint_move_aside(const char *parent, int64_t step, uint64_t id, int32_t *moved);

/* One folder called step-*. */
typedef struct shd_checkpoint_entry {
    int64_t step; /* -1: the name has none */
    const char *name;
    const char *path;
    bool is_step;     /* it stands for its step: is called step-%08d, or in the place of one */
    const char *flaw; /* why it is no complete checkpoint of this parent, in words; NULL: it is one */
    /* Of complete ones, and of others with a whole manifest; else 0. */
    int64_t time_s, raw_bytes, stored_bytes;
} shd_checkpoint_entry;

typedef struct shd_checkpoint_list {
    shd_checkpoint_entry *entries; /* by step, then by name */
    int64_t count;
    struct shd_keep *keep; /* has everything */
} shd_checkpoint_list;

/* All folders called step-* in `parent`: complete ones, with files of the size that the manifest says (no value is
 * read), and others with what is wrong. Owns: release with shd_checkpoint_list_release. Fails: IO (`parent` cannot be
 * listed), DATA (it does not exist), MEMORY. */
sherd_status shd_checkpoint_list_folders(const char *parent, shd_checkpoint_list *out);
/* Accepts one that is all zero. */
void shd_checkpoint_list_release(shd_checkpoint_list *list);

#endif
