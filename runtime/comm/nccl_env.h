/* The environment as NCCL reads it. */
#ifndef SHD_COMM_NCCL_ENV_H
#define SHD_COMM_NCCL_ENV_H

#include <sherd/status.h>
#include <stdbool.h>

/* Readies the environment for NCCL's first call: kernels of several communicators start in the order of the calls
 * (NCCL_LAUNCH_ORDER_IMPLICIT=1), since they can lock each other out of the device otherwise. What the user has set
 * stays, and is logged where `tells`. Fails: CONFIG (what the user has set cannot work: named).
 * Threads: while no other reads the environment. */
sherd_status shd_nccl_ready_environment(bool tells);

#endif
