/* Checkpoints laid out anew: the same bits, each rank's in its own file, and a run that goes on as if nothing had been. */
#include "runtime/train/checkpoint_reshard.h"

#include "io/checkpoint_pick.h"
#include "io/checkpoint_reader.h"
#include "runtime/base/dtype.h"
#include "runtime/base/memory.h"
#include "runtime/train/job_setup.h"
#include "runtime/train/note.h"
#include "shard/reshard.h"
#include "tests/io/make_job.h"
#include "tests/train/run_job.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void ignore(void *user, const shd_damage *damage, int64_t done_bytes, int64_t total_bytes) {
    (void)user, (void)damage, (void)done_bytes, (void)total_bytes;
}

TestSuite(checkpoint_reshard, .init = enter_fresh_folder, .fini = leave_fresh_folder);

static shd_checkpoint *pick(const char *path) {
    shd_checkpoint *checkpoint = NULL;
    cr_assert_eq(shd_checkpoint_pick(path, &checkpoint), SHERD_OK, "%s", sherd_last_error());
    return checkpoint;
}

/* Value `index` as it is stored; from malloc. */
static void *read_value(const shd_checkpoint *checkpoint, int32_t index, int64_t *bytes) {
    const shd_checkpoint_manifest *manifest = shd_checkpoint_content(checkpoint);
    const shd_checkpoint_value *value = &manifest->values[index];
    const int32_t state = index % (1 + manifest->state_count);
    const shd_reader_config config = {.threads = 1, .memory = aligned_alloc(4096, (size_t)shd_reader_memory_bytes(1))};
    *bytes = shd_span_bytes(value->dtype, value->element_count);
    const shd_checkpoint_slice slice = {.tensor = manifest->tensors[index / (1 + manifest->state_count)].name,
                                        .state = state ? manifest->state_names[state - 1] : SHD_CHECKPOINT_PARAMETER,
                                        .count = value->element_count,
                                        .values = calloc((size_t)*bytes + 1, 1),
                                        .dtype = value->dtype};
    if (slice.count > 0)
        cr_assert_eq(shd_checkpoint_read(checkpoint, &slice, 1, &config), SHERD_OK, "%s", sherd_last_error());
    free(config.memory);
    return slice.values;
}

static void check_same(const shd_checkpoint *a, const shd_checkpoint *b) {
    const shd_checkpoint_manifest *then = shd_checkpoint_content(a), *now = shd_checkpoint_content(b);
    cr_assert(then->step == now->step && then->update_count == now->update_count &&
              then->state_count == now->state_count && then->tensor_count == now->tensor_count &&
              then->replicas == now->replicas && then->precision == now->precision);
    cr_assert_str_eq(then->optimizer, now->optimizer);
    cr_assert_str_eq(then->note, now->note);
    for (int32_t i = 0; i < then->tensor_count * (1 + then->state_count); i++) {
        int64_t then_bytes, now_bytes;
        void *before = read_value(a, i, &then_bytes), *after = read_value(b, i, &now_bytes);
        cr_assert_eq(then->values[i].dtype, now->values[i].dtype);
        cr_assert(then_bytes == now_bytes && !memcmp(before, after, (size_t)then_bytes), "value %d differs", (int)i);
        free(before);
        free(after);
    }
}

/* All that a rank of such a job stores is in its own file. */
typedef struct own_file {
    const shd_checkpoint_manifest *manifest;
    const shd_plan *plan;
    int32_t rank;
    int64_t elements;
} own_file;

static sherd_status find_own(void *user, const shd_stored_range *range) {
    own_file *own = user;
    const int32_t state = range->whole ? own->plan->policy.state_count + range->state_index : range->state_index;
    const shd_checkpoint_value *value =
        &own->manifest->values[range->tensor_index * (1 + own->manifest->state_count) + 1 + state];
    int64_t at = range->first;
    for (int64_t i = 0; i < value->range_count; i++)
        if (value->ranges[i].rank == own->rank && value->ranges[i].first <= at)
            at = value->ranges[i].first + value->ranges[i].count;
    cr_assert_geq(at, range->first + range->count, "rank %d, tensor %d", (int)own->rank, (int)range->tensor_index);
    own->elements += range->count;
    return SHERD_OK;
}

