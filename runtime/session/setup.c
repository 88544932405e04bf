#include "runtime/session/setup.h"

#include "io/checkpoint_block.h"
#include "io/checkpoint_reader.h"
#include "io/checkpoint_writer.h"
#include "optim/loss_scale.h"
#include "optim/optimizer.h"
#include "optim/rules.h"
#include "optim/whole.h"
#include "runtime/base/arith.h"
#include "runtime/base/memory.h"
#include "runtime/base/status.h"
#include "runtime/comm/comm.h"

#include <math.h>

/* A gradient's memory is reused three events after its last write: that hides nearly all waiting for slower peers. */
enum { GRADIENT_SLOTS_SHARED_HOST = 3, GRADIENT_SLOTS_ALONE = 1 };

/* Names are those of sherd_options, with the job's key where that is another: a caller knows the one, who writes a job
 * the other. */
static sherd_status check_range(const char *key, int64_t value, int64_t low, int64_t high) {
    if (value >= low && value <= high) return SHERD_OK;
    return shd_fail(SHERD_CONFIG, "%s is %lld; it must be %lld to %lld", key, (long long)value, (long long)low,
                    (long long)high);
}

static bool is_duration(double seconds) { return seconds > 0 && isfinite(seconds); }

static sherd_status check_checkpoint(const sherd_checkpoint *checkpoint) {
    SHD_TRY(check_range("checkpoint.compression", checkpoint->compression, 0, SHD_COMPRESSION_MAX));
    SHD_TRY(check_range("checkpoint.threads", checkpoint->threads, 1, 64));
    SHD_TRY(check_range("checkpoint.keep", checkpoint->keep, 0, INT32_MAX));
    return check_range("checkpoint.keep_every", checkpoint->keep_every, 0, INT32_MAX);
}

/* What devices do not have. */
static sherd_status check_device(const sherd_options *options) {
    SHD_TRY(check_range("device (run.device)", options->device, SHERD_DEVICE_CPU, 1));
    SHD_TRY(check_range("link (run.comm)", options->link, SHERD_LINK_AUTO, SHERD_LINK_STAGED));
    SHD_TRY(check_range("device_index", options->device_index, -1, 1023));
    if (options->device == SHERD_DEVICE_CPU) return SHERD_OK;
    if (options->gather == SHERD_GATHER_SHARED)
        return shd_fail(SHERD_CONFIG,
                        "gather (shard.gather) is shared, but devices share no memory; use gather copy or auto");
    if (options->optimizer.kind == SHERD_MUON || options->optimizer.kind == SHERD_ADAFACTOR)
        return shd_fail(SHERD_CONFIG, "optimizer (optimizer.name) is %s, which runs on the CPU only",
                        options->optimizer.kind == SHERD_MUON ? "muon" : "adafactor");
    return SHERD_OK;
}

sherd_status shd_options_check(const sherd_options *options) {
    if (options->size != sizeof *options)
        return shd_fail(SHERD_ARGUMENT, "sherd_options.size is %zu; start from SHERD_OPTIONS_INIT", options->size);
    SHD_TRY(check_range("world_size", options->world_size, 1, SHD_COMM_MAX_RANKS));
    SHD_TRY(check_range("stage (shard.stage)", options->stage, 0, 3));
    SHD_TRY(check_range("replicas (shard.replicas)", options->replicas, 1, SHD_COMM_MAX_RANKS));
    if (options->world_size % options->replicas)
        return shd_fail(SHERD_CONFIG, "replicas (shard.replicas) is %d, which does not divide %d ranks (run.ranks)",
                        options->replicas, options->world_size);
    if (options->replicas > 1 && options->stage == 0)
        return shd_fail(SHERD_CONFIG,
                        "replicas (shard.replicas) is %d, but at stage 0 every rank has a copy of everything; "
                        "use replicas 1, or stage (shard.stage) 1 to 3",
                        options->replicas);
    SHD_TRY(check_range("prefetch (shard.prefetch)", options->prefetch, 0, 64));
    SHD_TRY(check_range("micro_steps", options->micro_steps, 1, 1 << 20));
    SHD_TRY(check_range("eval_micro_steps", options->eval_micro_steps, 0, 1 << 20));
    SHD_TRY(check_range("threads (run.threads)", options->threads, 1, 1024));
    SHD_TRY(check_range("gather (shard.gather)", options->gather, SHERD_GATHER_AUTO, SHERD_GATHER_COPY));
    SHD_TRY(check_range("recompute (train.recompute)", options->recompute, SHERD_RECOMPUTE_NONE, SHERD_RECOMPUTE_PART));
    SHD_TRY(check_range("precision (train.precision)", options->precision, SHERD_FP32, SHERD_FP16));
    SHD_TRY(check_range("reduce_dtype (shard.reduce_dtype)", options->reduce_dtype, SHERD_FP32, SHERD_BF16));
    if (options->precision == SHERD_FP16) SHD_TRY(shd_loss_scale_check(&options->loss_scale));
    if (options->gather == SHERD_GATHER_SHARED && options->stage == 0)
        return shd_fail(SHERD_CONFIG,
                        "gather (shard.gather) is shared, but stage 0 keeps a private copy on every rank; "
                        "use gather copy or auto, or stage (shard.stage) 1 to 3");
    if (!(options->clip >= 0) || isinf(options->clip))
        return shd_fail(SHERD_CONFIG, "clip (train.clip) is %g; it must be 0 (none) or a positive number",
                        options->clip);
    if (!is_duration(options->timeout_s) || !is_duration(options->start_timeout_s))
        return shd_fail(SHERD_CONFIG,
                        "timeout_s (run.timeout_s) is %g and start_timeout_s (run.start_timeout_s) %g; "
                        "both must be positive numbers of seconds",
                        options->timeout_s, options->start_timeout_s);
    SHD_TRY(check_device(options));
    SHD_TRY(check_range("on_nonfinite (run.on_nonfinite)", options->on_nonfinite, SHERD_NONFINITE_ABORT,
                        SHERD_NONFINITE_SKIP));
    SHD_TRY(check_checkpoint(&options->checkpoint));
    return shd_optimizer_check(&options->optimizer);
}

