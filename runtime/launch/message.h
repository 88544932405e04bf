/* What nodes of a job tell each other: one line of text a message, the same for everybody, in the order of the ledger. */
#ifndef SHD_LAUNCH_MESSAGE_H
#define SHD_LAUNCH_MESSAGE_H

#include <stdbool.h>
#include <stdint.h>

enum { SHD_MESSAGE_BYTES = 640, SHD_MESSAGE_WORD_BYTES = 128, SHD_MESSAGE_ADDRESS_BYTES = 256 };

/* HELLO: a node is there for an attempt, with so many ranks. FAILED: a rank of it has. DONE: its ranks have ended without
 * a failure. STOP: it was told to. LOST: node 0 has heard nothing of it for too long. BYE: it has left the job. */
typedef enum shd_message_kind {
    SHD_MESSAGE_HELLO,
    SHD_MESSAGE_FAILED,
    SHD_MESSAGE_DONE,
    SHD_MESSAGE_STOP,
    SHD_MESSAGE_LOST,
    SHD_MESSAGE_BYE,
    SHD_MESSAGES
} shd_message_kind;

typedef struct shd_message {
    shd_message_kind kind;
    int32_t node;
    int32_t launcher;                        /* which of all launchers says it, numbered from 1 as they came; LOST: 0 */
    int32_t attempt;                         /* HELLO, FAILED, DONE */
    int32_t count;                           /* HELLO: ranks of the node */
    int32_t node_count, max_restarts;        /* HELLO: as the node was told */
    int32_t port;                            /* HELLO of node 0: where rank 0 may listen */
    int32_t pid;                             /* HELLO: of the launcher; FAILED: of the rank */
    int32_t rank, exit_code, signal;         /* FAILED; STOP: signal */
    bool stopped;                            /* DONE: ranks ended because they were told to stop */
    char host[SHD_MESSAGE_WORD_BYTES];       /* of the node: its own name for itself */
    char run_id[SHD_MESSAGE_WORD_BYTES];     /* HELLO of node 0 */
    char address[SHD_MESSAGE_ADDRESS_BYTES]; /* HELLO of node 0: its host, for others */
} shd_message;

/* Its line, in room of SHD_MESSAGE_BYTES. Texts must have no white space; empty ones are allowed. */
void shd_message_print(const shd_message *message, char *line);
/* False: `line` is no message. */
bool shd_message_read(const char *line, shd_message *message);

#endif
