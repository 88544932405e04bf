#include "checkpoints.h"

#include "checkpoint_append.h"
#include "io/checkpoint_file.h"
#include "runtime/base/dtype.h"

#include <criterion/criterion.h>
#include <sherd/log.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

const sherd_tensor job_tensors[JOB_TENSORS] = {
    {.name = "wte.weight", .dim_count = 2, .shape = {17, 5}},
    {.name = "scalar", .dim_count = 0},
    {.name = "empty", .dim_count = 2, .shape = {3, 0}},
    {.name = "frozen \"é\"", .dim_count = 1, .shape = {37}, .frozen = true},
    {.name = "b", .dim_count = 1, .shape = {2}},
    {.name = "large", .dim_count = 2, .shape = {17, 257}},
};
static const char *states[] = {SHD_CHECKPOINT_PARAMETER, "exp_avg", "exp_avg_sq"};

int64_t job_elements(int tensor) {
    int64_t count = 1;
    for (int d = 0; d < job_tensors[tensor].dim_count; d++) count *= job_tensors[tensor].shape[d];
    return count;
}

float job_value(const small_job *job, int tensor, int state, int64_t index) {
    if (job_tensors[tensor].frozen) return (float)(job->seed % 100 + index % 100);
    return (float)(job->seed + 1000 * tensor + 300 * state) + (float)index / 64 + 0.1f;
}

static sherd_dtype dtype_of(const small_job *job, int tensor, int state) {
    if (state > 0) return job->coded ? SHERD_INT8 : SHERD_FP32;
    return job_tensors[tensor].frozen ? SHERD_BF16 : SHERD_FP32;
}

/* Codes are bytes of any kind here: each is told by where it is. */
static void fill_codes(const small_job *job, int tensor, int state, int64_t first, int64_t count, unsigned char *out) {
    for (int64_t i = 0; i < shd_span_bytes(SHERD_INT8, count); i++)
        out[i] = (unsigned char)(job->seed + 31 * tensor + 7 * state + 3 * (first / SHD_CODE_BLOCK_COUNT) + i);
}

static void *make_values(const small_job *job, int tensor, int state, int64_t first, int64_t count) {
    sherd_dtype dtype = dtype_of(job, tensor, state);
    char *values = take((size_t)shd_span_bytes(dtype, count) + 1);
    if (dtype == SHERD_INT8) fill_codes(job, tensor, state, first, count, (unsigned char *)values);
    for (int64_t i = 0; i < count && dtype != SHERD_INT8; i++) {
        float value = job_value(job, tensor, state, first + i);
        if (dtype == SHERD_BF16) {
            uint16_t half = shd_bf16_round(value);
            memcpy(values + 2 * i, &half, 2);
        } else {
            memcpy(values + 4 * i, &value, 4);
        }
    }
    return values;
}

/* What `rank` has of a value: about its share, of whole code blocks where there are such. */
static void share(const small_job *job, int64_t elements, int32_t rank, sherd_dtype dtype, int64_t *first,
                  int64_t *count) {
    int64_t grain = dtype == SHERD_INT8 ? SHD_CODE_BLOCK_COUNT : 1;
    int64_t portion = (elements + job->world_size * grain - 1) / (job->world_size * grain) * grain;
    *first = job->copies ? 0 : rank * portion;
    *count = job->copies ? elements : portion;
    if (*first > elements) *first = elements / grain * grain;
    if (*count > elements - *first) *count = elements - *first;
    if (!job->copies && (int64_t)rank * portion >= elements) *count = 0;
}

rank_slices job_slices(const small_job *job, int32_t rank, bool blank) {
    rank_slices slices = {.count = 0};
    for (int tensor = 0; tensor < JOB_TENSORS; tensor++)
        for (int state = 0; state <= (job_tensors[tensor].frozen ? 0 : JOB_STATES); state++) {
            int64_t first, count;
            sherd_dtype dtype = dtype_of(job, tensor, state);
            share(job, job_elements(tensor), rank, dtype, &first, &count);
            void *values = make_values(job, tensor, state, first, count);
            if (blank) memset(values, 0xA5, (size_t)shd_span_bytes(dtype, count));
            slices.list[slices.count++] =
                (shd_checkpoint_slice){job_tensors[tensor].name, states[state], first, count, values, dtype};
        }
    return slices;
}

