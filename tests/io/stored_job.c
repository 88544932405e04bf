#include "tests/io/stored_job.h"

#include "checkpoint_append.h"
#include "io/checkpoint_block.h"
#include "io/checkpoint_folder.h"
#include "io/checkpoint_manifest.h"
#include "runtime/base/arith.h"
#include "runtime/base/dtype.h"
#include "tests/io/files.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

enum { LARGE_COUNT = (2 << 20) + 3 * 17 * 257, GROUP = SHD_CODE_BLOCK_COUNT };

/* Frozen ones have no state; "h.bias" is stored in bf16. */
const sherd_tensor stored_tensors[STORED_TENSORS] = {
    {.name = "wte.weight", .dim_count = 2, .shape = {17, 257}},
    {.name = "h.weight", .dim_count = 1, .shape = {700}},
    {.name = "h.scale", .dim_count = 0},
    {.name = "h.none", .dim_count = 2, .shape = {0, 5}},
    {.name = "h.bias", .dim_count = 1, .shape = {523}, .frozen = true}};

const char *stored_state(int state) { return state ? "exp_avg" : SHD_CHECKPOINT_PARAMETER; }

int64_t stored_count(const stored_job *job, int tensor) {
    int64_t count = 1;
    if (tensor == 0 && job->large) return LARGE_COUNT;
    for (int32_t d = 0; d < stored_tensors[tensor].dim_count; d++) count *= stored_tensors[tensor].shape[d];
    return count;
}

float stored_value(int tensor, int state, int64_t index) {
    uint64_t mixed =
        (uint64_t)(index + 1) * 0x9e3779b97f4a7c15ull + (uint64_t)(tensor * 7 + state) * 0xd1342543de82ef95ull;
    return (float)(mixed >> 56 & 0x7f); /* exact in bf16 */
}

/* A block of codes: its scale is 1, a code the value itself. */
static void encode_groups(const float *values, int64_t count, char *codes) {
    const float one = 1;
    for (int64_t first = 0; first < count; first += GROUP, codes += SHD_CODE_BLOCK_BYTES) {
        memcpy(codes, &one, sizeof one);
        memset(codes + 4, 0, GROUP);
        for (int64_t i = first; i < count && i < first + GROUP; i++) codes[4 + i - first] = (char)values[i];
    }
}

void *stored_values(const stored_job *job, int tensor, int state, int64_t first, int64_t count, sherd_dtype dtype) {
    float *values = take((size_t)count * sizeof *values + 1);
    char *converted = take((size_t)shd_span_bytes(dtype, count) + 1);
    (void)job;
    for (int64_t i = 0; i < count; i++) values[i] = stored_value(tensor, state, first + i);
    if (dtype == SHERD_FP32) return values;
    if (dtype == SHERD_INT8)
        encode_groups(values, count, converted);
    else
        shd_round(dtype, count, values, converted);
    return converted;
}

static sherd_dtype stored_dtype(const stored_job *job, int tensor, int state) {
    if (state > 0) return job->state_dtype;
    return tensor == 4 ? SHERD_BF16 : SHERD_FP32;
}

/* Where rank `rank`'s part begins: odd places, whole groups for codes. */
static int64_t part_begin(const stored_job *job, int tensor, int state, int32_t rank) {
    int64_t count = stored_count(job, tensor), begin = count * rank / job->ranks + (rank > 0) * 3;
    if (rank == job->ranks) return count;
    if (stored_dtype(job, tensor, state) == SHERD_INT8) begin = begin / GROUP * GROUP;
    return shd_min(begin, count);
}

static void write_rank(const stored_job *job, const char *folder, int32_t rank) {
    shd_appender *appender = NULL;
    cr_assert_eq(shd_appender_create(folder, job->step, rank, job->compression, &appender), SHERD_OK, "%s",
                 sherd_last_error());
    for (int state = 0; state <= STORED_STATES; state++)
        for (int tensor = STORED_TENSORS; tensor-- > 0;) {
            int64_t first = part_begin(job, tensor, state, rank), end = part_begin(job, tensor, state, rank + 1);
            if (end <= first || (state > 0 && stored_tensors[tensor].frozen)) continue;
            sherd_dtype dtype = stored_dtype(job, tensor, state);
            void *mark = mark_taken(), *values = stored_values(job, tensor, state, first, end - first, dtype);
            cr_assert_eq(shd_appender_add(appender, stored_tensors[tensor].name, stored_state(state), first,
                                          end - first, dtype, values),
                         SHERD_OK, "%s", sherd_last_error());
            release_taken(mark);
        }
    cr_assert_eq(shd_appender_finish(appender), SHERD_OK, "%s", sherd_last_error());
    shd_appender_destroy(appender);
}

