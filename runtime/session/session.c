/* A session's life: plan, compile, verify, meet, allocate; fill; destroy. */
#include "optim/whole.h"
#include "runtime/base/arith.h"
#include "runtime/base/hash.h"
#include "runtime/base/log.h"
#include "runtime/base/memory.h"
#include "runtime/base/status.h"
#include "runtime/schedule/verify.h"
#include "runtime/session/internal.h"
#include "runtime/session/setup.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

/* --- planning: every rank plans for all ranks, so that the verifier sees the whole host --------------------------- */

typedef struct host_programs {
    int32_t rank_count;
    shd_plan **plans;
    shd_program **programs;
} host_programs;

static void host_programs_fini(host_programs *host) {
    for (int32_t r = 0; r < host->rank_count; r++) {
        if (host->programs) shd_program_destroy(host->programs[r]);
        if (host->plans) shd_plan_destroy(host->plans[r]);
    }
    shd_free(host->programs);
    shd_free(host->plans);
}

static sherd_status host_programs_init(host_programs *host, const sherd_options *options, const sherd_model *model) {
    *host = (host_programs){.rank_count = options->world_size};
    host->plans = shd_alloc((size_t)host->rank_count, sizeof(shd_plan *));
    host->programs = shd_alloc((size_t)host->rank_count, sizeof(shd_program *));
    if (!host->plans || !host->programs) return shd_fail(SHERD_MEMORY, "no memory for the plans of all ranks");
    for (int32_t r = 0; r < host->rank_count; r++) SHD_TRY(shd_options_plan(options, model, r, &host->plans[r]));
    return SHERD_OK;
}

static int32_t micro_steps_of(const sherd_options *options, shd_program_kind kind) {
    return kind == SHD_PROGRAM_EVALUATE ? options->eval_micro_steps : options->micro_steps;
}

/* Compiles `kind` for all ranks, verifies them together, and keeps this rank's. */
static sherd_status compile_kind(sherd_session *session, host_programs *host, shd_program_kind kind) {
    int32_t micro_steps = micro_steps_of(&session->options, kind);
    if (micro_steps == 0) return SHERD_OK;
    for (int32_t r = 0; r < host->rank_count; r++)
        SHD_TRY(shd_program_compile(host->plans[r], kind, micro_steps, shd_options_update_late(&session->options),
                                    &host->programs[r]));
    SHD_TRY(shd_program_verify((const shd_plan *const *)host->plans, (const shd_program *const *)host->programs,
                               host->rank_count, NULL));
    for (int32_t r = 0; r < host->rank_count; r++) {
        if (r == session->options.rank)
            session->programs[kind] = host->programs[r];
        else
            shd_program_destroy(host->programs[r]);
        host->programs[r] = NULL;
    }
    return SHERD_OK;
}

static sherd_status plan_all(sherd_session *session, const sherd_model *model) {
    host_programs host;
    sherd_status status = host_programs_init(&host, &session->options, model);
    for (int32_t kind = 0; kind < SHD_PROGRAM_KINDS && status == SHERD_OK; kind++)
        status = compile_kind(session, &host, (shd_program_kind)kind);
    if (status == SHERD_OK) {
        session->plan = host.plans[session->options.rank];
        host.plans[session->options.rank] = NULL;
    }
    host_programs_fini(&host);
    return status;
}

/* Equal on all ranks, or they would compute different things: plan, programs, and how gradients become updates. */
static uint64_t fingerprint(const sherd_session *session) {
    const sherd_optimizer *optimizer = &session->options.optimizer;
    const double numbers[] = {optimizer->lr,           optimizer->min_lr,     optimizer->beta1,
                              optimizer->beta2,        optimizer->eps,        optimizer->momentum,
                              optimizer->weight_decay, session->options.clip, optimizer->beta2_decay,
                              optimizer->update_clip,  optimizer->scale_floor};
    uint64_t hash =
        SHD_HASH(shd_plan_hash(session->plan), session->options.device, session->options.link, optimizer->kind,
                 optimizer->nesterov, optimizer->schedule, optimizer->decay, shd_schedule_warmup_steps(optimizer),
                 optimizer->total_steps, optimizer->decay_steps, optimizer->ns_steps, optimizer->adjust_lr);
    hash = shd_hash_bytes(hash, numbers, sizeof numbers);
    hash = SHD_HASH(hash, session->options.on_nonfinite, session->options.judge != NULL);
    const sherd_loss_scale *scale = &session->options.loss_scale;
    const double scales[] = {scale->initial, scale->minimum, scale->growth_interval, scale->hysteresis};
    if (session->options.precision == SHERD_FP16) hash = shd_hash_bytes(hash, scales, sizeof scales);
    for (int32_t t = 0; t < session->plan->tensor_count; t++) {
        const double rule[] = {session->rules[t].lr_factor, session->rules[t].weight_decay};
        hash = shd_hash_bytes(hash, rule, sizeof rule);
    }
    for (int32_t kind = 0; kind < SHD_PROGRAM_KINDS; kind++)
        if (session->programs[kind]) hash = SHD_HASH(hash, (int64_t)shd_program_hash(session->programs[kind]));
    return hash;
}

