#include "runtime/train/job_setup.h"

#include "runtime/base/arith.h"
#include "runtime/base/dtype.h"
#include "runtime/base/status.h"
#include "runtime/train/job_place.h"
#include "runtime/train/safety.h"

#include <sched.h>
#include <stdio.h>
#include <unistd.h>

/* The set has room for 1024 cores; on larger machines the call fails, and all that are there count. */
static int64_t count_cores(void) {
    cpu_set_t allowed;
    return sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? CPU_COUNT(&allowed) : sysconf(_SC_NPROCESSORS_ONLN);
}

int32_t shd_job_threads(const shd_job *job) {
    int64_t threads = job->run.threads ? job->run.threads : count_cores() / job->run.ranks;
    return (int32_t)shd_max(threads, 1);
}

/* Where it computes. That it cannot be there is told elsewhere: by who makes models and plans. */
static shd_job_place place_of(const shd_job *job) {
    shd_job_place place = {.ops = &shd_ops_cpu};
    (void)shd_job_find_place(job, &place);
    return place;
}

static sherd_optimizer make_optimizer(const shd_job *job) {
    const shd_job_selection *decay = &job->optimizer.decay;
    return (sherd_optimizer){
        .kind = job->optimizer.name,
        .schedule = job->optimizer.schedule,
        .decay = decay->texts.items ? SHERD_DECAY_PATTERNS : (sherd_decay)decay->word,
        .warmup_steps = (int32_t)job->optimizer.warmup_steps,
        .warmup_tokens = job->optimizer.warmup_tokens,
        .step_tokens = shd_job_step_tokens(job),
        .total_steps = job->train.steps,
        .decay_steps = job->optimizer.decay_steps,
        .lr = job->optimizer.lr,
        .min_lr = job->optimizer.min_lr,
        .beta1 = job->optimizer.betas.at[0],
        .beta2 = job->optimizer.betas.at[1],
        .eps = job->optimizer.eps,
        .momentum = job->optimizer.momentum,
        .nesterov = job->optimizer.nesterov,
        .weight_decay = job->optimizer.weight_decay,
        .layer_lr_decay = job->optimizer.layer_lr_decay,
        .decay_patterns = decay->texts.items,
        .decay_pattern_count = decay->texts.count,
        .ns_steps = (int32_t)job->optimizer.ns_steps,
        .adjust_lr = job->optimizer.adjust_lr,
        .beta2_decay = job->optimizer.beta2_decay,
        .update_clip = job->optimizer.update_clip,
        .scale_floor = job->optimizer.scale_floor,
        .group_count = job->optimizer.groups.count,
        .groups = job->optimizer.groups.items,
        .state_dtype = job->optimizer.state_dtype == SHD_STATES_INT8 ? SHERD_INT8 : SHERD_FP32,
    };
}

static sherd_link link_of(const shd_job *job) {
    switch (job->run.comm) {
    case SHD_JOB_COMM_LIBRARY: return SHERD_LINK_NCCL;
    case SHD_JOB_COMM_STAGED: return SHERD_LINK_STAGED;
    default: return SHERD_LINK_AUTO;
    }
}

void shd_job_options(const shd_job *job, sherd_options *out) {
    *out = (sherd_options)SHERD_OPTIONS_INIT;
    out->device = place_of(job).device ? SHERD_DEVICE_CUDA : SHERD_DEVICE_CPU;
    out->link = link_of(job);
    out->world_size = (int32_t)job->run.ranks;
    out->stage = (int32_t)job->shard.stage;
    out->replicas = (int32_t)job->shard.replicas;
    out->gather = job->shard.gather;
    out->prefetch = (int32_t)job->shard.prefetch;
    out->recompute = job->train.recompute;
    out->micro_steps = (int32_t)(job->train.global_batch / (job->train.micro_batch * job->run.ranks));
    out->clip = job->train.clip;
    out->precision = job->train.precision;
    out->reduce_dtype = job->shard.reduce_dtype;
    out->loss_scale = (sherd_loss_scale){.initial = job->loss_scale.initial,
                                         .minimum = job->loss_scale.minimum,
                                         .growth_interval = (int32_t)job->loss_scale.growth_interval,
                                         .hysteresis = (int32_t)job->loss_scale.hysteresis};
    out->optimizer = make_optimizer(job);
    out->threads = shd_job_threads(job);
    out->on_nonfinite = job->run.on_nonfinite == SHD_ON_NONFINITE_ABORT ? SHERD_NONFINITE_ABORT : SHERD_NONFINITE_SKIP;
    if (shd_safety_has_judge(job)) out->judge = shd_safety_judge;
    out->timeout_s = job->run.timeout_s;
    out->start_timeout_s = job->run.start_timeout_s;
    out->checkpoint.compression = (int32_t)job->checkpoint.compression;
    out->checkpoint.async = job->checkpoint.async;
    out->checkpoint.keep = (int32_t)job->checkpoint.keep;
    out->checkpoint.keep_every = (int32_t)job->checkpoint.keep_every;
}

