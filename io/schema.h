/* The schema of a job file: one row a key, and the only place where a key is stated.
 *
 * From these rows come the struct shd_job (job.h), the defaults, the parser's checks (job_keys.c), `sherd train
 * --explain` and docs/JOB.md (job_text.c). It holds only what is built.
 *
 * A row: X(section, key, C type, KIND, default, range, unit, help)
 *   KIND     how the value is written and stored; see shd_job_kind in job_keys.h
 *   default  REQUIRED, DEFAULT("as in a job file"), or COMPUTED("from what"): then job_check.c fills it in
 *   range    ANY, INTS(low, high), REALS(low, high) both ends included, ABOVE(low), BELOW(low, high) without high,
 *            UP_TO(low, high) without low, WORDS(LIST)
 *   unit     "" where there is none
 * A key that only some families of models have stands in SHD_JOB_FAMILY_KEYS; with the others it is refused.
 *
 * A list of words: W(enumerator, "word"); a value is stored as its enumerator, which counts from 0. */
#ifndef SHD_IO_SCHEMA_H
#define SHD_IO_SCHEMA_H

/* clang-format off */
#define SHD_WORDS_FAMILY(W)    W(SHD_JOB_GPT2, "gpt2") W(SHD_JOB_LLAMA, "llama") W(SHD_JOB_MLP, "mlp")
#define SHD_WORDS_ACTIVATION(W) W(SHD_JOB_RELU, "relu") W(SHD_JOB_GELU, "gelu")
#define SHD_WORDS_LOSS(W)      W(SHD_JOB_CROSS_ENTROPY, "cross_entropy") W(SHD_JOB_MSE, "mse")
#define SHD_WORDS_INIT(W)      W(SHD_INIT_RANDOM, "random")
#define SHD_WORDS_FORMAT(W)    W(SHD_FORMAT_AUTO, "auto") W(SHD_FORMAT_LLMC, "llmc") W(SHD_FORMAT_U16, "u16") \
                               W(SHD_FORMAT_U32, "u32") W(SHD_FORMAT_TEXT, "text")
#define SHD_WORDS_RECOMPUTE(W) W(SHERD_RECOMPUTE_NONE, "none") W(SHERD_RECOMPUTE_UNIT, "unit") \
                               W(SHERD_RECOMPUTE_PART, "attention")
#define SHD_WORDS_PRECISION(W) W(SHERD_FP32, "fp32") W(SHERD_BF16, "bf16") W(SHERD_FP16, "fp16")
#define SHD_WORDS_REDUCE(W)    W(SHERD_FP32, "fp32") W(SHERD_BF16, "bf16")
#define SHD_WORDS_SUM_ORDER(W) W(SHD_SUM_AUTO, "auto") W(SHD_SUM_FIXED, "fixed")
#define SHD_WORDS_OPTIMIZER(W) W(SHERD_ADAMW, "adamw") W(SHERD_SGD, "sgd") W(SHERD_LION, "lion") \
                               W(SHERD_ADAM, "adam") W(SHERD_ADAFACTOR, "adafactor") W(SHERD_MUON, "muon")
#define SHD_WORDS_ADJUST_LR(W) W(SHERD_ADJUST_LR_MATCH_RMS_ADAMW, "match_rms_adamw") \
                               W(SHERD_ADJUST_LR_ORIGINAL, "original")
#define SHD_WORDS_MEMBER(W)    W(SHERD_GROUP_AUTO, "auto") W(SHERD_GROUP_ADAMW, "adamw") W(SHERD_GROUP_MUON, "muon")
#define SHD_WORDS_SCHEDULE(W)  W(SHERD_CONSTANT, "constant") W(SHERD_LINEAR, "linear") W(SHERD_COSINE, "cosine") \
                               W(SHERD_WSD, "wsd") W(SHERD_INVERSE_SQRT, "inverse_sqrt")
#define SHD_WORDS_DECAY(W)     W(SHERD_DECAY_MATRICES, "matrices") W(SHERD_DECAY_ALL, "all") W(SHERD_DECAY_NONE, "none")
#define SHD_WORDS_STATES(W)    W(SHD_STATES_FP32, "fp32") W(SHD_STATES_INT8, "int8")
#define SHD_WORDS_GATHER(W)    W(SHERD_GATHER_AUTO, "auto") W(SHERD_GATHER_SHARED, "shared") \
                               W(SHERD_GATHER_COPY, "copy")
