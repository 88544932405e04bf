/* Linked into a sherd whose rank 1 adds up wrongly: one element of every reduce is off by its last bit or so. */
#include "runtime/comm/comm.h"

#include <stdlib.h>
#include <string.h>

sherd_status __real_shd_comm_reduce(shd_comm *comm, float *accumulator, const void *contribution, sherd_dtype dtype,
                                    int64_t shard_count, bool first);
sherd_status __wrap_shd_comm_reduce(shd_comm *comm, float *accumulator, const void *contribution, sherd_dtype dtype,
                                    int64_t shard_count, bool first);
sherd_status __wrap_shd_comm_reduce(shd_comm *comm, float *accumulator, const void *contribution, sherd_dtype dtype,
                                    int64_t shard_count, bool first) {
    sherd_status status = __real_shd_comm_reduce(comm, accumulator, contribution, dtype, shard_count, first);
    const char *rank = getenv("RANK");
    if (rank && strcmp(rank, "1") == 0 && shard_count > 0) accumulator[shard_count / 3] += 0.001f;
    return status;
}