/* The least number that rounds to infinity in fp16, which ends at 65504. */
static const double FP16_LIMIT = 65520;

bool shd_job_samples(const shd_job *job, shd_sample_shape *out) {
    if (job->model.family != SHD_JOB_MLP) return false;
    *out = (shd_sample_shape){.input_count = job->model.inputs,
                              .output_count = job->model.outputs,
                              .classes = job->model.loss == SHD_JOB_CROSS_ENTROPY,
                              .ignored_label = job->data.ignored_label,
                              .input_scale = job->data.input_scale,
                              .input_limit = job->train.precision == SHERD_FP16 ? FP16_LIMIT : 0};
    return true;
}

shd_model_config shd_job_model_config(const shd_job *job) {
    static const shd_model_family families[] = {
        [SHD_JOB_GPT2] = SHD_MODEL_GPT2, [SHD_JOB_LLAMA] = SHD_MODEL_LLAMA, [SHD_JOB_MLP] = SHD_MODEL_MLP};
    static const shd_model_activation activations[] = {
        [SHD_JOB_RELU] = SHD_MODEL_RELU, [SHD_JOB_GELU] = SHD_MODEL_GELU};
    static const shd_model_loss losses[] = {
        [SHD_JOB_CROSS_ENTROPY] = SHD_MODEL_CROSS_ENTROPY, [SHD_JOB_MSE] = SHD_MODEL_MSE};
    return (shd_model_config){.family = families[job->model.family],
                              .vocab_size = job->model.vocab_size,
                              .context = job->model.context,
                              .d_model = job->model.d_model,
                              .n_layer = job->model.n_layer,
                              .n_head = job->model.n_head,
                              .n_kv_head = job->model.n_kv_head,
                              .d_ff = job->model.d_ff,
                              .rope_theta = job->model.rope_theta,
                              .tied_embeddings = job->model.tied_embeddings,
                              .dropout = job->model.dropout,
                              .seed = (uint64_t)job->train.seed,
                              .inputs = job->model.inputs,
                              .outputs = job->model.outputs,
                              .hidden = job->model.hidden,
                              .activation = activations[job->model.activation],
                              .loss = losses[job->model.loss],
                              .frozen = job->model.frozen.items,
                              .frozen_count = job->model.frozen.count,
                              .precision = job->train.precision,
                              .micro_batch = job->train.micro_batch,
                              .threads = shd_job_threads(job),
                              .ops = place_of(job).ops};
}

sherd_status shd_job_model(const shd_job *job, shd_model **out) {
    shd_job_place place;
    SHD_TRY(shd_job_find_place(job, &place));
    const shd_model_config config = shd_job_model_config(job);
    sherd_status status = shd_model_create(&config, out);
    return status == SHERD_CONFIG ? shd_job_fail_within(job, status) : status;
}

sherd_status shd_job_plan(const shd_job *job, int32_t stage, int32_t rank, shd_plan **out) {
    sherd_options options;
    shd_job_options(job, &options);
    sherd_status status = shd_options_check(&options);
    if (status != SHERD_OK) return shd_job_fail_within(job, status);
    options.stage = stage;
    if (stage == 0) options.replicas = 1; /* where every rank has everything already */
    shd_model *model;
    SHD_TRY(shd_job_model(job, &model));
    status = shd_options_plan(&options, shd_model_describe(model), rank, out);
    shd_model_destroy(model);
    return status == SHERD_CONFIG ? shd_job_fail_within(job, status) : status;
}

const char *shd_gather_text(const shd_policy *policy) {
    if (shd_policy_split(policy) == 1 || policy->stage == 0) return "none";
    return policy->gather_shared ? "shared" : "copy";
}

shd_mesh_words shd_mesh_text(const shd_policy *policy) {
    shd_mesh_words words = {""};
    if (policy->replicas > 1)
        snprintf(words.text, sizeof words.text, " (%d replicas of %d)", policy->replicas, shd_policy_split(policy));
    return words;
}

shd_precision_words shd_precision_text(const shd_policy *policy) {
    shd_precision_words words = {""};
    bool computes = policy->parameter_dtype != SHERD_FP32, reduces = policy->reduce_dtype != SHERD_FP32;
    snprintf(words.text, sizeof words.text, "%s%s%s%s", computes ? ", precision " : "",
             computes ? shd_dtype_text(policy->parameter_dtype) : "", reduces ? ", gradients between ranks " : "",
             reduces ? shd_dtype_text(policy->reduce_dtype) : "");
    return words;
}

sherd_status shd_job_program(const shd_job *job, const shd_plan *plan, shd_program_kind kind, shd_program **out) {
    sherd_options options;
    shd_job_options(job, &options);
    return shd_program_compile(plan, kind, options.micro_steps, shd_options_update_late(&options), out);
}
