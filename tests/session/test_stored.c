/* What a plan says is stored is what the engine has, in the order in which it is saved. */
#include "runtime/session/internal.h"
#include "shard/reshard.h"
#include "support/ranks.h"
#include "support/toy.h"

#include <criterion/criterion.h>

/* The engine's slices, to be met one by one. */
typedef struct slices {
    shd_slice list[256];
    bool whole[256];
    int32_t states[256];
    int32_t count, met, state_index;
    bool of_whole;
} slices;

static sherd_status note_slice(void *user, const shd_slice *slice) {
    slices *seen = user;
    if (seen->count == 256) return SHERD_INTERNAL;
    seen->whole[seen->count] = seen->of_whole;
    seen->states[seen->count] = seen->state_index;
    seen->list[seen->count++] = *slice;
    return SHERD_OK;
}

static sherd_status meet_slice(void *user, const shd_stored_range *range) {
    slices *seen = user;
    if (seen->met == seen->count) return SHERD_DATA;
    const shd_slice *slice = &seen->list[seen->met];
    bool same = slice->tensor == range->tensor_index && slice->first == range->first && slice->count == range->count &&
                slice->dtype == range->dtype && seen->states[seen->met] == range->state_index &&
                seen->whole[seen->met] == range->whole;
    seen->met++;
    return same ? SHERD_OK : SHERD_DATA;
}

static int compare(sherd_session *session, int32_t place, int32_t *total) {
    slices seen = {.met = 0};
    for (int32_t s = -1; s < session->plan->policy.state_count; s++) {
        seen.state_index = s;
        EXPECT(shd_engine_visit(session->engine, s, place, note_slice, &seen) == SHERD_OK);
    }
    seen.of_whole = true;
    for (int32_t s = 0; s < SHD_MAX_OWNED_STATES; s++) {
        seen.state_index = s;
        EXPECT(shd_engine_visit_owned(session->engine, s, place, note_slice, &seen) == SHERD_OK);
    }
    EXPECT(shd_plan_visit_stored(session->plan, place, meet_slice, &seen) == SHERD_OK);
    EXPECT(seen.met == seen.count);
    *total += seen.count;
    return 0;
}

/* At stage 0 a rank has what every place stores, else what its own does. */
static int compare_places(void *user, const sherd_options *options) {
    (void)user;
    sherd_session *session;
    EXPECT(sherd_session_create(options, toy_model(), &session) == SHERD_OK);
    int32_t own = shd_policy_place(&session->plan->policy), split = shd_policy_split(&session->plan->policy), total = 0;
    int line = 0;
    for (int32_t place = 0; place < split && line == 0; place++)
        if (options->stage == 0 || place == own) line = compare(session, place, &total);
    sherd_session_destroy(session);
    EXPECT(line != 0 || options->stage > 0 || total > TOY_TENSORS);
    return line;
}

Test(stored, is_what_the_engine_has_at_every_stage, .timeout = 60) {
    static const sherd_optimizer_kind kinds[] = {SHERD_ADAMW, SHERD_ADAFACTOR, SHERD_MUON};
    for (int ranks = 1; ranks <= 4; ranks++)
        for (int stage = 0; stage <= 3; stage++)
            for (int k = 0; k < 4; k++) {
                sherd_options options = SHERD_OPTIONS_INIT;
                options.stage = stage;
                options.optimizer.kind = kinds[k % 3];
                options.optimizer.lr = 0.01;
                options.timeout_s = options.start_timeout_s = 30;
                if (k == 3) options.precision = SHERD_BF16, options.optimizer.state_dtype = SHERD_INT8;
                if (stage > 0 && ranks % 2 == 0) options.replicas = 2;
                int line = run_ranks(ranks, &options, compare_places, NULL);
                cr_assert_eq(line, 0, "%d ranks, stage %d, optimizer %d: line %d", ranks, stage, k, line);
            }
}