#define SHD_WORDS_RESUME(W)    W(SHD_RESUME_AUTO, "auto") W(SHD_RESUME_NEVER, "never")
#define SHD_WORDS_DESPITE(W)   W(SHD_DESPITE_DATA, "data") W(SHD_DESPITE_SEED, "seed")
#define SHD_WORDS_ON_ERROR(W)  W(SHD_ON_ERROR_STOP, "stop") W(SHD_ON_ERROR_CONTINUE, "continue") \
                               W(SHD_ON_ERROR_FAIL, "fail")
#define SHD_WORDS_IF_BUSY(W)   W(SHD_IF_BUSY_WAIT, "wait") W(SHD_IF_BUSY_SKIP, "skip")
#define SHD_WORDS_NONFINITE(W) W(SHD_ON_NONFINITE_SKIP, "skip") W(SHD_ON_NONFINITE_ROLLBACK, "rollback") \
                               W(SHD_ON_NONFINITE_ABORT, "abort")
#define SHD_WORDS_OUTLIER(W)   W(SHD_ON_OUTLIER_WARN, "warn") W(SHD_ON_OUTLIER_SKIP, "skip") \
                               W(SHD_ON_OUTLIER_ROLLBACK, "rollback") W(SHD_ON_OUTLIER_ABORT, "abort")
#define SHD_WORDS_DEVICE(W)    W(SHD_JOB_DEVICE_AUTO, "auto") W(SHD_JOB_DEVICE_CPU, "cpu") W(SHD_JOB_DEVICE_GPU, "cuda")
#define SHD_WORDS_COMM(W)      W(SHD_JOB_COMM_AUTO, "auto") W(SHD_JOB_COMM_SELF, "self") W(SHD_JOB_COMM_SHM, "shm") \
                               W(SHD_JOB_COMM_LIBRARY, "nccl") W(SHD_JOB_COMM_STAGED, "staged")

/* Keys that only some families have: K(section, key, families); all others are every family's. */
#define SHD_JOB_FAMILY_KEYS(K) \
    K(model, vocab_size, GPT2 | LLAMA) \
    K(model, context, GPT2 | LLAMA) \
    K(model, d_model, GPT2 | LLAMA) \
    K(model, n_head, GPT2 | LLAMA) \
    K(model, n_kv_head, LLAMA) \
    K(model, d_ff, LLAMA) \
    K(model, rope_theta, LLAMA) \
    K(model, tied_embeddings, GPT2 | LLAMA) \
    K(model, dropout, GPT2 | LLAMA) \
    K(model, inputs, MLP) \
    K(model, outputs, MLP) \
    K(model, hidden, MLP) \
    K(model, activation, MLP) \
    K(model, loss, MLP) \
    K(data, format, GPT2 | LLAMA) \
    K(data, ignored_token, GPT2 | LLAMA) \
    K(data, document_separator, GPT2 | LLAMA) \
    K(data, attend_across_documents, GPT2 | LLAMA) \
    K(data, ignored_label, MLP) \
    K(data, input_scale, MLP) \
    K(train, sample_tokens, GPT2 | LLAMA) \
    K(optimizer, warmup_tokens, GPT2 | LLAMA)

/* Keys at the top level, outside any section. */
#define SHD_JOB_TOP(X) \
    X(top, name, const char *, NAME, REQUIRED, ANY, "", \
      "what the job is called; run.dir is named after it")

