#include "checkpoints.h"

#include <stdio.h>
#include <string.h>

const sherd_tensor job_tensors[JOB_TENSORS] = {
    {.name = "wte.weight", .dim_count = 2, .shape = {17, 5}},
    {.name = "scalar", .dim_count = 0},
    {.name = "empty", .dim_count = 2, .shape = {3, 0}},
    {.name = "frozen \"é\"", .dim_count = 1, .shape = {37}, .frozen = true},
    {.name = "b", .dim_count = 1, .shape = {2}},
};
static const char *states[] = {SHD_CHECKPOINT_PARAMETER, "exp_avg", "exp_avg_sq"};

int64_t job_elements(int tensor) {
    int64_t count = 1;
    for (int d = 0; d < job_tensors[tensor].dim_count; d++) count *= job_tensors[tensor].shape[d];
    return count;
}

float job_value(const small_job *job, int tensor, int state, int64_t index) {
    return (float)(job->seed + 1000 * tensor + 300 * state) + (float)index / 64 + 0.1f;
}

rank_slices job_slices(const small_job *job, int32_t rank, bool blank) {
    rank_slices slices = {.count = 0};
    for (int tensor = 0; tensor < JOB_TENSORS; tensor++)
        for (int state = 0; state <= (job_tensors[tensor].frozen ? 0 : JOB_STATES); state++) {
            int64_t elements = job_elements(tensor), portion = (elements + job->world_size - 1) / job->world_size;
            int64_t first = job->copies ? 0 : rank * portion, count = job->copies ? elements : portion;
            if (first > elements) first = elements;
            if (count > elements - first) count = elements - first;
            float *values = take((size_t)count * sizeof *values + 1);
            for (int64_t i = 0; i < count; i++) values[i] = blank ? -1 : job_value(job, tensor, state, first + i);
            slices.list[slices.count++] =
                (shd_checkpoint_slice){job_tensors[tensor].name, states[state], first, count, values};
        }
    return slices;
}

shd_checkpoint_manifest job_manifest(const small_job *job) {
    return (shd_checkpoint_manifest){.step = job->step,
                                     .world_size = job->world_size,
                                     .replicas = job->copies ? 1 : 3,
                                     .stage = job->copies ? 0 : 3,
                                     .layout_hash = 0xFEDCBA9876543210u,
                                     .optimizer = "adamw",
                                     .state_count = JOB_STATES,
                                     .state_names = {states[1], states[2]},
                                     .tensor_count = JOB_TENSORS,
                                     .tensors = job_tensors,
                                     .note = "{\"sequence\": 9007199254740993, \"who\": [\"\\u00e9\", 0.5]}"};
}

sherd_status save_job(const small_job *job) {
    for (int32_t rank = job->world_size; rank-- > 0;) {
        void *mark = mark_taken();
        rank_slices slices = job_slices(job, rank, false);
        sherd_status status = shd_checkpoint_write_rank(job->parent, job->step, rank, slices.list, slices.count);
        release_taken(mark);
        if (status != SHERD_OK) return status;
    }
    shd_checkpoint_manifest manifest = job_manifest(job);
    return shd_checkpoint1_commit(job->parent, &manifest);
}

char *job_path(const small_job *job) {
    char name[32];
    snprintf(name, sizeof name, "step-%08lld", (long long)job->step);
    return path_in(job->parent, name);
}

static bool has_values(const rank_slices *read, const rank_slices *expected) {
    bool equal = true;
    for (int64_t i = 0; i < read->count; i++)
        equal = equal && memcmp(read->list[i].values, expected->list[i].values,
                                (size_t)read->list[i].count * sizeof(float)) == 0;
    return equal;
}

sherd_status load_job(const small_job *job, bool *equal) {
    void *mark = mark_taken();
    shd_checkpoint *checkpoint = NULL;
    sherd_status status = shd_checkpoint_open(job_path(job), &checkpoint);
    *equal = true;
    for (int32_t rank = 0; status == SHERD_OK && rank < job->world_size; rank++) {
        rank_slices read = job_slices(job, rank, true), expected = job_slices(job, rank, false);
        status = shd_checkpoint_read_rank(checkpoint, rank, read.list, read.count);
        *equal = *equal && has_values(&read, &expected);
    }
    shd_checkpoint_close(checkpoint);
    release_taken(mark);
    return status;
}
