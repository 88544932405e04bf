/* Who is there, and how an attempt of a job on several nodes ends: worked out from the messages alone, so that all nodes,
 * which read the same messages in the same order, come to the same.
 *
 *     MEET, until every node has said HELLO → RUN, until the first FAILED or LOST, or every node is DONE → OVER
 *
 * After OVER a node may begin the next attempt. A launcher that was called lost is out, whatever it says when it wakes up:
 * another one may have its place. No processes, no network, no clock. */
#ifndef SHD_LAUNCH_ROLL_H
#define SHD_LAUNCH_ROLL_H

#include "runtime/launch/message.h"

#include <sherd/status.h>

enum { SHD_ROLL_MAX_NODES = 1024 };

typedef enum shd_roll_phase { SHD_ROLL_MEET, SHD_ROLL_RUN, SHD_ROLL_OVER } shd_roll_phase;

typedef struct shd_roll {
    shd_roll_phase phase;
    int32_t attempt, node_count;
    int32_t here, done;       /* nodes that have said HELLO, and DONE */
    shd_message *hello, *end; /* [node_count]; node is -1 where there is none */
    shd_message verdict;      /* OVER: the message that decided: FAILED, LOST, BYE, or the last DONE */
    bool stopped;             /* OVER, all DONE: some ended because they were told to stop */
    int stop_signal;          /* of the first STOP; 0: there was none */
    int32_t *heard, *lost;    /* [node_count]; the launcher that was heard last, and the last that was lost; 0: none */
} shd_roll;

/* Fails: MEMORY, ARGUMENT. */
sherd_status shd_roll_init(shd_roll *roll, int32_t node_count);
void shd_roll_fini(shd_roll *roll);

/* Messages of other attempts, and those that come too late, change nothing. */
void shd_roll_apply(shd_roll *roll, const shd_message *message);
/* Whether it comes from a launcher that was called lost before, and so changes nothing. */
bool shd_roll_ignores(const shd_roll *roll, const shd_message *message);
/* The next attempt, of which nobody is there yet. */
void shd_roll_next(shd_roll *roll);
/* Whether the attempt is over because of a failure. */
bool shd_roll_failed(const shd_roll *roll);
/* In RUN: the first rank of `node`; of node_count: how many there are. */
int32_t shd_roll_first_rank(const shd_roll *roll, int32_t node);
/* The nodes that are missing, as "1, 3 and 2 more", for people. */
void shd_roll_missing(const shd_roll *roll, char *text, int bytes);

#endif
