#include "runtime/train/row.h"

#include "runtime/base/clock.h"

#include <math.h>

double shd_row_loss(double mean, int64_t targets) { return targets > 0 ? mean : NAN; }
double shd_row_share(double correct, int64_t targets) { return targets > 0 ? correct / (double)targets : NAN; }

/* What each source of a mixture has given, up to sequence number `end` and among the last step's. */
static void count_sources(shd_job_run *run, int64_t end, shd_metrics_row *row) {
    int32_t count = shd_dataset_source_count(run->training_data);
    if (count == 1) return;
    for (int32_t i = 0; i < count; i++) {
        int64_t drawn = shd_dataset_drawn(run->training_data, i, end);
        int64_t before = shd_dataset_drawn(run->training_data, i, end - run->job->train.global_batch);
        run->source_tokens_seen[i] = drawn * run->job->model.context;
        run->source_tokens[i] = (drawn - before) * run->job->model.context;
    }
    row->source_count = count;
    row->source_tokens = run->source_tokens;
    row->source_tokens_seen = run->source_tokens_seen;
}

static shd_metrics_spread spread_of(const sherd_rank_times *times) {
    return (shd_metrics_spread){.min = times->min_ms, .median = times->median_ms, .max = times->max_ms};
}

shd_metrics_row shd_row_make(shd_job_run *run, const sherd_step_result *result) {
    shd_metrics_row row = {.step = result->step,
                           .loss = run->summary.loss,
                           .grad_norm = result->grad_norm,
                           .lr = result->lr,
                           .has_param_norm = true,
                           .param_norm = result->param_norm,
                           .compared = true,
                           .rank_step_ms = spread_of(&result->rank_step),
                           .rank_wait_ms = spread_of(&result->rank_wait),
                           .slowest_rank = result->rank_step.max_rank,
                           .loss_scale = run->job->train.precision == SHERD_FP16 ? result->loss_scale : 0,
                           .skipped = result->skipped,
                           .classified = run->has_samples && run->samples.classes,
                           .accuracy = shd_row_share(result->metrics[0], result->target_count),
                           .items = shd_job_items(run->job),
                           .tokens = shd_job_step_tokens(run->job),
                           .tokens_seen = run->summary.tokens_seen,
                           .data_ms = run->data_ms,
                           .data_ready = run->data_ready,
                           .compute_ms = result->compute_ms,
                           .exposed_comm_ms = result->exposed_comm_ms,
                           .optimizer_ms = result->optimizer_ms,
                           .save_wait_ms = result->save_wait_ms + shd_saver_take_wait(&run->saver),
                           .peak_bytes = result->peak_bytes};
    count_sources(run, shd_job_run_place(run).sequence, &row);
    return row;
}

void shd_row_report(shd_job_run *run, shd_metrics_row *row, bool nonfinite, bool good) {
    double now_ms = shd_clock_ms();
    double known_ms = row->data_ms + row->compute_ms + row->exposed_comm_ms + row->optimizer_ms + row->save_wait_ms;
    row->other_ms = fmax(now_ms - run->row_end_ms - known_ms, 0);
    run->row_end_ms = now_ms;
    run->total.data_ms += row->data_ms;
    run->total.compute_ms += row->compute_ms;
    run->total.exposed_comm_ms += row->exposed_comm_ms;
    run->total.optimizer_ms += row->optimizer_ms;
    run->total.save_wait_ms += row->save_wait_ms;
    run->total.other_ms += row->other_ms;
    if (run->journal) shd_journal_add(run->journal, row, nonfinite);
    if (!run->hooks->stepped) return;
    const shd_train_step step = {.step = run->summary.step,
                                 .loss = row->loss,
                                 .grad_norm = row->grad_norm,
                                 .lr = row->lr,
                                 .loss_scale = row->loss_scale > 0 ? row->loss_scale : 1,
                                 .skipped = row->skipped,
                                 .bad = !good,
                                 .samples = run->has_samples,
                                 .classified = row->classified,
                                 .validated = row->validated,
                                 .accuracy = row->classified ? row->accuracy : NAN,
                                 .validation_loss = row->validated ? row->validation_loss : NAN,
                                 .validation_accuracy =
                                     row->validated && row->classified ? row->validation_accuracy : NAN,
                                 .tokens = row->tokens,
                                 .step_ms = shd_metrics_step_ms(row),
                                 .peak_bytes = row->peak_bytes,
                                 .stopped = run->summary.stopped};
    run->hooks->stepped(run->hooks->user, &step);
}
