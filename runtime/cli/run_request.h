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
        {SHD_RUN_STANDALONE, "standalone", NULL, "One node; whatever is said of a rendezvous is ignored."},            \
        {SHD_RUN_ID, "rdzv-id", "ID", "The job's name, TORCHELASTIC_RUN_ID (default: random)."},                       \
        {SHD_RUN_MASTER_ADDRESS, "master-addr", "HOST", "MASTER_ADDR of the ranks (default 127.0.0.1)."},              \
        {SHD_RUN_MASTER_PORT, "master-port", "PORT", "MASTER_PORT of the ranks (default: a free one)."},               \
        {SHD_RUN_ROLE, "role", "NAME", "ROLE_NAME of the ranks (default: default)."},                                  \
        {'m', "module", "MODULE", "Run a Python module, as python -m does; what follows are its arguments."},          \
        {SHD_RUN_NO_PYTHON, "no-python", NULL, "Execute PROGRAM even if its name ends in .py."}, {                     \
        SHD_RUN_MONITOR_INTERVAL, "monitor-interval", "SECONDS",                                                       \
            "Accepted for torchrun's sake: the end of a rank is noticed at once."                                      \
    }

/* Texts are borrowed from argv. */
typedef struct shd_run_request {
    int32_t rank_count;
    bool standalone, no_python;
    const char *module, *role, *id;
    const char *master_address;
    int master_port; /* 0: not given */
    char address_room[256];
} shd_run_request;
#define SHD_RUN_REQUEST_INIT                                                                                           \
    { .rank_count = 1 }

/* Takes an option of SHD_RUN_OPTIONS. False, with what is wrong said, for a value that is none. */
bool shd_run_request_take(shd_run_request *request, const shd_command *command, int id, const char *value);
/* Whether all fits together; false, with what is wrong said. */
bool shd_run_request_check(const shd_run_request *request, const shd_command *command);
/* The arguments that ranks are executed with: `operands`, behind Python where they are for it. Ends with NULL; free it.
 * NULL: no memory. */
char **shd_run_request_program(const shd_run_request *request, char **operands);
void shd_run_request_fill(const shd_run_request *request, shd_launch *launch);

#endif
