/* The environment of the ranks of this host: torchrun's variables, and what the launcher itself inherited.
 *
 * One place makes them, so that what a rank is told is what docs/LAUNCH.md lists. Variables of an outer launcher that
 * have the same names are never passed on. */
#ifndef SHD_LAUNCH_VARIABLES_H
#define SHD_LAUNCH_VARIABLES_H

#include <sherd/status.h>
#include <stdint.h>

enum { SHD_VARIABLES_MAX = 32 };

/* The secret of a job of several nodes. Ranks have no business with it, on one node either. */
#define SHD_VARIABLES_SECRET "SHERD_RDZV_SECRET"

/* Where the ranks of this host are in the job. Texts are borrowed. */
typedef struct shd_launch_place {
    int32_t local_count;        /* ranks of this host */
    int32_t world_size;         /* of all hosts */
    int32_t first_rank;         /* of this host; its ranks follow each other */
    int32_t node, node_count;   /* this host, of how many */
    int32_t attempt;            /* restarts so far */
    int32_t max_restarts;       /* how many there may be */
    const char *role;           /* ROLE_NAME */
    const char *run_id;         /* TORCHELASTIC_RUN_ID */
    const char *master_address; /* host of rank 0: a name, or a number without brackets */
    int master_port;            /* free for rank 0 to listen on */
} shd_launch_place;

typedef struct shd_variables {
    shd_launch_place place;
    int own_count;
    char *own[SHD_VARIABLES_MAX]; /* "NAME=value", owned */
    char **environment;           /* own ones first, then inherited ones; ends with NULL */
} shd_variables;

/* Fills *variables with all that is the same for every rank: WORLD_SIZE, LOCAL_WORLD_SIZE, GROUP_RANK,
 * GROUP_WORLD_SIZE, ROLE_WORLD_SIZE, ROLE_NAME, MASTER_ADDR, MASTER_PORT, TORCHELASTIC_RUN_ID,
 * TORCHELASTIC_RESTART_COUNT, TORCHELASTIC_MAX_RESTARTS; TORCH_NCCL_ASYNC_ERROR_HANDLING=1 where it is not set, and
 * OMP_NUM_THREADS=1 where it is not set and the host has several ranks. TORCHELASTIC_USE_AGENT_STORE is never set, and
 * SHD_VARIABLES_SECRET never passed on.
 * Fails: MEMORY. */
sherd_status shd_variables_init(shd_variables *variables, const shd_launch_place *place);
/* Accepts a zeroed value. */
void shd_variables_fini(shd_variables *variables);

/* Sets one, for all ranks or the next one to be started, whether inherited, set before, or new; at most
 * SHD_VARIABLES_MAX in all. Fails: MEMORY, INTERNAL (too many). */
sherd_status shd_variables_set(shd_variables *variables, const char *name, const char *value);
/* RANK, LOCAL_RANK and ROLE_RANK of the rank `local_rank` of this host. Fails as _set. */
sherd_status shd_variables_take_rank(shd_variables *variables, int32_t local_rank);

#endif