#define SHD_JOB_MODEL(X) \
    X(model, family, shd_job_family, CHOICE, REQUIRED, WORDS(FAMILY), "", \
      "the architecture") \
    X(model, vocab_size, int64_t, INT, REQUIRED, INTS(1, INT32_MAX), "tokens", \
      "rows of the embedding; every token id is below it") \
    X(model, context, int64_t, INT, REQUIRED, INTS(1, 1 << 24), "tokens", \
      "length of a sequence") \
    X(model, d_model, int64_t, INT, REQUIRED, INTS(1, 1 << 20), "", \
      "width of the residual stream, a multiple of n_head") \
    X(model, n_layer, int64_t, INT, REQUIRED, INTS(1, 4096), "", \
      "number of transformer blocks, of mlp number of hidden layers") \
    X(model, n_head, int64_t, INT, REQUIRED, INTS(1, 1 << 16), "", \
      "attention heads of a block") \
    X(model, n_kv_head, int64_t, INT, COMPUTED("n_head"), INTS(1, 1 << 16), "", \
      "key and value heads, dividing n_head") \
    X(model, d_ff, int64_t, INT, REQUIRED, INTS(1, 1 << 22), "", \
      "width inside the feed-forward part") \
    X(model, rope_theta, double, REAL, DEFAULT("10000.0"), REALS(1, DBL_MAX), "", \
      "base of the rotary position frequencies") \
    X(model, tied_embeddings, bool, BOOL, COMPUTED("true for gpt2, false for llama"), ANY, "", \
      "the output layer is the embedding matrix") \
    X(model, dropout, double, REAL, DEFAULT("0.0"), BELOW(0, 1), "", \
      "chance of an element to be dropped in training: of embeddings, attention and what blocks add; masks from train.seed") \
    X(model, inputs, int64_t, INT, REQUIRED, INTS(1, 1 << 24), "", \
      "numbers of a sample") \
    X(model, outputs, int64_t, INT, REQUIRED, INTS(1, 1 << 24), "", \
      "classes, or with mse numbers of a target") \
    X(model, hidden, int64_t, INT, REQUIRED, INTS(1, 1 << 22), "", \
      "width of every hidden layer") \
    X(model, activation, shd_job_activation, CHOICE, DEFAULT("relu"), WORDS(ACTIVATION), "", \
      "what follows every hidden layer") \
    X(model, loss, shd_job_loss, CHOICE, DEFAULT("cross_entropy"), WORDS(LOSS), "", \
      "cross_entropy: targets are classes; mse: they are numbers, and the loss is their mean squared error") \
    X(model, init, shd_job_source, WORD_OR_PATH, DEFAULT("random"), WORDS(INIT), "", \
      "initial weights: random from train.seed, or the path of safetensors, a checkpoint, or llm.c's weights") \
    X(model, frozen, shd_job_texts, TEXTS, DEFAULT("[]"), ANY, "", \
      "shell patterns over parameter names; what they match is never updated")

#define SHD_JOB_DATA(X) \
    X(data, train, shd_job_sources, SOURCES, REQUIRED, ANY, "", \
      "files of tokens, of mlp of arrays, a list or glob being one data set; with weights: a mixture, in shares of sequences") \
    X(data, validation, shd_job_sources, SOURCES_OR_NULL, DEFAULT("null"), ANY, "", \
      "files for validation, of the same kind, a list or glob being one data set") \
    X(data, format, shd_job_format, CHOICE, DEFAULT("auto"), WORDS(FORMAT), "", \
      "format of the token files; text takes bytes as tokens, auto decides by header and name") \
    X(data, shuffle, bool, BOOL, DEFAULT("true"), ANY, "", \
      "a new order of sequences, of mlp samples, every epoch, from train.seed; false: in file order") \
    X(data, ignored_token, int64_t, INT_OR_NULL, DEFAULT("null"), INTS(0, INT32_MAX), "", \
      "targets with this token id count for nothing") \
    X(data, ignored_label, int64_t, SIGNED_OR_NULL, DEFAULT("null"), INTS(INT32_MIN, INT32_MAX), "", \
      "samples of this class count for nothing") \
    X(data, input_scale, double, REAL, DEFAULT("1.0"), ABOVE(0), "", \
      "inputs are multiplied by it: 0.00392156862745098 brings bytes to 0 … 1") \
    X(data, document_separator, int64_t, INT_OR_NULL, DEFAULT("null"), INTS(0, INT32_MAX), "", \
      "token id between documents; joins a source's files, texts by this id; null: no sequence crosses a file's end") \
    X(data, attend_across_documents, bool, BOOL, DEFAULT("true"), ANY, "", \
      "false: tokens attend to nothing before the last document_separator; positions are not reset")

