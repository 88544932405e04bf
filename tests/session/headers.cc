// The public headers compile in C++ without a warning, and the defaults are what their comments state.
#include <sherd/sherd.h>

int main() {
    sherd_options options = SHERD_OPTIONS_INIT;
    const sherd_optimizer optimizer = SHERD_OPTIMIZER_INIT;
    bool good = options.size == sizeof options && options.rank == 0 && options.world_size == 1 && !options.rendezvous &&
                options.stage == 3 && options.gather == SHERD_GATHER_AUTO && options.prefetch == 1 && options.recompute == SHERD_RECOMPUTE_NONE &&
                options.micro_steps == 1 && options.eval_micro_steps == 0 && options.clip == 0 && options.threads == 1 &&
                options.timeout_s == 600 && options.start_timeout_s == 300;
    good = good && options.optimizer.lr == 1e-3 && optimizer.kind == SHERD_ADAMW &&
           optimizer.schedule == SHERD_CONSTANT && optimizer.decay == SHERD_DECAY_MATRICES &&
           optimizer.warmup_steps == 0 && optimizer.total_steps == 0 && optimizer.lr == 1e-3 && optimizer.min_lr == 0 &&
           optimizer.beta1 == 0.9 && optimizer.beta2 == 0.95 && optimizer.eps == 1e-8 && optimizer.momentum == 0 &&
           optimizer.weight_decay == 0 && optimizer.warmup_tokens == 0 && optimizer.step_tokens == 0 &&
           optimizer.decay_steps == 0 && !optimizer.nesterov && optimizer.layer_lr_decay == 1 && !optimizer.decay_patterns &&
           optimizer.decay_pattern_count == 0 && optimizer.group_count == 0 && !optimizer.groups;
    const sherd_optimizer_group group = SHERD_OPTIMIZER_GROUP_INIT;
    good = good && !group.match && group.lr_factor == 1 && group.weight_decay == -1;
    const sherd_checkpoint checkpoint = SHERD_CHECKPOINT_INIT;
    good = good && checkpoint.compression == 1 && checkpoint.async && checkpoint.threads == 2 && checkpoint.keep == 0 &&
           checkpoint.keep_every == 0 && options.checkpoint.compression == 1 && options.checkpoint.threads == 2 &&
           options.on_nonfinite == SHERD_NONFINITE_ABORT && !options.judge && !options.judge_user;
    const sherd_load load = SHERD_LOAD_INIT;
    good = good && load.size == sizeof load && !load.weights_only && !load.skip_patterns && load.skip_pattern_count == 0;
    return good ? 0 : 1;
}