/* --- life --------------------------------------------------------------------------------------------------------- */

static sherd_status meet(sherd_session *session) {
    const sherd_options *options = &session->options;
    const bool on_device = options->device != SHERD_DEVICE_CPU;
    const shd_comm_config config = {
        .rank = options->rank,
        .world_size = options->world_size,
        .replicas = options->replicas,
        .rendezvous = options->rendezvous,
        .fingerprint = fingerprint(session),
        .exported_bytes =
            on_device ? shd_place_exported_bytes(session) : session->plan->arena_bytes[SHD_PLACE_EXPORTED],
        .host_bytes = session->plan->arena_bytes[SHD_PLACE_HOST],
        .unit_count = session->plan->unit_count + shd_place_counter_units(session),
        .timeout_s = options->timeout_s,
        .start_timeout_s = options->start_timeout_s,
        .pool = session->pool,
        .recorder = session->recorder,
    };
    return shd_comm_create(&config, &session->comm);
}

/* What names say of tensors, turned into a table: the names were only borrowed. */
static sherd_status make_rules(sherd_session *session, const sherd_model *model) {
    sherd_optimizer *optimizer = &session->options.optimizer;
    session->rules = shd_alloc((size_t)model->tensor_count, sizeof *session->rules);
    if (!session->rules) return shd_fail(SHERD_MEMORY, "no memory for the rules of %d tensors", model->tensor_count);
    SHD_TRY(shd_options_rules(optimizer, model, session->rules, NULL));
    optimizer->decay_patterns = NULL;
    optimizer->groups = NULL;
    optimizer->decay_pattern_count = optimizer->group_count = 0;
    return SHERD_OK;
}

static sherd_status start_engine(sherd_session *session) {
    shd_engine_config config = {
        .plan = session->plan,
        .comm = session->comm,
        .pool = session->pool,
        .optimizer = session->options.optimizer,
        .rules = session->rules,
        .clip = session->options.clip,
        .loss_scale = session->options.loss_scale,
        .skips_nonfinite = session->options.on_nonfinite == SHERD_NONFINITE_SKIP,
        .judge = session->options.judge,
        .judge_user = session->options.judge_user,
        .storage = &session->save.storage,
        .place = session->options.device != SHERD_DEVICE_CPU ? &session->place : NULL,
    };
    session->save.storage = shd_session_storage(session);
    for (int32_t kind = 0; kind < SHD_PROGRAM_KINDS; kind++) config.programs[kind] = session->programs[kind];
    return shd_engine_create(&config, &session->engine);
}

/* This rank has run out of something that its peers may have: tells those that are about to wait for it. */
static sherd_status decline(const sherd_session *session, sherd_status status) {
    const sherd_options *options = &session->options;
    const shd_comm_config config = {.rank = options->rank,
                                    .world_size = options->world_size,
                                    .rendezvous = options->rendezvous,
                                    .start_timeout_s = options->start_timeout_s};
    char cause[1000];
    snprintf(cause, sizeof cause, "%s", sherd_last_error());
    shd_comm_decline(&config, cause);
    return shd_fail(status, "%s", cause);
}

/* What a rank does alone. */
static sherd_status prepare(sherd_session *session, const sherd_model *model) {
    SHD_TRY(plan_all(session, model));
    SHD_TRY(make_rules(session, model));
    session->ballots = shd_alloc((size_t)session->options.world_size + 1, sizeof *session->ballots);
    if (!session->ballots) return shd_fail(SHERD_MEMORY, "no memory for the ranks to agree in");
    return shd_pool_create(session->options.threads, &session->pool);
}

