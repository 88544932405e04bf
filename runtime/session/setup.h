/* From options to a plan: shared by sessions and by everything that only wants to look (`sherd plan`, `--dry-run`); and
 * the two parts of a session that the job loop shares. */
#ifndef SHD_SESSION_SETUP_H
#define SHD_SESSION_SETUP_H

#include "io/checkpoint.h"
#include "runtime/device/pool.h"
#include "runtime/schedule/program.h"
#include "shard/plan.h"

#include <sherd/model.h>
#include <sherd/options.h>
#include <sherd/session.h>

/* Checks every option but rank and rendezvous. Fails: CONFIG, naming the key as a job file does. */
sherd_status shd_options_check(const sherd_options *options);

/* Checks that every name pattern of `optimizer`, a checked one, matches a tensor of `model`, of which a plan can be made.
 * Fails: CONFIG, naming key and pattern; MEMORY. */
sherd_status shd_options_check_names(const sherd_optimizer *optimizer, const sherd_model *model);

/* The policy that `options` ask for, on rank `rank`. AUTO is resolved here. */
void shd_options_policy(const sherd_options *options, int32_t rank, shd_policy *out);

/* Whether a session with these options and this plan can load the checkpoint: one of the same optimizer, ranks, stage
 * and plan. Fails: DATA, with the path and what differs. */
sherd_status shd_checkpoint_fits(const shd_checkpoint *checkpoint, const sherd_options *options, const shd_plan *plan);

/* The pool of a session, for model code that runs inside its brackets. Borrowed. */
shd_pool *shd_session_pool(sherd_session *session);
/* Its plan. Borrowed. */
const shd_plan *shd_session_plan(const sherd_session *session);

/* Makes sure that every rank has the same `value`, a hash of what they must share beyond the session's options; `what`
 * names it: "data". Collective; at any moment but inside a step or evaluation. Fails: DATA on all ranks alike (the
 * first rank that differs from rank 0), and what ends a session. */
sherd_status shd_session_compare(sherd_session *session, const char *what, uint64_t value);

#endif
