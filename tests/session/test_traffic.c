/* What is communicated, counted where it happens, against lists written by hand.
 *
 * Three units of 500, 1000 and 200 elements on two ranks: shards of 256, 512 and 256 elements, so that a rank receives
 * 1024, 2048 and 1024 bytes when a unit is gathered or reduced.
 *
 * With two replicas of two ranks, the first part of each shard is 256 elements, and the second 0, 256 and 0: of the first
 * a rank of replica 0 reads 1024, 1024 and 1024 bytes when sums are added up, and copies 0, 1024 and 0; one of replica 1
 * reads 0, 1024 and 0, and copies 1024, 1024 and 1024. Logically each is the larger part. */
#include "support/ranks.h"

#include <criterion/criterion.h>
#include <string.h>

enum { RANKS = 2, ALL_UNITS = 1024 + 2048 + 1024, STAGE_3_GATHERS = 1024 + 2048 + 1024 + 2048 + 1024 };

static const sherd_tensor tensors[] = {{"a", 1, {500}}, {"b", 1, {1000}}, {"c", 1, {200}}};
static const sherd_unit units[] = {{.name = "a", .first_tensor = 0, .tensor_count = 1},
                                   {.name = "b", .first_tensor = 1, .tensor_count = 1},
                                   {.name = "c", .first_tensor = 2, .tensor_count = 1}};

/* Per step: gathers, gathers of gradients, reduces, exchanges; bytes a copying backend would receive; bytes that were
 * moved. */
typedef struct expectation {
    int stage;
    sherd_gather gather;
    int micro_steps;
    sherd_traffic traffic;
    const int64_t *moved; /* by rank; NULL: traffic's on all */
} expectation;

static sherd_status zero_fill(void *user, int32_t tensor, int64_t first, int64_t count, float *values) {
    (void)user, (void)tensor, (void)first;
    memset(values, 0, (size_t)count * sizeof *values);
    return SHERD_OK;
}

static sherd_status zero_gradients(void *user, const sherd_view *view) {
    (void)user;
    for (int32_t t = 0; t < 3; t++)
        if (view->gradients[t]) memset(view->gradients[t], 0, (size_t)tensors[t].shape[0] * sizeof(float));
    return SHERD_OK;
}

static int count_one_step(void *user, const sherd_options *options) {
    const expectation *expected = user;
    const sherd_model model = {sizeof model, units, 3, tensors, 3, 0, 0};
    sherd_session *session;
    EXPECT(sherd_session_create(options, &model, &session) == SHERD_OK);
    EXPECT(sherd_session_fill(session, zero_fill, NULL) == SHERD_OK);
    sherd_callbacks callbacks = {.size = sizeof callbacks, .forward = zero_gradients, .backward = zero_gradients};
    for (int step = 0; step < 2; step++) {
        sherd_traffic before, after;
        sherd_session_traffic(session, &before);
        EXPECT(sherd_run_step(session, 1, &callbacks, NULL) == SHERD_OK);
        sherd_session_traffic(session, &after);
        EXPECT(after.gather_count - before.gather_count == expected->traffic.gather_count);
        EXPECT(after.gather_gradient_count - before.gather_gradient_count == expected->traffic.gather_gradient_count);
        EXPECT(after.reduce_count - before.reduce_count == expected->traffic.reduce_count);
        EXPECT(after.exchange_count - before.exchange_count == expected->traffic.exchange_count);
        EXPECT(after.reduce_replicas_count - before.reduce_replicas_count == expected->traffic.reduce_replicas_count);
        EXPECT(after.logical_bytes - before.logical_bytes == expected->traffic.logical_bytes);
        EXPECT(after.moved_bytes - before.moved_bytes ==
               (expected->moved ? expected->moved[options->rank] : expected->traffic.moved_bytes));
    }
    sherd_session_destroy(session);
    return 0;
}

