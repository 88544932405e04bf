/* What the ranks of this host write, taken through pipes: to a file for each stream, and line by line to the
 * launcher's own output.
 *
 * One thread moves it all, so that nothing that happens to the output holds up whoever watches the ranks: it holds no
 * lock while it reads or writes. Files get the bytes as they are. On the launcher's output lines are whole, begin with
 * "[rank3]: ", and can do nothing to the terminal (screen.h); where it is slow, lines are left out there and counted,
 * where it is closed, nothing more is shown: files still get all. A full disk is said once; the job goes on. A disk
 * that hangs holds up ranks that write, and only those: at the end it is given up, with the thread that waits
 * for it. */
#ifndef SHD_LAUNCH_TEE_H
#define SHD_LAUNCH_TEE_H

#include "runtime/launch/routes.h"

#include <sherd/status.h>
#include <stdint.h>

typedef struct shd_tee shd_tee;

typedef struct shd_tee_config {
    const char *folder;       /* files are folder/RANK/{stdout,stderr}.log, RANK being global; NULL: there are none */
    const shd_routes *routes; /* borrowed during shd_tee_start */
    int32_t first_rank;       /* the global rank of local rank 0 */
    int outputs[SHD_STREAMS]; /* descriptors of the launcher's own stdout and stderr */
    /* Lines that begin so are shown without "[rankN]: ", as they say whose they are; NULL: none do. A constant: borrowed
     * for good. */
    const char *own_prefix;
} shd_tee_config;

/* Starts the thread. Fails: MEMORY, IO. */
sherd_status shd_tee_start(const shd_tee_config *config, shd_tee **out);

/* Before the fork of `local_rank`: `ends` gets the descriptors that are to become its stdout and stderr, -1 for one
 * that it inherits. The caller closes those in its own process after the fork, by shd_tee_started. Once a rank. Waits
 * for the disk where a file is to be opened. Fails: IO (file or pipe). */
sherd_status shd_tee_open(shd_tee *tee, int32_t local_rank, int ends[SHD_STREAMS]);
void shd_tee_started(int ends[SHD_STREAMS]);

/* The rank has been reaped: what it has written is taken, its unfinished line too. Does not wait. */
void shd_tee_close_rank(shd_tee *tee, int32_t local_rank);

/* Its last lines (tail.h), after shd_tee_close_rank with all it has written, for which this waits, 2 s at most. */
char *shd_tee_last_lines(shd_tee *tee, int32_t local_rank, int lines);

/* Takes what is left, shows it (a terminal that takes nothing for 2 s is given up), and ends the thread; one that gets
 * no further for 5 s, as its disk hangs, is left to itself, with a warning in the log. Only the last lines can be asked
 * for then. Accepts NULL, and a tee that was stopped before. */
void shd_tee_stop(shd_tee *tee);
/* Accepts NULL. */
void shd_tee_destroy(shd_tee *tee);

#endif
