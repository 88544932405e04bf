#include "io/checkpoint_relayout.h"

#include "io/checkpoint_block.h"
#include "io/checkpoint_build.h"
#include "io/checkpoint_reader.h"
#include "runtime/base/arith.h"
#include "runtime/base/dtype.h"
#include "runtime/base/memory.h"
#include "runtime/base/status.h"
#include "shard/reshard.h"

#include <string.h>

/* On its way. */
typedef struct relayout_run {
    const shd_relayout *relayout;
    const shd_checkpoint_manifest *manifest;
    shd_reader *reader;
    void *memory; /* the reader's */
    int64_t memory_bytes;
    shd_build *build;
    int64_t done_bytes;
} relayout_run;

/* The parameter (state 0) or state 1 + i of a tensor. */
static const shd_checkpoint_value *find_value(const relayout_run *run, int32_t tensor, int32_t state) {
    return &run->manifest->values[(int64_t)tensor * (1 + run->manifest->state_count) + state];
}

/* Elements [first, first + count) into the file that is being made, in whole blocks as far as they go. */
static sherd_status copy_range(relayout_run *run, int32_t tensor, int32_t state, int64_t first, int64_t count) {
    const sherd_dtype dtype = find_value(run, tensor, state)->dtype;
    const int64_t most = shd_block_count_max(dtype), end = first + count;
    const shd_reader_config config = {.threads = 1, .memory = run->memory};
    for (int64_t at = first; at < end; at += most) {
        const shd_checkpoint_slice slice = {.tensor = run->manifest->tensors[tensor].name,
                                            .state = state == 0 ? SHD_CHECKPOINT_PARAMETER
                                                                : run->manifest->state_names[state - 1],
                                            .first = at,
                                            .count = shd_min(most, end - at),
                                            .values = shd_build_values(run->build),
                                            .dtype = dtype};
        SHD_TRY(shd_reader_read(run->reader, &slice, 1, &config));
        SHD_TRY(shd_build_add(run->build, &slice));
        run->done_bytes += shd_span_bytes(dtype, slice.count);
        SHD_TRY(shd_advance_tell(run->relayout->advance, run->done_bytes, run->manifest->raw_bytes));
    }
    return SHERD_OK;
}

/* Whether the plan is of the checkpoint's model. */
static sherd_status check_plan(const relayout_run *run) {
    const shd_plan *plan = run->relayout->plan;
    bool same = !plan || plan->tensor_count == run->manifest->tensor_count;
    for (int32_t t = 0; plan && same && t < plan->tensor_count; t++)
        same = strcmp(plan->tensor_names[t], run->manifest->tensors[t].name) == 0;
    if (same && (!plan || plan->policy.state_count <= run->manifest->state_count)) return SHERD_OK;
    return shd_fail(SHERD_DATA, "%s: its job has other tensors or states", shd_checkpoint_path(run->relayout->from));
}

static sherd_status copy_stored(void *user, const shd_stored_range *range) {
    relayout_run *run = user;
    const int32_t state =
        range->whole ? run->relayout->plan->policy.state_count + range->state_index : range->state_index;
    return copy_range(run, range->tensor_index, 1 + state, range->first, range->count);
}

/* The part of `rank` of every value, borders between blocks of 256 elements: no code block is torn. */
static sherd_status copy_evenly(relayout_run *run, int32_t rank) {
    const int32_t ranks = run->relayout->ranks;
    for (int32_t state = 0; state <= run->manifest->state_count; state++)
        for (int32_t tensor = 0; tensor < run->manifest->tensor_count; tensor++) {
            const int64_t count = find_value(run, tensor, state)->element_count;
            const int64_t blocks = shd_div_ceil(count, SHD_CODE_BLOCK_COUNT), part = shd_div_ceil(blocks, ranks);
            const int64_t first = shd_min(count, rank * part * SHD_CODE_BLOCK_COUNT);
            const int64_t end = shd_min(count, (rank + 1) * part * SHD_CODE_BLOCK_COUNT);
            SHD_TRY(copy_range(run, tensor, state, first, end - first));
        }
    return SHERD_OK;
}

static sherd_status write_files(relayout_run *run) {
    for (int32_t rank = 0; rank < run->relayout->ranks; rank++) {
        SHD_TRY(shd_build_begin_file(run->build));
        SHD_TRY(run->relayout->plan ? shd_plan_visit_stored(run->relayout->plan, rank, copy_stored, run)
                                    : copy_evenly(run, rank));
        SHD_TRY(shd_build_finish_file(run->build));
    }
    shd_checkpoint_manifest manifest = *run->manifest;
    manifest.world_size = run->relayout->ranks;
    return shd_build_commit(run->build, &manifest);
}

static sherd_status run_all(relayout_run *run) {
    const shd_build_config config = {.parent = run->relayout->parent,
                                     .step = run->manifest->step,
                                     .file_count = run->relayout->ranks,
                                     .compression = run->relayout->compression};
    SHD_TRY(check_plan(run));
    SHD_TRY(shd_reader_create(run->relayout->from, &run->reader));
    run->memory_bytes = shd_reader_memory_bytes(1);
    run->memory = shd_map(run->memory_bytes);
    if (!run->memory) return shd_fail(SHERD_MEMORY, "no memory to read a checkpoint");
    SHD_TRY(shd_build_create(&config, &run->build));
    return write_files(run);
}

sherd_status shd_relayout_run(const shd_relayout *relayout, char **path) {
    relayout_run run = {.relayout = relayout, .manifest = shd_checkpoint_content(relayout->from)};
    sherd_status status = run_all(&run);
    char *copy = status == SHERD_OK ? shd_strdup(shd_build_path(run.build)) : NULL;
    shd_build_destroy(run.build);
    shd_unmap(run.memory, run.memory_bytes);
    shd_reader_destroy(run.reader);
    if (status == SHERD_OK && !copy) status = shd_fail(SHERD_MEMORY, "no memory for a path");
    if (status == SHERD_OK) *path = copy;
    return status;
}