#define SHD_JOB_TRAIN(X) \
    X(train, steps, int64_t, INT, REQUIRED, INTS(1, 99999999), "optimizer steps", \
      "the run ends after so many") \
    X(train, global_batch, int64_t, INT, REQUIRED, INTS(1, 1 << 20), "sequences or samples", \
      "what one step sees over all ranks, a multiple of micro_batch x ranks") \
    X(train, micro_batch, int64_t, INT, REQUIRED, INTS(1, 1 << 16), "sequences or samples", \
      "what one rank runs at once") \
    X(train, precision, sherd_dtype, CHOICE, DEFAULT("fp32"), WORDS(PRECISION), "", \
      "of parameters and activations in forward and backward; with 16 bits the optimizer keeps fp32 masters") \
    X(train, recompute, sherd_recompute, CHOICE, DEFAULT("none"), WORDS(RECOMPUTE), "", \
      "unit: blocks run forward again before their backward instead of keeping their activations; attention: only their " \
      "attention half does") \
    X(train, seed, int64_t, INT, DEFAULT("1"), INTS(0, INT64_MAX), "", \
      "of initialisation, shuffling and dropout") \
    X(train, clip, double, REAL, DEFAULT("1.0"), REALS(0, DBL_MAX), "", \
      "bound on the global gradient norm; 0: none") \
    X(train, sum_order, shd_job_sum_order, CHOICE, DEFAULT("auto"), WORDS(SUM_ORDER), "", \
      "fixed: the same bits on any number of ranks; auto: fixed on one host") \
    X(train, evaluate_every, int64_t, INT, DEFAULT("0"), INTS(0, 99999999), "optimizer steps", \
      "between two validation losses, and after the last step; 0: never") \
    X(train, evaluate_sequences, int64_t, INT, DEFAULT("0"), INTS(0, INT32_MAX), "sequences or samples", \
      "of a validation, from the start of data.validation; 0: all") \
    X(train, sample_tokens, int64_t, INT, DEFAULT("0"), INTS(0, 65536), "tokens", \
      "of a text that the model writes into the log after each validation, where tokens are bytes; 0: none")

/* Fields of sherd_loss_scale. */
#define SHD_JOB_LOSS_SCALE(X) \
    X(loss_scale, initial, double, REAL, DEFAULT("65536.0"), ABOVE(0), "", \
      "what the loss is multiplied by at the start") \
    X(loss_scale, growth_interval, int64_t, INT, DEFAULT("2000"), INTS(1, INT32_MAX), "optimizer steps", \
      "in a row without overflow, after which it doubles") \
    X(loss_scale, hysteresis, int64_t, INT, DEFAULT("1"), INTS(1, INT32_MAX), "overflows", \
      "since it last doubled, until one halves it; each skips its step") \
    X(loss_scale, minimum, double, REAL, DEFAULT("1.0"), ABOVE(0), "", \
      "an overflow here ends the run")

