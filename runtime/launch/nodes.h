/* This host as one of several nodes of a job: it joins them, meets them before every attempt, tells them how its ranks
 * end, and hears how theirs do.
 *
 * Node 0 serves the store over which they talk (comm/store.h). Its launcher cannot be replaced; that of any other node
 * may be started again while the nodes meet. */
#ifndef SHD_LAUNCH_NODES_H
#define SHD_LAUNCH_NODES_H

#include "runtime/comm/store.h"
#include "runtime/launch/roll.h"
#include "runtime/launch/variables.h"

typedef struct shd_nodes_config {
    int32_t node_count; /* from 2 on */
    int32_t node;       /* -1: as they come; node 0 is then where `host` is an address of this host */
    const char *host;   /* of node 0, as all nodes may call it */
    int32_t port;       /* where node 0 serves the store */
    const char *job;    /* tells the job from others with the same secret */
    shd_store_secret secret;
    const char *local_address; /* what others call this host, which matters on node 0; NULL: `host` */
    int32_t local_count;       /* ranks of this node */
    int32_t max_restarts;
    double join_timeout_s; /* until all nodes are there, each time */
    double beat_s;         /* between signs of life */
    double lost_after_s;   /* without one a node is lost */
} shd_nodes_config;
#define SHD_NODES_CONFIG_INIT                                                                                          \
    { .node = -1, .join_timeout_s = 600, .beat_s = 1, .lost_after_s = 8 }

typedef struct shd_nodes shd_nodes;

/* Takes this host's place among them. Stop signals must be watched: one that comes ends the wait. `config` is borrowed
 * until shd_nodes_leave. Fails: COMM (busy port; refused; the place is taken), TIMEOUT, STATE (told to stop), ARGUMENT,
 * MEMORY, INTERNAL. */
sherd_status shd_nodes_join(const shd_nodes_config *config, shd_nodes **nodes);
/* This node's number. */
int32_t shd_nodes_self(const shd_nodes *nodes);

/* Waits until all nodes are there for the next attempt, the first of which is 0, or later where this node came late. `port`, of node 0: where
 * rank 0 may listen. Fills what of *place depends on other nodes; its texts are borrowed until the next call. Fails:
 * TIMEOUT (who is missing), PEER (node 0 is gone; a node has left), STATE (told to stop, here or there), CONFIG (nodes
 * were told different things). */
sherd_status shd_nodes_meet(shd_nodes *nodes, const char *run_id, int port, shd_launch_place *place);

/* Fails, PEER: the others have gone on without this node, which was silent for too long. */
sherd_status shd_nodes_check(const shd_nodes *nodes);

/* What other nodes have to say. */
typedef enum shd_news { SHD_NEWS_NONE, SHD_NEWS_STOP, SHD_NEWS_OVER } shd_news;
/* STOP, once: a node was told to stop by *signal. OVER: the attempt is, on all nodes, as `verdict` says; from then on
 * always. */
shd_news shd_nodes_hear(shd_nodes *nodes, int *signal);

/* How the attempt ended. */
typedef struct shd_nodes_verdict {
    bool failed;
    bool stopped;        /* not failed: ranks ended because they were told to stop */
    shd_message message; /* failed: FAILED, LOST or BYE */
    const char *host;    /* of its node; borrowed */
    const char *broken;  /* not NULL: the nodes cannot talk any more, and why; borrowed */
} shd_nodes_verdict;
/* After OVER. */
void shd_nodes_get_verdict(const shd_nodes *nodes, shd_nodes_verdict *verdict);

/* Tell the others, who hear it at once: a rank has failed; the ranks of this node have ended without a failure; this
 * node was told to stop. Whatever goes wrong is news of node 0's end, and heard as such. */
void shd_nodes_tell_failed(shd_nodes *nodes, int32_t rank, int32_t pid, int exit_code, int signal);
void shd_nodes_tell_done(shd_nodes *nodes, bool stopped);
void shd_nodes_tell_stop(shd_nodes *nodes, int signal);
/* Whether another node has been told to stop since. */
bool shd_nodes_stop_waits(shd_nodes *nodes);

/* What the first node to be told to stop was told by; 0: none was, as far as has been heard. */
int shd_nodes_stop_signal(const shd_nodes *nodes);

/* Says good-bye; node 0 stays until the others have, or are lost, or as long as it takes to know whether they are, or until
 * a stop signal waits; one that is lost is said in the log. Accepts NULL. */
void shd_nodes_leave(shd_nodes *nodes);

#endif