/* All agree on `mine`, and on the number that is part of the names of folders in the making: rank 0 draws one that no
 * other session has. */
static sherd_status share_id(sherd_session *session, sherd_status mine) {
    uint64_t id = 0;
    char text[20];
    if (mine == SHERD_OK && getrandom(&id, sizeof id, 0) != sizeof id)
        mine = shd_fail(SHERD_IO, "the system has no random numbers: %s", strerror(errno));
    snprintf(text, sizeof text, "%016" PRIx64, id);
    SHD_TRY(shd_session_vote(session, mine, mine == SHERD_OK ? text : sherd_last_error()));
    SHD_TRY(shd_session_outcome(session));
    session->save.id = strtoull(session->ballots[0].text, NULL, 16);
    return SHERD_OK;
}

static sherd_status init(sherd_session *session, const sherd_model *model) {
    sherd_status prepared = prepare(session, model);
    if (prepared == SHERD_MEMORY) return decline(session, prepared);
    SHD_TRY(prepared);
    SHD_TRY(meet(session));
    sherd_status status = shd_place_open(session);
    SHD_TRY(shd_session_agree(session, status));
    SHD_TRY(shd_place_link(session));
    status = start_engine(session);
    if (status == SHERD_OK) status = shd_session_save_init(session);
    return share_id(session, status);
}

sherd_status sherd_session_create(const sherd_options *options, const sherd_model *model, sherd_session **out) {
    return shd_session_create_recorded(options, model, NULL, out);
}

sherd_status shd_session_create_recorded(const sherd_options *options, const sherd_model *model, shd_recorder *recorder,
                                         sherd_session **out) {
    if (!options || !model || !out)
        return shd_fail(SHERD_ARGUMENT, "sherd_session_create needs options, a model and a place for the session");
    SHD_TRY(shd_options_check(options));
    if (options->rank < 0 || options->rank >= options->world_size)
        return shd_fail(SHERD_CONFIG, "rank is %d; with world_size %d it must be 0 to %d", options->rank,
                        options->world_size, options->world_size - 1);
    sherd_session *session = shd_alloc(1, sizeof *session);
    if (!session) return shd_fail(SHERD_MEMORY, "no memory for a session");
    session->options = *options;
    session->recorder = recorder;
    sherd_status status = init(session, model);
    session->options.rendezvous = NULL;
    if (status == SHERD_OK) {
        shd_log(SHERD_LOG_DEBUG, "rank %d of %d: stage %d, %lld bytes planned", options->rank, options->world_size,
                options->stage, (long long)session->plan->allocated_bytes);
        *out = session;
    } else {
        sherd_session_destroy(session);
    }
    return status;
}

void sherd_session_destroy(sherd_session *session) {
    if (!session) return;
    shd_session_save_fini(session);
    shd_session_rest(session);
    shd_place_unlink(session);
    shd_engine_destroy(session->engine);
    shd_place_close(session);
    shd_comm_destroy(session->comm);
    shd_pool_destroy(session->pool);
    for (int32_t kind = 0; kind < SHD_PROGRAM_KINDS; kind++) shd_program_destroy(session->programs[kind]);
    shd_plan_destroy(session->plan);
    shd_free(session->rules);
    shd_free(session->ballots);
    shd_free(session);
}

shd_pool *shd_session_pool(sherd_session *session) { return session->pool; }
shd_recorder *shd_session_recorder(const sherd_session *session) { return shd_comm_recorder(session->comm); }
const shd_plan *shd_session_plan(const sherd_session *session) { return session->plan; }

void shd_session_set_lr_factor(sherd_session *session, double factor) {
    shd_engine_set_lr_factor(session->engine, factor);
}

void shd_session_found(const sherd_session *session, sherd_step_result *out) {
    shd_engine_result(session->engine, out);
}

void shd_session_describe_nonfinite(const sherd_session *session, const sherd_step_result *result, char *out,
                                    size_t bytes) {
    shd_nonfinite_describe(session->plan, result, out, bytes);
}