#define SHD_JOB_OPTIMIZER(X) \
    X(optimizer, name, sherd_optimizer_kind, CHOICE, DEFAULT("adamw"), WORDS(OPTIMIZER), "", \
      "the update rule; muon: of matrices between embedding and head, adamw of the rest") \
    X(optimizer, lr, double, REAL, REQUIRED, REALS(0, DBL_MAX), "", \
      "learning rate after the warm-up") \
    X(optimizer, min_lr, double, REAL, DEFAULT("0.0"), REALS(0, DBL_MAX), "", \
      "learning rate at the end, inverse_sqrt never goes below it; unused with constant") \
    X(optimizer, schedule, sherd_schedule, CHOICE, DEFAULT("cosine"), WORDS(SCHEDULE), "", \
      "how the learning rate falls from lr; wsd: at the end only, inverse_sqrt: as 1/root of the step") \
    X(optimizer, warmup_steps, int64_t, INT, DEFAULT("0"), INTS(0, INT32_MAX), "optimizer steps", \
      "during which the learning rate rises to lr") \
    X(optimizer, warmup_tokens, int64_t, INT, DEFAULT("0"), INTS(0, 1000000000000000000), "tokens", \
      "instead of warmup_steps: the warm-up is as many steps as see so many tokens") \
    X(optimizer, decay_steps, int64_t, INT_OR_AUTO, DEFAULT("auto"), INTS(1, 99999999), "optimizer steps", \
      "the last ones, in which wsd falls to min_lr; auto: a tenth of train.steps; unused otherwise") \
    X(optimizer, betas, shd_job_pair, PAIR, DEFAULT("[0.9, 0.95]"), BELOW(0, 1), "", \
      "averaging of gradient and its square; unused with sgd and adafactor") \
    X(optimizer, eps, double, REAL, DEFAULT("1.0e-8"), REALS(1e-30, 1e30), "", \
      "added to the root of the second moment; adamw, muon's too, and adam only, unused otherwise") \
    X(optimizer, momentum, double, REAL, COMPUTED("0.95 for muon, else 0"), BELOW(0, 1), "", \
      "of sgd and muon; unused otherwise") \
    X(optimizer, nesterov, bool, BOOL, COMPUTED("true for muon with momentum, else false"), ANY, "", \
      "momentum as Nesterov has it; sgd and muon only, unused otherwise") \
    X(optimizer, ns_steps, int64_t, INT, DEFAULT("5"), INTS(1, 100), "iterations", \
      "of Newton and Schulz, by which muon makes a matrix orthogonal; unused otherwise") \
    X(optimizer, adjust_lr, sherd_adjust_lr, CHOICE, DEFAULT("match_rms_adamw"), WORDS(ADJUST_LR), "", \
      "muon multiplies lr by 0.2 root(longer side), so that adamw can share it, or root(max(1, rows / columns))") \
    X(optimizer, beta2_decay, double, REAL, DEFAULT("-0.8"), REALS(-1000, 0), "", \
      "step t, from 1, has the weight t^beta2_decay in second moments; adafactor only, unused otherwise") \
    X(optimizer, update_clip, double, REAL, DEFAULT("1.0"), REALS(1, 1e30), "", \
      "bound on an update's root mean square, before lr; adafactor only, unused otherwise") \
    X(optimizer, scale_floor, double, REAL, DEFAULT("1.0e-3"), REALS(0, DBL_MAX), "", \
      "adafactor's lr is relative to a parameter's root mean square, but to no less than this; unused otherwise") \
    X(optimizer, weight_decay, double, REAL, DEFAULT("0.1"), REALS(0, DBL_MAX), "", \
      "added to the gradient for adam and sgd, decoupled for all others") \
    X(optimizer, decay, shd_job_selection, WORD_OR_TEXTS, DEFAULT("matrices"), WORDS(DECAY), "", \
      "what weight_decay touches; matrices: two dimensions or more; or shell patterns over names") \
    X(optimizer, layer_lr_decay, double, REAL, DEFAULT("1.0"), UP_TO(0, 1), "", \
      "multiplies lr once for every layer above: the head has lr, the last block lr times this, …") \
    X(optimizer, state_dtype, shd_job_states, CHOICE, DEFAULT("fp32"), WORDS(STATES), "", \
      "how adamw, adam, lion and sgd keep their moments; int8: a code of 8 bits each, and a scale for every 256") \
    X(optimizer, groups, shd_job_groups, GROUPS, DEFAULT("[]"), ANY, "", \
      "what some parameters have of their own; a parameter belongs to the first group that matches")

/* Keys of one entry of optimizer.groups; fields of sherd_optimizer_group. */
#define SHD_JOB_GROUP(X) \
    X(group, match, const char *, TEXT, REQUIRED, ANY, "", \
      "shell pattern over parameter names") \
    X(group, lr_factor, double, REAL, DEFAULT("1.0"), REALS(0, DBL_MAX), "", \
      "multiplies the learning rate") \
    X(group, weight_decay, double, REAL_OR_NULL, DEFAULT("null"), REALS(0, DBL_MAX), "", \
      "theirs, whatever optimizer.decay says; null: as if there were no group") \
    X(group, optimizer, sherd_group_optimizer, CHOICE, DEFAULT("auto"), WORDS(MEMBER), "", \
      "with optimizer.name muon: whose they are; auto: by their place and shape")