shd_checkpoint_manifest job_manifest(const small_job *job) {
    return (shd_checkpoint_manifest){.step = job->step,
                                     .update_count = job->step,
                                     .world_size = job->world_size,
                                     .replicas = job->copies ? 1 : 3,
                                     .stage = job->copies ? 0 : 3,
                                     .optimizer = "adamw",
                                     .state_count = JOB_STATES,
                                     .state_names = {states[1], states[2]},
                                     .state_dtype = job->coded ? SHERD_INT8 : SHERD_FP32,
                                     .tensor_count = JOB_TENSORS,
                                     .tensors = job_tensors,
                                     .note = "{\"sequence\": 9007199254740993, \"who\": [\"\\u00e9\", 0.5]}"};
}

sherd_status write_rank(const small_job *job, int32_t rank, const rank_slices *slices) {
    char path[SHD_PATH_BYTES];
    int folder;
    shd_appender *appender = NULL;
    sherd_status status = shd_checkpoint_partial_path(path, job->parent, job->step, job->id);
    if (status != SHERD_OK) return status;
    status = shd_checkpoint_partial_enter(path, &folder);
    if (status != SHERD_OK) return status;
    status = shd_appender_create(path, job->step, rank, job->compression, &appender);
    for (int64_t i = 0; status == SHERD_OK && i < slices->count; i++) {
        const shd_checkpoint_slice *s = &slices->list[i];
        if (s->count > 0)
            status = shd_appender_add(appender, s->tensor, s->state, s->first, s->count, s->dtype, s->values);
    }
    if (status == SHERD_OK) status = shd_appender_finish(appender);
    shd_appender_destroy(appender);
    shd_file_close(folder);
    return status;
}

sherd_status write_job(const small_job *job) {
    for (int32_t rank = job->world_size; rank-- > 0;) {
        void *mark = mark_taken();
        rank_slices slices = job_slices(job, rank, false);
        sherd_status status = write_rank(job, rank, &slices);
        release_taken(mark);
        if (status != SHERD_OK) return status;
    }
    return SHERD_OK;
}

sherd_status save_job(const small_job *job) {
    sherd_status status = write_job(job);
    shd_checkpoint_manifest manifest = job_manifest(job);
    return status == SHERD_OK ? shd_checkpoint_commit(job->parent, job->id, &manifest) : status;
}

char *job_path(const small_job *job) {
    char name[32];
    snprintf(name, sizeof name, "step-%08lld", (long long)job->step);
    return path_in(job->parent, name);
}

char *job_partial(const small_job *job) {
    char name[64];
    snprintf(name, sizeof name, "step-%08lld.partial-%016llx", (long long)job->step, (unsigned long long)job->id);
    return path_in(job->parent, name);
}

/* --- what is there ------------------------------------------------------------------------------------------------ */

/* Of every element of every value, whether some block has it. */
typedef struct coverage {
    bool *elements[JOB_TENSORS][1 + JOB_STATES];
} coverage;

static int index_of_state(const char *state) {
    for (int i = 0; i <= JOB_STATES; i++)
        if (strcmp(states[i], state) == 0) return i;
    return -1;
}

static int index_of_tensor(const char *name) {
    for (int i = 0; i < JOB_TENSORS; i++)
        if (strcmp(job_tensors[i].name, name) == 0) return i;
    return -1;
}

static bool check_block(const small_job *job, const shd_file_block *block, const void *values, coverage *seen) {
    int tensor = index_of_tensor(block->tensor), state = index_of_state(block->state);
    if (tensor < 0 || state < 0 || block->form.dtype != dtype_of(job, tensor, state)) return false;
    const void *expected = make_values(job, tensor, state, block->first, block->form.count);
    for (int64_t i = 0; i < block->form.count; i++) seen->elements[tensor][state][block->first + i] = true;
    return memcmp(values, expected, (size_t)shd_span_bytes(block->form.dtype, block->form.count)) == 0;
}