static void check_files(const shd_checkpoint *checkpoint, int32_t ranks) {
    const shd_checkpoint_manifest *manifest = shd_checkpoint_content(checkpoint);
    const shd_note_changes changes = {.ranks = ranks, .replicas = 1};
    shd_job *job;
    shd_plan *plan;
    cr_assert_eq(manifest->world_size, ranks);
    cr_assert_eq(shd_note_job(manifest->note, &changes, &job), SHERD_OK, "%s", sherd_last_error());
    cr_assert_eq(shd_job_plan(job, 3, 0, &plan), SHERD_OK, "%s", sherd_last_error());
    int64_t found = 0, stored = 0;
    for (int32_t rank = 0; rank < ranks; rank++) {
        own_file own = {.manifest = manifest, .plan = plan, .rank = rank};
        cr_assert_eq(shd_plan_visit_stored(plan, rank, find_own, &own), SHERD_OK);
        found += own.elements;
    }
    for (int32_t i = 0; i < manifest->tensor_count * (1 + manifest->state_count); i++)
        stored += manifest->values[i].element_count;
    cr_assert_eq(found, stored);
    shd_plan_destroy(plan);
    shd_job_destroy(job);
    int64_t damaged = -1;
    cr_assert_eq(shd_checkpoint_verify(shd_checkpoint_path(checkpoint), ignore, NULL, &damaged), SHERD_OK);
    cr_assert_eq(damaged, 0);
}

static void relayout(const char *from, const char *to, int32_t ranks, int32_t compression) {
    shd_checkpoint *checkpoint = pick(from);
    const shd_reshard wanted = {.from = checkpoint, .parent = to, .ranks = ranks, .compression = compression};
    char *path = NULL;
    cr_assert_eq(shd_reshard_run(&wanted, &path), SHERD_OK, "%s", sherd_last_error());
    shd_checkpoint *made = pick(path);
    check_same(checkpoint, made);
    check_files(made, ranks);
    cr_assert_eq(shd_reshard_run(&wanted, &path), SHERD_ARGUMENT);
    cr_assert(strstr(sherd_last_error(), "is there already"));
    shd_free(path);
    shd_checkpoint_close(made);
    shd_checkpoint_close(checkpoint);
}

Test(checkpoint_reshard, keeps_every_bit_of_every_kind_of_state) {
    static const char *const kinds[][3] = {
        {"optimizer.name=adamw"},
        {"optimizer.name=adamw", "optimizer.state_dtype=int8"},
        {"optimizer.name=muon"},
        {"optimizer.name=adafactor", "train.precision=bf16"},
        {"train.precision=bf16", "model.frozen=[\"h.0.*\", wpe.weight]"},
        {"optimizer.name=sgd", "optimizer.momentum=0", "shard.replicas=2"},
    };
    make_tokens("tokens.u16", 600, 1);
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        static job_result result;
        char dir[40], to[40];
        snprintf(dir, sizeof dir, "checkpoint.dir=k%zu", k);
        const char *settings[] = {"train.steps=3", "run.ranks=2", dir, kinds[k][0], kinds[k][1], kinds[k][2], NULL};
        run_job(small_job, settings, &result);
        cr_assert_eq(result.status[0], SHERD_OK, "%s", result.cause);
        for (int32_t ranks = 1; ranks <= 8; ranks = ranks == 4 ? 8 : ranks + 1) {
            snprintf(to, sizeof to, "k%zu-on-%d", k, (int)ranks);
            relayout(dir + strlen("checkpoint.dir="), to, ranks, ranks == 3 ? 0 : 1);
        }
    }
    cr_assert_eq(shd_memory_held(SHD_MEMORY_OBJECTS), 0);
    cr_assert_eq(shd_memory_held(SHD_MEMORY_ARENA), 0);
}

Test(checkpoint_reshard, a_run_goes_on_with_the_same_bits) {
    static job_result straight, first, second;
    make_tokens("tokens.u16", 600, 1);
    run_job(small_job, (const char *const[]){"train.steps=8", "checkpoint.dir=straight", NULL}, &straight);
    /* The schedule is that of eight steps, as a run that is stopped has it. */
    run_job_stopping(
        small_job,
        (const char *const[]){"train.steps=8", "checkpoint.every=4", "run.ranks=2", "checkpoint.dir=a", NULL}, 0, 4,
        &first);
    cr_assert_eq(first.status[0], SHERD_OK, "%s", first.cause);
    relayout("a/step-00000004", "b", 3, 1);
    run_job(small_job, (const char *const[]){"train.steps=8", "run.ranks=3", "checkpoint.dir=b", NULL}, &second);
    cr_assert_eq(second.status[0], SHERD_OK, "%s", second.cause);
    cr_assert_eq(second.summary.first_step, 4);
    cr_assert_eq(second.step_count, 4);
    for (int i = 0; i < 4; i++) cr_assert_eq(second.steps[i].loss, straight.steps[4 + i].loss);
    shd_checkpoint *a = pick("straight"), *b = pick("b");
    const shd_checkpoint_manifest *then = shd_checkpoint_content(a), *now = shd_checkpoint_content(b);
    cr_assert(then->step == 8 && now->step == 8);
    for (int32_t i = 0; i < then->tensor_count * (1 + then->state_count); i++) {
        int64_t bytes;
        void *before = read_value(a, i, &bytes), *after = read_value(b, i, &bytes);
        cr_assert_eq(memcmp(before, after, (size_t)bytes), 0);
        free(before);
        free(after);
    }
    shd_checkpoint_close(a);
    shd_checkpoint_close(b);
}
