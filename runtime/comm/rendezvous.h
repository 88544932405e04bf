/* How the ranks of one host find each other and hand each other their memory, whoever started them.
 *
 * Rank 0 listens on an abstract Unix socket named after the user and the job; every other rank connects, says who it is
 * and what it expects, and passes its descriptors; once all have come, rank 0 passes everybody's to everybody. The
 * sockets are then closed: what stays is each rank's life line, a pipe whose other end only that rank holds, so that
 * every rank sees every death. Whoever is not a rank of this job (another user, another program, garbage) is dropped
 * and logged. */
#ifndef SHD_COMM_RENDEZVOUS_H
#define SHD_COMM_RENDEZVOUS_H

#include "runtime/comm/comm.h"

/* Descriptors; -1 where there is none. */
typedef struct shd_meeting {
    int control, host, records;        /* made by rank 0; records: unless ranks have a flight recorder already */
    int exported[SHD_COMM_MAX_RANKS];  /* by rank; -1 when exported_bytes is 0 */
    int life_line[SHD_COMM_MAX_RANKS]; /* by rank: the reading end of its pipe */
} shd_meeting;

/* All -1. */
void shd_meeting_init(shd_meeting *meeting);
/* Closes what is open. */
void shd_meeting_fini(shd_meeting *meeting);

/* Meets the others. `meeting` goes in with this rank's exported memory and life line (rank 0 also: control, host,
 * records) and
 * comes out complete. Owns: the caller closes it, also after a failure. Fails: TIMEOUT (the missing ranks named),
 * MISMATCH (on all ranks; both sides named), PEER (a rank ended meanwhile), COMM. */
sherd_status shd_rendezvous_meet(const shd_comm_config *config, shd_meeting *meeting);

/* Comes to the meeting only to say why this rank cannot take part, so that the others fail with PEER and that cause
 * instead of waiting for it. Takes a second at most; whether anybody heard it is not told. `meeting` as it is; the
 * caller closes it. */
void shd_rendezvous_decline(const shd_comm_config *config, shd_meeting *meeting, const char *cause);

#endif