#define SHD_JOB_SHARD(X) \
    X(shard, stage, int64_t, INT, DEFAULT("3"), INTS(0, 3), "", \
      "ranks split: 0 nothing, 1 optimizer state, 2 and gradients, 3 and parameters") \
    X(shard, replicas, int64_t, INT, DEFAULT("1"), INTS(1, 64), "", \
      "copies of the state, each split over ranks / replicas (hybrid sharding); stages 1 to 3") \
    X(shard, gather, sherd_gather, CHOICE, DEFAULT("auto"), WORDS(GATHER), "", \
      "gathered parameters live once per host or in a copy per rank; stage 0 has copies") \
    X(shard, prefetch, int64_t, INT, DEFAULT("1"), INTS(0, 64), "units", \
      "gathered ahead of the one computing; stage 3 only, unused otherwise") \
    X(shard, reduce_dtype, sherd_dtype, CHOICE, DEFAULT("fp32"), WORDS(REDUCE), "", \
      "of gradients between ranks; bf16 rounds each micro-batch's once, sums are fp32 always: half the bytes to read, " \
      "and slots of half the size, but one more in fp32 to work in: 'sherd plan' tells which way memory goes")

#define SHD_JOB_CHECKPOINT(X) \
    X(checkpoint, dir, const char *, PATH, COMPUTED("checkpoints in run.dir"), ANY, "", \
      "where step-* folders go") \
    X(checkpoint, every, int64_t, INT, DEFAULT("1000"), INTS(0, 99999999), "optimizer steps", \
      "between two checkpoints, and after the last step; 0: only then") \
    X(checkpoint, every_minutes, double, REAL, DEFAULT("0.0"), REALS(0, 1000000), "minutes", \
      "at most between two checkpoints, besides every, by rank 0's clock; 0: steps alone count") \
    X(checkpoint, keep, int64_t, INT, DEFAULT("3"), INTS(0, INT32_MAX), "checkpoints", \
      "those of most steps stay in dir, older ones are removed when a newer one is complete; 0: all stay") \
    X(checkpoint, keep_every, int64_t, INT, DEFAULT("0"), INTS(0, 99999999), "optimizer steps", \
      "checkpoints of a multiple of these stay besides, for ever; 0: none does") \
    X(checkpoint, async, bool, BOOL, DEFAULT("true"), ANY, "", \
      "written while training goes on, straight from the state; false: training waits") \
    X(checkpoint, compression, int64_t, INT, DEFAULT("1"), INTS(0, 19), "", \
      "level of zstd, without loss; 0: none") \
    X(checkpoint, resume, shd_job_source, WORD_OR_PATH, DEFAULT("auto"), WORDS(RESUME), "", \
      "auto: from the newest whole one in dir, if any; never; or the path of a checkpoint") \
    X(checkpoint, resume_despite, shd_job_texts, WORDS_OF, DEFAULT("[]"), WORDS(DESPITE), "", \
      "what may have changed since: data, their order then begins anew at the same sequence number, or seed") \
    X(checkpoint, resume_weights_only, bool, BOOL, DEFAULT("false"), ANY, "", \
      "true: a path in resume gives parameters only, to start from step 0; checkpoints in dir come first") \
    X(checkpoint, resume_skip, shd_job_texts, TEXTS, DEFAULT("[]"), ANY, "", \
      "with resume_weights_only: shell patterns over parameter names; what they match is not loaded, but set as model.init says") \
    X(checkpoint, on_error, shd_job_on_error, CHOICE, DEFAULT("stop"), WORDS(ON_ERROR), "", \
      "when one cannot be saved; stop: the third time in a row ends the job, fail: the first, continue: none; exit code 1 always") \
    X(checkpoint, if_busy, shd_job_if_busy, CHOICE, DEFAULT("wait"), WORDS(IF_BUSY), "", \
      "when one is due while the last is still being written; skip: every's is left out")

#define SHD_JOB_LOG(X) \
    X(log, dir, const char *, PATH, COMPUTED("run.dir"), ANY, "", \
      "where metrics.jsonl, events.jsonl and the other records of the run go") \
    X(log, every, int64_t, INT, DEFAULT("1"), INTS(1, 99999999), "optimizer steps", \
      "between two lines on the terminal, and at least between two looks at the machine; metrics.jsonl has every step") \
    X(log, tensorboard, bool, BOOL, DEFAULT("false"), ANY, "", \
      "the numbers of metrics.jsonl in TensorBoard's event files too, in the folder tensorboard of log.dir") \
    X(log, trace_steps, shd_job_integers, INTS, DEFAULT("[]"), INTS(1, 99999999), "optimizer steps", \
      "of each, counted from 1, a trace for ui.perfetto.dev: what ran when, by rank and queue, in the folder trace of log.dir") \
    X(log, peak_tflops, double, REAL, DEFAULT("0.0"), REALS(0, DBL_MAX), "TFLOP/s", \
      "what a rank's processors could do at most, for mfu in metrics.jsonl; 0: not known, and there is no mfu")