static sherd_status check_file(const small_job *job, const shd_checkpoint *checkpoint, int32_t rank, char *room,
                               coverage *seen, bool *equal) {
    char path[SHD_PATH_BYTES];
    shd_rank_file *file = NULL;
    const shd_checkpoint_file *known = &shd_checkpoint_content(checkpoint)->files[rank];
    sherd_status status = shd_rank_file_path(path, shd_checkpoint_path(checkpoint), rank);
    if (status == SHERD_OK) status = shd_rank_file_open(path, job->step, rank, &file);
    if (status != SHERD_OK) return status;
    *equal = *equal && file->index_hash == known->index_hash && file->bytes == known->bytes;
    char *stored = room + shd_block_codec_bytes(0), *values = stored + SHD_BLOCK_RAW_BYTES_MAX;
    shd_block_codec *codec = shd_block_codec_init(room, 0);
    for (int64_t i = 0; status == SHERD_OK && i < file->index.count; i++) {
        status = shd_rank_file_read(file, i, codec, stored, values);
        if (status == SHERD_OK && !check_block(job, &file->index.blocks[i], values, seen)) *equal = false;
    }
    shd_rank_file_close(file);
    return status;
}

static bool all_seen(const coverage *seen) {
    bool all = true;
    for (int tensor = 0; tensor < JOB_TENSORS; tensor++)
        for (int state = 0; state <= (job_tensors[tensor].frozen ? 0 : JOB_STATES); state++)
            for (int64_t i = 0; i < job_elements(tensor); i++) all = all && seen->elements[tensor][state][i];
    return all;
}

sherd_status load_job(const small_job *job, bool *equal) {
    void *mark = mark_taken();
    coverage seen;
    shd_checkpoint *checkpoint = NULL;
    char *room = take((size_t)(shd_block_codec_bytes(0) + 2 * SHD_BLOCK_RAW_BYTES_MAX + SHD_BLOCK_ALIGN_BYTES));
    room += SHD_BLOCK_ALIGN_BYTES - (uintptr_t)room % SHD_BLOCK_ALIGN_BYTES;
    for (int i = 0; i < JOB_TENSORS * (1 + JOB_STATES); i++) {
        size_t bytes = (size_t)job_elements(i / (1 + JOB_STATES)) + 1;
        seen.elements[i / (1 + JOB_STATES)][i % (1 + JOB_STATES)] = memset(take(bytes), 0, bytes);
    }
    sherd_status status = shd_checkpoint_open(job_path(job), &checkpoint);
    *equal = true;
    for (int32_t rank = 0; status == SHERD_OK && rank < job->world_size; rank++)
        status = check_file(job, checkpoint, rank, room, &seen, equal);
    *equal = *equal && status == SHERD_OK && all_seen(&seen);
    shd_checkpoint_close(checkpoint);
    release_taken(mark);
    return status;
}

void check_saved(const small_job *job) {
    cr_assert_eq(save_job(job), SHERD_OK, "%s", sherd_last_error());
    bool equal;
    cr_assert_eq(load_job(job, &equal), SHERD_OK, "%s", sherd_last_error());
    cr_assert(equal, "%d ranks: other values came back", job->world_size);
}

void make_step(const char *parent, int64_t step) {
    check_saved(&(small_job){.parent = parent, .step = step, .world_size = 1, .seed = (int)step});
}

bool is_there(const char *parent, const char *name) { return access(path_in(parent, name), F_OK) == 0; }

char logged[1 << 14];
static void keep_log(void *user, sherd_log_level level, const char *line) {
    (void)user;
    if (level > SHERD_LOG_WARN) return;
    size_t length = strlen(logged);
    snprintf(logged + length, sizeof logged - length, "%s\n", line);
}
void listen_to_log(void) {
    logged[0] = 0;
    sherd_log_set(keep_log, NULL, SHERD_LOG_WARN);
}
