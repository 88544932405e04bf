#include "runtime/train/job_setup.h"

#include <criterion/criterion.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char base_text[] =
    "name: setup\n"
    "model: {family: llama, vocab_size: 64, context: 16, d_model: 24, n_layer: 2, n_head: 3, d_ff: 40}\n"
    "data: {train: tokens.bin}\n"
    "train: {steps: 70, global_batch: 24, micro_batch: 2, clip: 0.5}\n"
    "optimizer: {name: lion, lr: 0.25, min_lr: 0.125, schedule: linear, warmup_steps: 7, betas: [0.5, 0.75],\n"
    "            eps: 0.0625, momentum: 0.375, weight_decay: 0.03125, decay: all,\n"
    "            nesterov: true, state_dtype: int8, decay_steps: 9, layer_lr_decay: 0.75,\n"
    "            groups: [{match: lm_head.weight, weight_decay: 0.625}, {match: \"*norm*\", lr_factor: 2.5}]}\n"
    "shard: {stage: 2, gather: copy, prefetch: 4}\n"
    "run: {ranks: 3, timeout_s: 11.5, start_timeout_s: 12.5}\n";

static shd_job *job_with(const char *setting) {
    char path[] = "/tmp/sherd-setup-XXXXXX";
    int file = mkstemp(path);
    cr_assert_eq(write(file, base_text, sizeof base_text - 1), (ssize_t)sizeof base_text - 1);
    close(file);
    shd_job_setting settings[] = {{.text = setting}};
    shd_job *job;
    cr_assert_eq(shd_job_load(path, settings, setting ? 1 : 0, &job), SHERD_OK, "%s", sherd_last_error());
    unlink(path);
    return job;
}

Test(job_setup, takes_every_option_from_the_job) {
    shd_job *job = job_with("run.threads=5");
    sherd_options options;
    shd_job_options(job, &options);
    cr_assert_eq(options.size, sizeof options);
    cr_assert(options.rank == 0 && options.world_size == 3 && !options.rendezvous);
    cr_assert(options.stage == 2 && options.gather == SHERD_GATHER_COPY && options.prefetch == 4);
    cr_assert_eq(options.micro_steps, 4); /* 24 / (2 x 3) */
    cr_assert_eq(options.eval_micro_steps, 0);
    cr_assert_eq(options.clip, 0.5);
    cr_assert(options.threads == 5 && options.timeout_s == 11.5 && options.start_timeout_s == 12.5);
    const sherd_optimizer *optimizer = &options.optimizer;
    cr_assert(optimizer->kind == SHERD_LION && optimizer->schedule == SHERD_LINEAR &&
              optimizer->decay == SHERD_DECAY_ALL);
    cr_assert(optimizer->warmup_steps == 7 && optimizer->total_steps == 70);
    cr_assert(optimizer->lr == 0.25 && optimizer->min_lr == 0.125 && optimizer->eps == 0.0625);
    cr_assert(optimizer->beta1 == 0.5 && optimizer->beta2 == 0.75);
    cr_assert(optimizer->momentum == 0.375 && optimizer->weight_decay == 0.03125);
    cr_assert_eq(optimizer->state_dtype, SHERD_INT8);
    cr_assert(optimizer->nesterov && optimizer->decay_steps == 9 && optimizer->layer_lr_decay == 0.75);
    cr_assert(optimizer->warmup_tokens == 0 && optimizer->step_tokens == 24 * 16);
    cr_assert_eq(optimizer->group_count, 2);
    cr_assert_str_eq(optimizer->groups[1].match, "*norm*");
    cr_assert(optimizer->groups[1].lr_factor == 2.5 && optimizer->groups[1].weight_decay == -1);
    cr_assert(optimizer->groups[0].lr_factor == 1 && optimizer->groups[0].weight_decay == 0.625);
    shd_job_destroy(job);
    job = job_with("optimizer.decay=[a, b]");
    shd_job_options(job, &options);
    cr_assert(optimizer->decay == SHERD_DECAY_PATTERNS && optimizer->decay_pattern_count == 2);
    cr_assert_str_eq(optimizer->decay_patterns[1], "b");
    shd_job_destroy(job);
    job = job_with("optimizer.decay_steps=auto");
    shd_job_options(job, &options);
    cr_assert_eq(optimizer->decay_steps, 0);
    shd_job_destroy(job);
}

Test(job_setup, divides_the_cores_by_the_ranks) {
    cpu_set_t allowed;
    sched_getaffinity(0, sizeof allowed, &allowed);
    int cores = CPU_COUNT(&allowed);
    shd_job *job = job_with(NULL);
    cr_assert_eq(shd_job_threads(job), cores >= 3 ? cores / 3 : 1);
    shd_job_destroy(job);
    job = job_with("run.ranks=1");
    cr_assert_eq(shd_job_threads(job), cores);
    shd_job_destroy(job);
}

/* `message` is how the cause begins, after the job file's path where it begins with a colon. */
static void refused(const char *setting, const char *message) {
    shd_job *job = job_with(setting);
    shd_plan *plan = NULL;
    char expected[256];
    cr_assert_eq(shd_job_plan(job, 2, 0, &plan), SHERD_CONFIG, "%s is accepted", setting);
    cr_assert_null(plan);
    snprintf(expected, sizeof expected, "%s%s", *message == ':' ? job->path : "", message);
    cr_assert_eq(strncmp(sherd_last_error(), expected, strlen(expected)), 0, "%s", sherd_last_error());
    shd_job_destroy(job);
}

/* Model, optimizer and session know keys; the place is the job's. */
Test(job_setup, what_others_refuse_has_its_place) {
    refused("model.d_model=25", "--set model.d_model=25: model.d_model 25 is not a multiple of model.n_head 3");
    refused("model.frozen=[nix]", "--set model.frozen=[nix]: model.frozen: \"nix\" matches no tensor");
    refused("optimizer.lr=0.0625", ":5:43: optimizer.min_lr is 0.125; it must not be above optimizer.lr");
}

Test(job_setup, plans_the_job_at_any_stage) {
    shd_job *job = job_with(NULL);
    for (int32_t stage = 0; stage <= 3; stage++) {
        shd_plan *plan;
        cr_assert_eq(shd_job_plan(job, stage, 2, &plan), SHERD_OK, "%s", sherd_last_error());
        const shd_policy *policy = &plan->policy;
        cr_assert(policy->rank == 2 && policy->world_size == 3 && policy->stage == stage && policy->prefetch == 4);
        cr_assert_not(policy->gather_shared);
        cr_assert_eq(policy->state_count, 1); /* Lion */
        /* Untied: two embeddings; per block q, k, v, o, three of 24 x 40, two norms; the last norm. */
        cr_assert_eq(plan->parameter_count, 2 * 64 * 24 + 2 * (4 * 24 * 24 + 3 * 24 * 40 + 2 * 24) + 24);
        shd_program *program;
        cr_assert_eq(shd_job_program(job, plan, SHD_PROGRAM_TRAIN, &program), SHERD_OK);
        cr_assert(program->micro_steps == 4 && program->late_updates);
        shd_program_destroy(program);
        shd_plan_destroy(plan);
    }
    shd_job_destroy(job);
}
