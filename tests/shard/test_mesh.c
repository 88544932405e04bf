/* The mesh of ranks, and what plans make of replicas. */
#include "shard/plan.h"
#include "tests/shard/models.h"

#include <criterion/criterion.h>

/* Ranks laid out by hand: three replicas of two. */
Test(mesh, knows_who_shares_a_copy_and_who_has_the_same_place) {
    static const int32_t groups[6][2] = {{0, 1}, {0, 1}, {2, 3}, {2, 3}, {4, 5}, {4, 5}};
    static const int32_t replicas[6][3] = {{0, 2, 4}, {1, 3, 5}, {0, 2, 4}, {1, 3, 5}, {0, 2, 4}, {1, 3, 5}};
    for (int32_t rank = 0; rank < 6; rank++) {
        const shd_mesh mesh = {.rank = rank, .world_size = 6, .replicas = 3};
        cr_assert(shd_mesh_split(&mesh) == 2 && shd_mesh_place(&mesh) == rank % 2 &&
                  shd_mesh_replica(&mesh) == rank / 2);
        cr_assert(shd_mesh_count(&mesh, SHD_SCOPE_OWN) == 1 && shd_mesh_member(&mesh, SHD_SCOPE_OWN, 0) == rank);
        cr_assert(shd_mesh_count(&mesh, SHD_SCOPE_GROUP) == 2 && shd_mesh_count(&mesh, SHD_SCOPE_REPLICAS) == 3);
        cr_assert_eq(shd_mesh_count(&mesh, SHD_SCOPE_ALL), 6);
        for (int32_t i = 0; i < 2; i++) cr_assert_eq(shd_mesh_member(&mesh, SHD_SCOPE_GROUP, i), groups[rank][i]);
        for (int32_t i = 0; i < 3; i++) cr_assert_eq(shd_mesh_member(&mesh, SHD_SCOPE_REPLICAS, i), replicas[rank][i]);
        for (int32_t other = 0; other < 6; other++) {
            cr_assert_eq(shd_mesh_member(&mesh, SHD_SCOPE_ALL, other), other);
            cr_assert_eq(shd_mesh_has(&mesh, SHD_SCOPE_OWN, other), other == rank);
            cr_assert_eq(shd_mesh_has(&mesh, SHD_SCOPE_GROUP, other),
                         other == groups[rank][0] || other == groups[rank][1]);
            cr_assert_eq(shd_mesh_has(&mesh, SHD_SCOPE_REPLICAS, other), other % 2 == rank % 2);
            cr_assert(shd_mesh_has(&mesh, SHD_SCOPE_ALL, other));
        }
    }
}

/* Every micro-batch of a global batch once, a replica's all neighbours. */
Test(mesh, gives_each_replica_a_block_of_the_global_batch) {
    static const int32_t meshes[][2] = {{1, 1}, {2, 1}, {2, 2}, {6, 2}, {6, 3}, {8, 4}}; /* ranks, replicas */
    enum { STEPS = 5 };
    for (size_t m = 0; m < sizeof meshes / sizeof *meshes; m++) {
        int32_t ranks = meshes[m][0], owner[8 * STEPS];
        for (int32_t i = 0; i < ranks * STEPS; i++) owner[i] = -1;
        for (int32_t rank = 0; rank < ranks; rank++)
            for (int32_t k = 0; k < STEPS; k++) {
                const shd_mesh mesh = {.rank = rank, .world_size = ranks, .replicas = meshes[m][1]};
                int64_t at = shd_mesh_micro_batch(&mesh, STEPS, k);
                cr_assert(at >= 0 && at < ranks * STEPS && owner[at] == -1);
                owner[at] = rank;
            }
        int32_t split = ranks / meshes[m][1];
        for (int32_t i = 0; i < ranks * STEPS; i++)
            cr_assert(owner[i] / split == i / (split * STEPS) && owner[i] % split == i % split);
    }
}

static shd_plan *plan_of(const model_box *box, shd_policy policy) {
    shd_plan *plan = NULL;
    cr_assert_eq(shd_plan_create(&box->model, &policy, &plan), SHERD_OK, "%s", sherd_last_error());
    return plan;
}