void store_job(stored_job *job) {
    char partial[SHD_PATH_BYTES], path[SHD_PATH_BYTES];
    int descriptor;
    sherd_tensor tensors[STORED_TENSORS];
    memcpy(tensors, stored_tensors, sizeof tensors);
    if (job->large) tensors[0] = (sherd_tensor){.name = tensors[0].name, .dim_count = 1, .shape = {LARGE_COUNT}};
    if (!job->parent) job->parent = make_folder();
    if (!job->step) job->step = STORED_STEP;
    cr_assert_eq(shd_checkpoint_partial_path(partial, job->parent, job->step, 9), SHERD_OK);
    cr_assert_eq(shd_checkpoint_partial_enter(partial, &descriptor), SHERD_OK, "%s", sherd_last_error());
    for (int32_t rank = 0; rank < job->ranks; rank++) write_rank(job, partial, rank);
    shd_checkpoint_manifest manifest = {.step = job->step,
                                        .update_count = job->step,
                                        .precision = SHERD_BF16,
                                        .world_size = job->ranks,
                                        .replicas = 1,
                                        .stage = 3,
                                        .optimizer = "lion",
                                        .state_count = STORED_STATES,
                                        .state_names = {"exp_avg"},
                                        .state_dtype = job->state_dtype,
                                        .tensor_count = STORED_TENSORS,
                                        .tensors = tensors,
                                        .note = "{}"};
    cr_assert_eq(shd_checkpoint_commit(job->parent, 9, &manifest), SHERD_OK, "%s", sherd_last_error());
    shd_file_close(descriptor);
    cr_assert_eq(shd_checkpoint_step_path(path, job->parent, job->step), SHERD_OK);
    job->path = path_in(path, "");
    job->path[strlen(path)] = 0;
}

sherd_status read_stored_manifest(const stored_job *job, shd_keep *keep, shd_checkpoint_manifest *out) {
    return shd_manifest_read(job->path, keep, out);
}

shd_checkpoint_manifest stored_manifest(const stored_job *job) {
    shd_checkpoint_manifest manifest;
    shd_keep *keep = shd_keep_create();
    cr_assert_eq(read_stored_manifest(job, keep, &manifest), SHERD_OK, "%s", sherd_last_error());
    return manifest;
}

void flip_stored(const stored_job *job, const char *name, int64_t offset, int bit) {
    char byte;
    int descriptor = open(path_in(job->path, name), O_RDWR);
    cr_assert(descriptor >= 0 && pread(descriptor, &byte, 1, offset) == 1);
    byte = (char)(byte ^ 1 << bit);
    cr_assert_eq(pwrite(descriptor, &byte, 1, offset), 1);
    close(descriptor);
}

static sherd_status convert(void *user, const char *state, sherd_dtype from_dtype, const void *from,
                            sherd_dtype to_dtype, int64_t count, void *to) {
    (void)user;
    if (strcmp(state, "exp_avg") != 0 || (uintptr_t)from % 4 != 0 || (uintptr_t)to % 4 != 0) return SHERD_INTERNAL;
    if (from_dtype == SHERD_FP32 && to_dtype == SHERD_INT8) {
        encode_groups(from, count, to);
        return SHERD_OK;
    }
    for (int64_t i = 0; i < count; i++)
        ((float *)to)[i] = ((const char *)from)[i / GROUP * SHD_CODE_BLOCK_BYTES + 4 + i % GROUP];
    return SHERD_OK;
}

const shd_reader_convert stored_convert = {.run = convert};

shd_reader_config stored_config(int32_t threads) {
    int64_t bytes = shd_reader_memory_bytes(threads), align = SHD_BLOCK_ALIGN_BYTES;
    char *memory = take((size_t)(bytes + 2 * align));
    memory += align - (int64_t)((uintptr_t)memory % (uintptr_t)align);
    memset(memory + bytes, 0x5a, (size_t)align / 2);
    return (shd_reader_config){.threads = threads, .memory = memory, .convert = stored_convert};
}

bool stored_config_is_whole(const shd_reader_config *config) {
    const char *mark = (const char *)config->memory + shd_reader_memory_bytes(config->threads);
    for (int i = 0; i < SHD_BLOCK_ALIGN_BYTES / 2; i++)
        if (mark[i] != 0x5a) return false;
    return true;
}
