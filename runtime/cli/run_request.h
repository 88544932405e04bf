/* What `sherd run` was asked for: torchrun's options, as far as they concern where ranks run. */
#ifndef SHD_CLI_RUN_REQUEST_H
#define SHD_CLI_RUN_REQUEST_H

#include "runtime/cli/options.h"
#include "runtime/launch/launch.h"

enum {
    SHD_RUN_NODES = 1200,
    SHD_RUN_NODE_RANK,
    SHD_RUN_BACKEND,
    SHD_RUN_ENDPOINT,
    SHD_RUN_ID,
    SHD_RUN_CONF,
    SHD_RUN_SECRET_FILE,
    SHD_RUN_MASTER_ADDRESS,
    SHD_RUN_MASTER_PORT,
    SHD_RUN_LOCAL_ADDRESS,
    SHD_RUN_STANDALONE,
    SHD_RUN_ROLE,
    SHD_RUN_MONITOR_INTERVAL,
    SHD_RUN_NO_PYTHON
};

#define SHD_RUN_OPTIONS                                                                                                \
    {'n', "nproc-per-node", "N",                                                                                       \
     "Ranks to start on this node (default 1); cpu: one for each CPU this process may use, gpu: one\n"                 \
     "for each GPU, auto: gpu where there are GPUs, else cpu."},                                                       \
        {SHD_RUN_NODES, "nnodes", "N",                                                                                 \
         "Nodes of the job (default 1), each with a 'sherd run' of its own that has the same options."},               \
        {SHD_RUN_NODE_RANK, "node-rank", "N",                                                                          \
         "This node's number, from 0 (default: as they come; 0 is the host of --rdzv-endpoint)."},                     \
        {SHD_RUN_ENDPOINT, "rdzv-endpoint", "HOST[:PORT]",                                                             \
         "Node 0, as all nodes reach it, and the port where they meet (default 29400)."},                              \
        {SHD_RUN_SECRET_FILE, "rdzv-secret-file", "FILE",                                                              \
         "The secret by which nodes know each other, the same on all of them; or in the variable\n"                    \
         "SHERD_RDZV_SECRET. At least 16 bytes: openssl rand -hex 32 makes one."},                                     \
        {SHD_RUN_ID, "rdzv-id", "ID", "The job's name, TORCHELASTIC_RUN_ID (default: random)."},                       \
        {SHD_RUN_BACKEND, "rdzv-backend", "NAME", "c10d and static are accepted, and mean the same here."},            \
        {SHD_RUN_CONF, "rdzv-conf", "KEY=VALUE,...",                                                                   \
         "join_timeout: seconds until all nodes are there (default 600); keep_alive_interval (1) and\n"                \
         "keep_alive_max_attempt (8): a node that is silent for so many intervals is lost."},                          \
        {SHD_RUN_STANDALONE, "standalone", NULL, "One node; whatever is said of a rendezvous is ignored."},            \
        {SHD_RUN_MASTER_ADDRESS, "master-addr", "HOST",                                                                \
         "MASTER_ADDR of the ranks (default 127.0.0.1; of several nodes node 0, as --rdzv-endpoint has\n"              \
         "it); of several nodes without --rdzv-endpoint: node 0."},                                                    \
        {SHD_RUN_MASTER_PORT, "master-port", "PORT",                                                                   \
         "MASTER_PORT of the ranks (default: one that is free on the host of rank 0); of several nodes\n"              \
         "without --rdzv-endpoint: where they meet (default 29500)."},                                                 \
        {SHD_RUN_LOCAL_ADDRESS, "local-addr", "HOST", "Given to node 0: the same as --master-addr there."},            \
        {SHD_RUN_ROLE, "role", "NAME", "ROLE_NAME of the ranks (default: default)."},                                  \
        {'m', "module", "MODULE", "Run a Python module, as python -m does; what follows are its arguments."},          \
        {SHD_RUN_NO_PYTHON, "no-python", NULL, "Execute PROGRAM even if its name ends in .py."}, {                     \
        SHD_RUN_MONITOR_INTERVAL, "monitor-interval", "SECONDS",                                                       \
            "Accepted for torchrun's sake: the end of a rank is noticed at once."                                      \
    }

/* Texts are borrowed from argv and the environment. */
typedef struct shd_run_request {
    int32_t rank_count;
    int32_t node_count, node; /* node: -1 where it was not given */
    bool standalone, no_python;
    const char *module, *role, *id;
    char endpoint_host[256], master_host[256], local_host[256]; /* "": not given */
    int endpoint_port, master_port;                             /* 0: not given */
    const char *secret_file;
    double join_timeout_s, beat_s, beats; /* of --rdzv-conf */
    shd_nodes_config nodes;               /* made by shd_run_request_fill */
} shd_run_request;
#define SHD_RUN_REQUEST_INIT                                                                                           \
    { .rank_count = 1, .node_count = 1, .node = -1, .join_timeout_s = 600, .beat_s = 1, .beats = 8 }

/* Takes an option of SHD_RUN_OPTIONS. False, with what is wrong said, for a value that is none. */
bool shd_run_request_take(shd_run_request *request, const shd_command *command, int id, const char *value);
/* Whether all fits together, what follows from the rest filled in; false, with what is wrong said. */
bool shd_run_request_check(shd_run_request *request, const shd_command *command);
/* The arguments that ranks are executed with: `operands`, behind Python where they are for it. Ends with NULL; free it.
 * NULL: no memory. */
char **shd_run_request_program(const shd_run_request *request, char **operands);
/* Fills what of *launch it says; borrows `request`. False, with what is wrong said: the secret cannot be read. */
bool shd_run_request_fill(shd_run_request *request, shd_launch *launch);

#endif