#define SHD_JOB_RUN(X) \
    X(run, dir, const char *, PATH, COMPUTED("runs/NAME beside the job file"), ANY, "", \
      "folder of the run's outputs") \
    X(run, ranks, int64_t, INT, DEFAULT("1"), INTS(1, 64), "", \
      "processes the model is split over; -n says it too") \
    X(run, threads, int64_t, INT_OR_AUTO, DEFAULT("auto"), INTS(1, 1024), "threads", \
      "compute threads of a rank; auto: cores / ranks") \
    X(run, device, shd_job_device, CHOICE, DEFAULT("auto"), WORDS(DEVICE), "", \
      "where ranks compute; auto: cuda where there is a GPU that can do all that the job asks for, else cpu") \
    X(run, comm, shd_job_comm, CHOICE, DEFAULT("auto"), WORDS(COMM), "", \
      "how ranks talk; auto: self for one rank, shm for more, on GPUs nccl, or staged where ranks share one; " \
      "staged: through the host's memory") \
    X(run, timeout_s, double, REAL, DEFAULT("600.0"), ABOVE(0), "seconds", \
      "how long a rank waits for another one") \
    X(run, start_timeout_s, double, REAL, DEFAULT("300.0"), ABOVE(0), "seconds", \
      "the same for the first meeting") \
    X(run, on_nonfinite, shd_job_on_nonfinite, CHOICE, DEFAULT("skip"), WORDS(NONFINITE), "", \
      "what to do when loss or gradients are not finite: skip the step's update, go back to the newest checkpoint and " \
      "on behind the step's data, or end the run") \
    X(run, max_nonfinite, int64_t, INT, DEFAULT("10"), INTS(1, 99999999), "", \
      "so many such steps in a row end the run: skipped one after the other, or rollbacks without a new checkpoint in " \
      "between; those of on_outlier count too") \
    X(run, rollback_lr_factor, double, REAL, DEFAULT("1.0"), UP_TO(0, 1), "", \
      "each rollback multiplies the learning rate of all that follows by it") \
    X(run, outlier_zscore, double, REAL, DEFAULT("0.0"), REALS(0, DBL_MAX), "", \
      "a step whose loss or gradient norm is so many standard deviations, robustly, above those of the last steps is " \
      "an outlier; 0: none is") \
    X(run, on_outlier, shd_job_on_outlier, CHOICE, DEFAULT("warn"), WORDS(OUTLIER), "", \
      "what to do about it") \
    X(run, outlier_window, int64_t, INT, DEFAULT("100"), INTS(8, 1000), "optimizer steps", \
      "that a step is compared with; until there are so many, none is an outlier") \
    X(run, straggler_factor, double, REAL, DEFAULT("1.5"), REALS(0, DBL_MAX), "", \
      "a rank whose own work takes more than so many times the median rank's, step after step, is named in a warning; " \
      "0: none is") \
    X(run, straggler_steps, int64_t, INT, DEFAULT("50"), INTS(1, 99999999), "optimizer steps", \
      "in a row until it is named")

/* S(section, its rows, what it is about); N(field, its path, its rows, what it is about): a section inside another, which
 * follows that one. */
#define SHD_JOB_SECTIONS(S, N) \
    S(model, SHD_JOB_MODEL, "the network and its initial weights") \
    S(data, SHD_JOB_DATA, "files of tokens or arrays") \
    S(train, SHD_JOB_TRAIN, "how long and in which pieces") \
    N(loss_scale, "train.loss_scale", SHD_JOB_LOSS_SCALE, "with train.precision fp16, unused otherwise") \
    S(optimizer, SHD_JOB_OPTIMIZER, "the update of the parameters") \
    S(shard, SHD_JOB_SHARD, "what is split over the ranks") \
    S(checkpoint, SHD_JOB_CHECKPOINT, "saving and resuming") \
    S(log, SHD_JOB_LOG, "what is reported") \
    S(run, SHD_JOB_RUN, "ranks and where outputs go")
/* clang-format on */

#endif
