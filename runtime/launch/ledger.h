/* The messages of all nodes, in one order, kept in the store: whoever reads them reads the same.
 *
 * A thread writes, so that whoever watches ranks never waits for a node 0 that hangs. Another one reads on, and wakes the
 * thread that opened the ledger, by SIGCHLD, which that one awaits anyway. It also beats:
 * it counts up in the store, so that node 0, whose process serves the store, can tell a node that is gone (which it then
 * messages as LOST) from one that is quiet. */
#ifndef SHD_LAUNCH_LEDGER_H
#define SHD_LAUNCH_LEDGER_H

#include "runtime/comm/store.h"
#include "runtime/launch/message.h"

typedef struct shd_ledger_config {
    const shd_store_config *store; /* to read by; borrowed while the ledger is open */
    shd_store *writer;             /* to write by: the writing thread's from the first shd_ledger_add on */
    int32_t node, node_count;
    bool watches;        /* node 0: messages who is lost */
    double beat_s;       /* between signs of life */
    double lost_after_s; /* without one */
} shd_ledger_config;

typedef struct shd_ledger shd_ledger;

/* Starts to read at the first message. SIGCHLD must be blocked in this thread. Fails: as shd_store_connect, MEMORY, INTERNAL (no
 * thread). */
sherd_status shd_ledger_open(const shd_ledger_config *config, shd_ledger **ledger);
/* The launcher's number among all that have come, from 1 on. Before the first shd_ledger_add. Fails: as calls on a store. */
sherd_status shd_ledger_number(shd_ledger *ledger, int32_t *launcher);
/* Adds a message behind all that are there, soon; returns at once. Where that does not work the ledger is broken. Fails:
 * MEMORY. Threads: the opening one. */
sherd_status shd_ledger_add(shd_ledger *ledger, const shd_message *message);
/* The next message that was not taken. False: there is none yet. Threads: the opening one. */
bool shd_ledger_take(shd_ledger *ledger, shd_message *message);
/* Whether one that was not taken asks for a stop. */
bool shd_ledger_stop_waits(shd_ledger *ledger);
/* Why no more messages will come; NULL: they may. Borrowed. */
const char *shd_ledger_broken(shd_ledger *ledger);
/* How many messages there are now, taken or not. Before the first shd_ledger_add. Fails: as calls on a store. */
sherd_status shd_ledger_count(shd_ledger *ledger, int64_t *count);
/* Writes what was added, ends the threads and frees; the store's connection for writing stays open. Accepts NULL. */
void shd_ledger_close(shd_ledger *ledger);

/* Keys of the store: a node's place, its signs of life. */
enum { SHD_LEDGER_KEY_BYTES = 64 };
void shd_ledger_place_key(char *key, int32_t node);
void shd_ledger_beat_key(char *key, int32_t node);

#endif