/* Two replicas of two ranks: shards of 2, 2 and 1 blocks in embedding, block (and 1 frozen) and head, the memory of two
 * ranks; but accumulators are exported, and norms are of parts: 1, 1 and 1 blocks, in 64 bytes. */
Test(mesh, the_plan_of_replicas_is_that_of_one_of_them_with_readable_accumulators) {
    model_box box;
    box_three_units(&box);
    for (int32_t stage = 1; stage <= 3; stage++)
        for (int shared = 0; shared <= 1; shared++)
            for (int32_t rank = 0; rank < 4; rank++) {
                shd_policy alone = policy_of(2, stage, shared, 1), policy = alone;
                alone.rank = rank % 2;
                policy.rank = rank;
                policy.world_size = 4;
                policy.replicas = 2;
                shd_plan *plan = plan_of(&box, policy), *expected = plan_of(&box, alone);
                for (int32_t t = 0; t < plan->tensor_count; t++)
                    cr_assert_eq(memcmp(&plan->places[t], &expected->places[t], sizeof *plan->places), 0);
                for (int32_t g = 0; g < plan->group_count; g++)
                    cr_assert_eq(plan->groups[g].shard_count, expected->groups[g].shard_count);
                cr_assert_neq(shd_plan_hash(plan), shd_plan_hash(expected));
                cr_assert_eq(plan->allocated_bytes, expected->allocated_bytes);
                cr_assert_eq(plan->model_state_bytes, expected->model_state_bytes);
                cr_assert_eq(plan->buffer_count, expected->buffer_count);
                int64_t accumulators = 0;
                for (int32_t b = 0; b < plan->buffer_count; b++) {
                    bool sum = plan->buffers[b].kind == SHD_BUFFER_ACCUMULATOR;
                    if (sum) accumulators += plan->buffers[b].bytes;
                    cr_assert_eq(plan->buffers[b].bytes, expected->buffers[b].bytes);
                    cr_assert_eq(plan->buffers[b].place, sum ? SHD_PLACE_EXPORTED : expected->buffers[b].place);
                }
                cr_assert_eq(accumulators, (2 + 2 + 1) * 1024);
                cr_assert_eq(plan->arena_bytes[SHD_PLACE_EXPORTED],
                             expected->arena_bytes[SHD_PLACE_EXPORTED] + accumulators);
                cr_assert_eq(plan->arena_bytes[SHD_PLACE_HOST], expected->arena_bytes[SHD_PLACE_HOST]);
                shd_plan_destroy(plan);
                shd_plan_destroy(expected);
            }
}

/* Every element of every shard in exactly one replica's part, in whole blocks, whatever the sizes. */
Test(mesh, a_plan_cuts_shards_into_parts_of_whole_blocks_one_for_each_replica) {
    static const int32_t meshes[][2] = {{2, 1}, {2, 2}, {4, 2}, {6, 3}, {8, 2}, {8, 8}, {64, 16}}; /* ranks, replicas */
    for (uint64_t seed = 1; seed <= 50; seed++) {
        model_box box;
        box_random(&box, seed);
        for (size_t m = 0; m < sizeof meshes / sizeof *meshes; m++) {
            shd_policy policy = policy_of(meshes[m][0], 2, false, 0);
            int32_t split = meshes[m][0] / meshes[m][1];
            policy.replicas = meshes[m][1];
            int64_t covered[2 * MAX_UNITS] = {0};
            for (policy.rank = 0; policy.rank < policy.world_size; policy.rank += split) {
                shd_plan *plan = plan_of(&box, policy);
                for (int32_t g = 0; g < plan->group_count; g++) {
                    shd_part part = shd_policy_part(&plan->policy, &plan->groups[g]);
                    cr_assert_eq(plan->groups[g].padded_count, split * plan->groups[g].shard_count);
                    cr_assert_eq(part.first, covered[g]);
                    cr_assert(part.first % 256 == 0 && part.count % 256 == 0 && part.count >= 0);
                    covered[g] += part.count;
                    if (policy.rank == policy.world_size - split) cr_assert_eq(covered[g], plan->groups[g].shard_count);
                }
                shd_plan_destroy(plan);
            }
        }
    }
}
