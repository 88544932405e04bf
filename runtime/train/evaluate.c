#include "runtime/train/evaluate.h"

#include "runtime/base/arith.h"
#include "runtime/base/status.h"
#include "runtime/session/setup.h"

shd_evaluation_plan shd_evaluation_plan_make(int64_t available, int64_t wanted, int64_t micro_batch,
                                             int32_t world_size) {
    int64_t sequences = wanted > 0 ? shd_min(wanted, available) : available;
    int64_t micro_batches = shd_div_ceil(sequences, micro_batch);
    return (shd_evaluation_plan){
        .sequence_count = sequences,
        .micro_batch_count = micro_batches,
        .micro_steps = (int32_t)shd_div_ceil(shd_min(micro_batches, SHD_PORTION_MICRO_BATCHES), world_size)};
}

/* Forward of all units; an idle rank passes through the brackets, as the others need its shards. */
static sherd_status run_forward(sherd_session *session, shd_model *model, bool idle) {
    int32_t units = shd_model_describe(model)->unit_count;
    for (int32_t u = 0; u < units; u++) {
        sherd_view view;
        SHD_TRY(sherd_forward_begin(session, u, &view));
        if (!idle) SHD_TRY(shd_model_forward(model, &view));
        SHD_TRY(sherd_forward_end(session, u));
    }
    return SHERD_OK;
}

/* Micro-batches [first, end). A rank that cannot read its data is idle from then on; *reading is why. */
static sherd_status run_portion(sherd_session *session, shd_model *model, shd_pool *pool, shd_feed *feed,
                                const shd_evaluation_plan *plan, const sherd_options *options, int64_t first,
                                int64_t end, sherd_status *reading, sherd_evaluation *result) {
    int64_t target_count = 0;
    SHD_TRY(sherd_evaluate_begin(session));
    for (int32_t k = 0; k < plan->micro_steps; k++) {
        int64_t index = first + (int64_t)k * options->world_size + options->rank;
        shd_batch batch = shd_feed_batch(feed, 0);
        int64_t counted = 0;
        if (index < end && *reading == SHERD_OK)
            *reading = shd_feed_read_padded(feed, index, plan->sequence_count, &counted);
        bool idle = index >= end || *reading != SHERD_OK;
        if (!idle) {
            shd_model_bind(model, pool, &batch);
            target_count += counted;
        }
        SHD_TRY(run_forward(session, model, idle));
        if (!idle) SHD_TRY(shd_feed_add(feed, session, model, &batch));
    }
    return sherd_evaluate_end(session, target_count, result);
}

sherd_status shd_evaluate(sherd_session *session, shd_model *model, shd_pool *pool, shd_feed *feed,
                          const shd_evaluation_plan *plan, const sherd_options *options, sherd_evaluation *out) {
    sherd_evaluation all = {0};
    sherd_status reading = SHERD_OK;
    for (int64_t first = 0; first < plan->micro_batch_count; first += SHD_PORTION_MICRO_BATCHES) {
        int64_t end = shd_min(first + SHD_PORTION_MICRO_BATCHES, plan->micro_batch_count);
        sherd_evaluation portion;
        SHD_TRY(run_portion(session, model, pool, feed, plan, options, first, end, &reading, &portion));
        /* A running mean: one portion alone comes out as it is, bit by bit. */
        all.target_count += portion.target_count;
        double weight = all.target_count ? (double)portion.target_count / (double)all.target_count : 0;
        all.loss += weight * (portion.loss - all.loss);
        for (int m = 0; m < SHERD_METRICS; m++) all.metrics[m] += portion.metrics[m];
    }
    SHD_TRY(shd_session_agree(session, reading));
    *out = all;
    return SHERD_OK;
}