double shd_session_rank_step_ms(const sherd_session *session, int32_t rank) {
    return shd_engine_rank_step_ms(session->engine, rank);
}

int64_t sherd_session_step_count(const sherd_session *session) { return session->step_count; }

void sherd_session_traffic(const sherd_session *session, sherd_traffic *out) {
    shd_comm_stats stats;
    shd_comm_get_stats(session->comm, &stats);
    *out = (sherd_traffic){
        .gather_count = stats.calls[SHD_COLLECTIVE_GATHER],
        .gather_gradient_count = stats.calls[SHD_COLLECTIVE_GATHER_GRADIENT],
        .reduce_count = stats.calls[SHD_COLLECTIVE_REDUCE],
        .exchange_count = stats.calls[SHD_COLLECTIVE_EXCHANGE],
        .reduce_replicas_count = stats.calls[SHD_COLLECTIVE_REDUCE_REPLICAS],
    };
    for (int32_t c = 0; c < SHD_COLLECTIVES; c++) {
        if (c == SHD_COLLECTIVE_EXCHANGE) continue;
        out->logical_bytes += stats.logical_bytes[c];
        out->moved_bytes += stats.moved_bytes[c];
    }
}

/* --- failing together --------------------------------------------------------------------------------------------- */

static const char *phase_text(shd_phase phase) {
    switch (phase) {
    case SHD_PHASE_EMPTY: return "its parameters are not set yet (sherd_session_fill or sherd_session_load)";
    case SHD_PHASE_BOUNDARY: return "it is between steps";
    case SHD_PHASE_STEP: return "a step is open";
    case SHD_PHASE_EVALUATION: return "an evaluation is open";
    case SHD_PHASE_DEAD: return "an earlier failure has ended it";
    }
    return "";
}

sherd_status shd_session_expect(const sherd_session *session, shd_phase phase, const char *call) {
    if (!session) return shd_fail(SHERD_ARGUMENT, "%s: the session is NULL", call);
    if (session->phase != phase)
        return shd_fail(SHERD_STATE, "%s: the session cannot do this now: %s", call, phase_text(session->phase));
    return SHERD_OK;
}

sherd_status shd_session_die(sherd_session *session, sherd_status status) {
    session->phase = SHD_PHASE_DEAD;
    shd_comm_fail(session->comm, status, sherd_last_error());
    return status;
}

_Static_assert(sizeof(shd_ballot) <= SHD_COMM_EXCHANGE_BYTES, "a ballot goes into one exchange");

sherd_status shd_session_vote(sherd_session *session, sherd_status mine, const char *text) {
    shd_ballot *own = &session->ballots[session->options.world_size];
    own->status = mine;
    snprintf(own->text, sizeof own->text, "%s", text);
    sherd_status status = shd_comm_exchange(session->comm, own, sizeof *own, session->ballots);
    return status == SHERD_OK ? SHERD_OK : shd_session_die(session, status);
}

sherd_status shd_session_outcome(sherd_session *session) {
    int32_t r = 0;
    while (r < session->options.world_size && session->ballots[r].status == SHERD_OK) r++;
    if (r == session->options.world_size) return SHERD_OK;
    const shd_ballot *failed = &session->ballots[r];
    if (sherd_status_is_fatal(failed->status)) session->phase = SHD_PHASE_DEAD;
    return r == session->options.rank ? shd_fail(failed->status, "%s", failed->text)
                                      : shd_fail(failed->status, "rank %d: %s", r, failed->text);
}

sherd_status shd_session_agree(sherd_session *session, sherd_status mine) {
    SHD_TRY(shd_session_vote(session, mine, mine == SHERD_OK ? "" : sherd_last_error()));
    return shd_session_outcome(session);
}

sherd_status shd_session_compare(sherd_session *session, const char *what, uint64_t value) {
    char text[20];
    snprintf(text, sizeof text, "%016llx", (unsigned long long)value);
    SHD_TRY(shd_session_vote(session, SHERD_OK, text));
    for (int32_t r = 1; r < session->options.world_size; r++)
        if (strcmp(session->ballots[r].text, session->ballots[0].text) != 0)
            return shd_fail(SHERD_DATA, "rank %d has other %s than rank 0 (fingerprints %s and %s)", r, what,
                            session->ballots[r].text, session->ballots[0].text);
    return SHERD_OK;
}