Test(traffic, is_what_each_stage_gather_and_accumulation_promise, .timeout = 60) {
    static const expectation table[] = {
        {0, SHERD_GATHER_COPY, 1, {0, 3, 3, 2, 2 * ALL_UNITS, 2 * ALL_UNITS}},
        {0, SHERD_GATHER_COPY, 2, {0, 3, 6, 2, 3 * ALL_UNITS, 3 * ALL_UNITS}},
        {1, SHERD_GATHER_COPY, 1, {3, 0, 3, 2, 2 * ALL_UNITS, 2 * ALL_UNITS}},
        {1, SHERD_GATHER_COPY, 2, {3, 0, 6, 2, 3 * ALL_UNITS, 3 * ALL_UNITS}},
        {1, SHERD_GATHER_SHARED, 1, {3, 0, 3, 2, 2 * ALL_UNITS, ALL_UNITS}},
        {1, SHERD_GATHER_SHARED, 2, {3, 0, 6, 2, 3 * ALL_UNITS, 2 * ALL_UNITS}},
        {2, SHERD_GATHER_COPY, 2, {3, 0, 6, 2, 3 * ALL_UNITS, 3 * ALL_UNITS}},
        {2, SHERD_GATHER_SHARED, 2, {3, 0, 6, 2, 3 * ALL_UNITS, 2 * ALL_UNITS}},
        {3, SHERD_GATHER_COPY, 1, {5, 0, 3, 2, STAGE_3_GATHERS + ALL_UNITS, STAGE_3_GATHERS + ALL_UNITS}},
        {3, SHERD_GATHER_COPY, 2, {10, 0, 6, 2, 2 * (STAGE_3_GATHERS + ALL_UNITS), 2 * (STAGE_3_GATHERS + ALL_UNITS)}},
        {3, SHERD_GATHER_SHARED, 1, {5, 0, 3, 2, STAGE_3_GATHERS + ALL_UNITS, ALL_UNITS}},
        {3, SHERD_GATHER_SHARED, 2, {10, 0, 6, 2, 2 * (STAGE_3_GATHERS + ALL_UNITS), 2 * ALL_UNITS}},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        for (int clip = 0; clip <= 1; clip++) {
            sherd_options options = SHERD_OPTIONS_INIT;
            options.stage = table[i].stage;
            options.gather = table[i].gather;
            options.micro_steps = table[i].micro_steps;
            options.clip = clip;
            options.timeout_s = options.start_timeout_s = 20;
            expectation expected = table[i];
            int line = run_ranks(RANKS, &options, count_one_step, &expected);
            cr_assert_eq(line, 0, "stage %d, gather %d, %d micro-steps, clip %d: line %d", table[i].stage,
                         table[i].gather, table[i].micro_steps, clip, line);
        }
}

/* Once a step, whatever the number of micro-steps: REDUCE_REPLICAS and GATHER_GRADIENT of each unit. Moved is the same on
 * both replicas, what is read and copied being 3 parts and 1. */
enum { PARTS_LOGICAL = 2 * 3 * 1024, PARTS_MOVED = 4 * 1024 };

Test(traffic, of_replicas_is_what_their_parts_add_up_to, .timeout = 60) {
    static const expectation table[] = {
        {1, SHERD_GATHER_COPY, 1, {3, 3, 3, 2, 2 * ALL_UNITS + PARTS_LOGICAL, 2 * ALL_UNITS + PARTS_MOVED, 3}},
        {1, SHERD_GATHER_SHARED, 2, {3, 3, 6, 2, 3 * ALL_UNITS + PARTS_LOGICAL, 2 * ALL_UNITS + PARTS_MOVED, 3}},
        {2, SHERD_GATHER_COPY, 2, {3, 3, 6, 2, 3 * ALL_UNITS + PARTS_LOGICAL, 3 * ALL_UNITS + PARTS_MOVED, 3}},
        {3,
         SHERD_GATHER_COPY,
         1,
         {5, 3, 3, 2, STAGE_3_GATHERS + ALL_UNITS + PARTS_LOGICAL, STAGE_3_GATHERS + ALL_UNITS + PARTS_MOVED, 3}},
        {3,
         SHERD_GATHER_SHARED,
         2,
         {10, 3, 6, 2, 2 * (STAGE_3_GATHERS + ALL_UNITS) + PARTS_LOGICAL, 2 * ALL_UNITS + PARTS_MOVED, 3}},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        for (int clip = 0; clip <= 1; clip++) {
            sherd_options options = SHERD_OPTIONS_INIT;
            options.stage = table[i].stage;
            options.gather = table[i].gather;
            options.micro_steps = table[i].micro_steps;
            options.clip = clip;
            options.replicas = 2;
            options.timeout_s = options.start_timeout_s = 20;
            expectation expected = table[i];
            int line = run_ranks(2 * RANKS, &options, count_one_step, &expected);
            cr_assert_eq(line, 0, "case %zu, clip %d: line %d", i, clip, line);
        }
}

/* Three replicas of one rank neither gather nor have anybody to reduce with: only sums over replicas move. Shards are 512,
 * 1024 and 256 elements, their parts 256, 256, 0; 512, 512, 0; 256, 0, 0. A rank reads its part from two others, and
 * copies what is not its part. */
Test(traffic, of_replicas_of_one_rank_is_sums_alone, .timeout = 60) {
    static const int64_t moved[] = {4 * (2 * 1024 + 768), 4 * (2 * 768 + 1024), 4 * 1792};
    sherd_options options = SHERD_OPTIONS_INIT;
    options.stage = 2;
    options.replicas = 3;
    options.timeout_s = options.start_timeout_s = 20;
    expectation expected = {.traffic = {0, 3, 3, 2, 2 * 2 * 4 * 1024, 0, 3}, .moved = moved};
    int line = run_ranks(3, &options, count_one_step, &expected);
    cr_assert_eq(line, 0, "line %d", line);
}
