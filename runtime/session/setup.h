/* From options to a plan: shared by sessions and by everything that only wants to look (`sherd plan`, `--dry-run`); and
 * what of a session the job loop shares. */
#ifndef SHD_SESSION_SETUP_H
#define SHD_SESSION_SETUP_H

#include "io/checkpoint.h"
#include "optim/rules.h"
#include "runtime/comm/recorder.h"
#include "runtime/device/device.h"
#include "runtime/device/pool.h"
#include "runtime/schedule/program.h"
#include "shard/plan.h"

#include <sherd/model.h>
#include <sherd/options.h>
#include <sherd/session.h>

/* Checks every option but rank and rendezvous. Fails: CONFIG, naming the key as a job file does. */
sherd_status shd_options_check(const sherd_options *options);

/* What each tensor of `model`, a checked one, has of its own under `optimizer`, another: fills rules and demands, both
 * [model->tensor_count]; demands may be NULL.
 * Fails: CONFIG, naming key and pattern. */
sherd_status shd_options_rules(const sherd_optimizer *optimizer, const sherd_model *model, shd_tensor_rule *rules,
                               shd_demand *demands);

/* The plan that `options`, checked ones, ask for on rank `rank`. AUTO is resolved here.
 * Owns: destroy *out with shd_plan_destroy.
 * Fails: ARGUMENT (the model), CONFIG (what a pattern or group names), MEMORY. */
sherd_status shd_options_plan(const sherd_options *options, const sherd_model *model, int32_t rank, shd_plan **out);

/* Whether a session with these options and this plan can load what `load` (NULL: everything) wants of the checkpoint: the
 * same tensors by name and shape, and for each that is trained the states of the same optimizer. Of tensors that are
 * frozen now, states there do not matter. Fails: DATA, with the path and what differs, the first few of each list. */
sherd_status shd_checkpoint_fits(const shd_checkpoint *checkpoint, const sherd_options *options, const shd_plan *plan,
                                 const sherd_load *load);

/* Whether UPDATE is to follow VERDICT, which may say that nothing is updated, or by how much gradients are clipped. */
bool shd_options_update_late(const sherd_options *options);

/* sherd_session_create with a flight recorder that the ranks have had since they started; borrowed for the session's life.
 * NULL: they make one when they meet. */
sherd_status shd_session_create_recorded(const sherd_options *options, const sherd_model *model, shd_recorder *recorder,
                                         sherd_session **out);

/* Where a session's brackets compute, if that is a device: what they enqueue goes to `stream`. Borrowed. false: it is not. */
typedef struct shd_session_place {
    const shd_device_ops *device_ops;
    shd_device *device;
    shd_stream *stream;
    const char
        *link; /* by which ranks exchange what they gather and reduce, as job files have it; NULL: there is one rank */
} shd_session_place;
bool shd_session_device(const sherd_session *session, shd_session_place *out);
/* Returns when `event` is reached, carrying on meanwhile what other ranks may wait for. `what` names it in messages.
 * Fails: DEVICE, and what ends a session. */
sherd_status shd_session_await(sherd_session *session, shd_event *event, const char *what);
/* sherd_add_loss and sherd_add_metric of terms that lie in pinned memory and are there when the stream of brackets is past
 * what it has been given: they are added at the latest when the step or evaluation ends, and must stay till 16 more
 * such calls have returned. Fails: STATE, as shd_session_await. */
sherd_status shd_session_add_loss_later(sherd_session *session, const double *terms, int64_t count);
sherd_status shd_session_add_metric_later(sherd_session *session, int32_t metric, const double *terms, int64_t count);
/* Returns when nothing of the session's runs on its device any more; what waits for other ranks in vain is given up. For
 * those who end before the session what their work there uses. Accepts NULL. */
void shd_session_rest(sherd_session *session);

/* The pool of a session, for model code that runs inside its brackets. Borrowed. */
shd_pool *shd_session_pool(sherd_session *session);
/* The flight recorder with this rank's part. Borrowed. */
shd_recorder *shd_session_recorder(const sherd_session *session);
/* Its plan. Borrowed. */
const shd_plan *shd_session_plan(const sherd_session *session);

/* Multiplies the learning rates of the coming steps; 1 from create on, and no part of checkpoints. The same on every rank. */
void shd_session_set_lr_factor(sherd_session *session, double factor);
/* What the verdict on the last step was, also where sherd_step has failed by it with NUMERIC. */
void shd_session_found(const sherd_session *session, sherd_step_result *out);
/* Where in that step the first number was that is not finite, for people. */
void shd_session_describe_nonfinite(const sherd_session *session, const sherd_step_result *result, char *out,
                                    size_t bytes);
/* The time that rank `rank` spent on work of its own up to the last step's verdict, since the one before. */
double shd_session_rank_step_ms(const sherd_session *session, int32_t rank);

/* Makes sure that every rank has the same `value`, a hash of what they must share beyond the session's options; `what`
 * names it: "data". Collective; at any moment but inside a step or evaluation. Fails: DATA on all ranks alike (the
 * first rank that differs from rank 0), and what ends a session. */
sherd_status shd_session_compare(sherd_session *session, const char *what, uint64_t value);

/* One status for all ranks: that of the lowest rank that failed, with its cause. Below 100 the session lives on.
 * Collective; at any moment but inside a step or evaluation. */
sherd_status shd_session_agree(sherd_session *session, sherd_status mine);

#endif