/* --- parameters --------------------------------------------------------------------------------------------------- */

sherd_status shd_session_begin_life(sherd_session *session) {
    sherd_status taken = shd_engine_take_values(session->engine);
    if (taken != SHERD_OK) return shd_session_die(session, taken);
    shd_engine_begin(session->engine, SHD_PROGRAM_PROLOGUE, session->step_count, 0);
    const shd_instruction *due;
    sherd_status status = shd_engine_advance(session->engine, &due);
    if (status != SHERD_OK) return shd_session_die(session, status);
    session->phase = SHD_PHASE_BOUNDARY;
    return SHERD_OK;
}

void shd_session_set_start(sherd_session *session, int64_t step) {
    session->step_count = session->start_step = step;
    session->save.settled_count = 0;
}

/* What is filled in 16 bits goes through this many float32 values at a time. */
enum { PORTION_COUNT = 1 << 16 };

typedef struct filler {
    sherd_fill_fn fill;
    void *user;
    float *portion; /* [PORTION_COUNT]; NULL where all that is filled is fp32 */
} filler;

static sherd_status fill_slice(void *user, const shd_slice *slice) {
    const filler *with = user;
    if (slice->dtype == SHERD_FP32)
        return with->fill(with->user, slice->tensor, slice->first, slice->count, slice->values);
    for (int64_t done = 0; done < slice->count; done += PORTION_COUNT) {
        int64_t count = shd_min(PORTION_COUNT, slice->count - done);
        SHD_TRY(with->fill(with->user, slice->tensor, slice->first + done, count, with->portion));
        shd_round(slice->dtype, count, with->portion, (char *)slice->values + done * shd_dtype_bytes(slice->dtype));
    }
    return SHERD_OK;
}

static sherd_status fill_parameters(sherd_session *session, sherd_fill_fn fill, void *user) {
    filler with = {.fill = fill, .user = user};
    if (session->options.precision != SHERD_FP32) {
        with.portion = shd_alloc(PORTION_COUNT, sizeof *with.portion);
        if (!with.portion) return shd_fail(SHERD_MEMORY, "no memory to fill 16-bit parameters");
    }
    sherd_status status = shd_engine_visit(session->engine, -1, -1, fill_slice, &with);
    shd_free(with.portion);
    if (status == SHERD_OK) shd_engine_copy_masters(session->engine);
    return status;
}

static sherd_status clear_slice(void *user, const shd_slice *slice) {
    (void)user;
    memset(slice->values, 0, (size_t)shd_span_bytes(slice->dtype, slice->count)); /* which is zero as INT8 too */
    return SHERD_OK;
}

/* Of all elements that this rank updates, and of the whole tensors that it owns. */
sherd_status shd_session_clear_states(sherd_session *session) {
    const shd_policy *policy = &session->plan->policy;
    for (int32_t s = 0; s < policy->state_count; s++)
        SHD_TRY(shd_engine_visit(session->engine, s, -1, clear_slice, NULL));
    for (int32_t s = 0; s < shd_whole_state_count(&session->options.optimizer); s++)
        SHD_TRY(shd_engine_visit_owned(session->engine, s, shd_policy_place(policy), clear_slice, NULL));
    return SHERD_OK;
}

sherd_status sherd_session_fill(sherd_session *session, sherd_fill_fn fill, void *user) {
    if (!session || !fill) return shd_fail(SHERD_ARGUMENT, "sherd_session_fill needs a session and a function");
    if (session->phase != SHD_PHASE_EMPTY)
        SHD_TRY(shd_session_expect(session, SHD_PHASE_BOUNDARY, "sherd_session_fill"));
    SHD_TRY(shd_session_save_none(session, "sherd_session_fill"));
    /* Peers may still be reading what the last step left. */
    SHD_TRY(shd_session_agree(session, SHERD_OK));
    session->phase = SHD_PHASE_EMPTY;
    sherd_status status = fill_parameters(session, fill, user);
    if (status == SHERD_OK) status = shd_session_clear_states(session);
    SHD_TRY(shd_session_agree(session, status));
    shd_session_set_start(session, 0);
    shd_progress start = shd_engine_start(session->engine);
    shd_engine_set_progress(session->engine, &start);
    return shd_session_begin_life(session);
}
