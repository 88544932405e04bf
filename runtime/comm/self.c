/* One rank alone: private arenas, counters of its own, no communication. Nothing can be announced or missed, nobody
 * else can fail, so the optional slots stay empty. */
#include "runtime/comm/backend.h"

#include "runtime/base/memory.h"
#include "runtime/base/status.h"
#include "runtime/comm/wide.h"

#include <string.h>

typedef struct self {
    shd_pool *pool;
    int32_t unit_count;
    int64_t exported_bytes, host_bytes;
    void *exported, *host;
    int64_t *counters; /* [SHD_COMM_COUNTER_KINDS][unit_count] */
    int64_t posted, mail_bytes;
    unsigned char mail[SHD_COMM_EXCHANGE_BYTES];
    bool failed;
    shd_comm_failure failure;
} self;

static void self_close(void *state) {
    self *comm = state;
    shd_unmap(comm->exported, comm->exported_bytes);
    shd_unmap(comm->host, comm->host_bytes);
    shd_free(comm->counters);
    shd_free(comm);
}

static sherd_status self_open(const shd_comm_config *config, void **state) {
    self *comm = shd_alloc(1, sizeof *comm);
    if (!comm) return shd_fail(SHERD_MEMORY, "no memory for a communicator");
    comm->pool = config->pool;
    comm->unit_count = config->unit_count;
    comm->exported_bytes = config->exported_bytes;
    comm->host_bytes = config->host_bytes;
    comm->counters = shd_alloc((size_t)config->unit_count, SHD_COMM_COUNTER_KINDS * sizeof *comm->counters);
    if (config->exported_bytes) comm->exported = shd_map(config->exported_bytes);
    if (config->host_bytes) comm->host = shd_map(config->host_bytes);
    if (!comm->counters || (config->exported_bytes && !comm->exported) || (config->host_bytes && !comm->host)) {
        self_close(comm);
        return shd_fail(SHERD_MEMORY, "no memory for arenas of %lld and %lld bytes", (long long)config->exported_bytes,
                        (long long)config->host_bytes);
    }
    *state = comm;
    return SHERD_OK;
}

static void *self_exported(void *state, int32_t rank) {
    (void)rank;
    return ((self *)state)->exported;
}

static void *self_host(void *state) { return ((self *)state)->host; }

static void self_signal(void *state, int32_t kind, int32_t unit) {
    self *comm = state;
    comm->counters[kind * comm->unit_count + unit]++;
}

static int64_t self_counter(const void *state, int32_t rank, int32_t kind, int32_t unit) {
    (void)rank;
    const self *comm = state;
    return comm->counters[kind * comm->unit_count + unit];
}

static sherd_status self_gather(void *state, void *full, const void *shard, int64_t shard_bytes) {
    const unsigned char *source = shard;
    shd_wide_gather(((self *)state)->pool, full, &source, 1, 0, shard_bytes);
    return SHERD_OK;
}

static sherd_status self_reduce(void *state, float *accumulator, const void *contribution, sherd_dtype dtype,
                                int64_t shard_count, bool first, uint64_t *nonfinite) {
    shd_wide_fold(((self *)state)->pool, accumulator, &contribution, dtype, 1, shard_count, first, nonfinite);
    return SHERD_OK;
}

static void self_post(void *state, int64_t number, const void *mine, int64_t bytes) {
    self *comm = state;
    if (bytes) memcpy(comm->mail, mine, (size_t)bytes);
    comm->mail_bytes = bytes;
    comm->posted = number;
}

static int64_t self_posted(const void *state, int32_t rank) {
    (void)rank;
    return ((const self *)state)->posted;
}

static const void *self_mail(void *state, int32_t rank, int64_t number, int64_t *bytes) {
    (void)rank, (void)number;
    self *comm = state;
    *bytes = comm->mail_bytes;
    return comm->mail;
}

static void self_fail(void *state, const shd_comm_failure *failure) {
    self *comm = state;
    if (comm->failed) return;
    comm->failure = *failure;
    comm->failed = true;
}

static bool self_failed(const void *state, shd_comm_failure *out) {
    const self *comm = state;
    if (comm->failed && out) *out = comm->failure;
    return comm->failed;
}

const shd_backend shd_backend_self = {
    .name = "self",
    .open = self_open,
    .close = self_close,
    .exported = self_exported,
    .host = self_host,
    .signal = self_signal,
    .counter = self_counter,
    .gather = self_gather,
    .reduce = self_reduce,
    .post = self_post,
    .posted = self_posted,
    .mail = self_mail,
    .fail = self_fail,
    .failed = self_failed,
};