bool shd_options_update_late(const sherd_options *options) {
    return options->clip > 0 || options->on_nonfinite == SHERD_NONFINITE_SKIP || options->judge;
}

sherd_status shd_options_rules(const sherd_optimizer *optimizer, const sherd_model *model, shd_tensor_rule *rules,
                               shd_demand *demands) {
    _Static_assert((int)SHD_WHOLE_STATES_MAX <= (int)SHD_MAX_OWNED_STATES, "a plan has room for an owner's states");
    SHD_TRY(shd_tensor_rules_resolve(optimizer, model, rules));
    for (int32_t t = 0; demands && t < model->tensor_count; t++) {
        const sherd_tensor *tensor = &model->tensors[t];
        demands[t] = (shd_demand){.whole = rules[t].whole};
        if (!rules[t].whole) continue;
        for (int32_t s = 0; s < SHD_WHOLE_STATES_MAX; s++)
            demands[t].state_counts[s] = shd_whole_state_elements(optimizer, tensor, s);
        demands[t].work_bytes = shd_whole_work_bytes(optimizer, tensor);
    }
    return SHERD_OK;
}

int64_t sherd_micro_batch(const sherd_options *options, int32_t micro_step) {
    const shd_mesh mesh = {.rank = options->rank, .world_size = options->world_size, .replicas = options->replicas};
    return shd_mesh_micro_batch(&mesh, options->micro_steps, micro_step);
}

static void make_policy(const sherd_options *options, int32_t rank, shd_policy *out) {
    bool split = options->world_size > options->replicas; /* else gradients are reduced alone, at once */
    bool on_device = options->device != SHERD_DEVICE_CPU;
    *out = (shd_policy){
        .rank = rank,
        .world_size = options->world_size,
        .replicas = options->replicas,
        .stage = options->stage,
        .gather_shared = split && options->stage > 0 && options->gather != SHERD_GATHER_COPY && !on_device,
        .prefetch = options->prefetch,
        .recompute = options->recompute,
        .state_count = shd_optimizer_state_count(&options->optimizer),
        .state_dtype = options->optimizer.state_dtype,
        .parameter_dtype = options->precision,
        .reduce_dtype = options->reduce_dtype,
        .gradient_slots = split ? GRADIENT_SLOTS_SHARED_HOST : GRADIENT_SLOTS_ALONE,
        .owners_read_parameters = shd_whole_reads_parameters(&options->optimizer),
        .staging_bytes = shd_max(shd_writer_memory_bytes(options->checkpoint.compression, options->checkpoint.threads),
                                 shd_reader_memory_bytes(options->checkpoint.threads)),
        .async_saves = options->checkpoint.async,
        .on_device = on_device,
    };
}

sherd_status shd_options_plan(const sherd_options *options, const sherd_model *model, int32_t rank, shd_plan **out) {
    SHD_TRY(shd_model_check(model));
    shd_tensor_rule *rules = shd_alloc((size_t)model->tensor_count, sizeof *rules);
    shd_demand *demands = shd_alloc((size_t)model->tensor_count, sizeof *demands);
    sherd_status status = rules && demands
                              ? shd_options_rules(&options->optimizer, model, rules, demands)
                              : shd_fail(SHERD_MEMORY, "no memory for the rules of %d tensors", model->tensor_count);
    if (status == SHERD_OK) {
        shd_policy policy;
        make_policy(options, rank, &policy);
        policy.demands = demands;
        status = shd_plan_create(model, &policy, out);
    }
    shd_free(rules);
    shd_free(demands);
    return status;
}
