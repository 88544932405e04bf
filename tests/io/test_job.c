#include "io/file_list.h"
#include "io/job.h"
#include "io/job_keys.h"
#include "runtime/base/memory.h"
#include "tests/io/bad_jobs.h"
#include "tests/io/make_job.h"

#include <criterion/criterion.h>
#include <jansson.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

TestSuite(job, .init = enter_fresh_folder, .fini = leave_fresh_folder);

static shd_job *good(const char *text, const char *const settings[3]) {
    shd_job *job = NULL;
    cr_assert_eq(load_job(text, settings, &job), SHERD_OK, "%s", sherd_last_error());
    return job;
}

static json_t *resolved(const shd_job *job) {
    char *text = NULL;
    cr_assert_eq(shd_job_resolved_json(job, &text), SHERD_OK);
    json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    cr_assert_not_null(root);
    shd_job_text_free(text);
    return root;
}

/* --- bad input ---------------------------------------------------------------------------------------------------- */

static bool message_matches(const char *says, const char *message) {
    static const char more[] = "…";
    size_t length = strlen(says), tail = strlen(more);
    bool open = length >= tail && strcmp(says + length - tail, more) == 0;
    return open ? strncmp(says, message, length - tail) == 0 : strcmp(says, message) == 0;
}

Test(job, refuses_every_bad_job_with_its_place_and_what_would_be_right) {
    cr_assert_geq(BAD_JOB_COUNT, 80);
    for (int i = 0; i < BAD_JOB_COUNT; i++) {
        char *text = make_bad_job(&bad_jobs[i]);
        shd_job *job = NULL;
        sherd_status status = load_job(text, bad_jobs[i].set, &job);
        cr_expect_eq(status, SHERD_CONFIG, "%s: status %d", bad_jobs[i].what, status);
        cr_expect_null(job);
        cr_expect(message_matches(bad_jobs[i].says, sherd_last_error()), "%s:\n  said     %s\n  expected %s",
                  bad_jobs[i].what, sherd_last_error(), bad_jobs[i].says);
        free(text);
    }
}

Test(job, refuses_a_file_longer_than_a_job_can_be) {
    size_t bytes = SHD_YAML_MAX_BYTES + 1;
    char *text = malloc(bytes);
    memset(text, '#', bytes);
    write_file("job.yaml", text, bytes);
    shd_job *job = NULL;
    cr_assert_eq(shd_job_load("job.yaml", NULL, 0, &job), SHERD_CONFIG);
    cr_assert_str_eq(sherd_last_error(), "job.yaml:1:1: longer than 1048576 bytes; this is no job file");
    free(text);
}

Test(job, refuses_what_is_no_regular_file, .timeout = 10) {
    shd_job *job = NULL;
    cr_assert_eq(shd_job_load("none.yaml", NULL, 0, &job), SHERD_IO);
    cr_assert_str_eq(sherd_last_error(), "none.yaml: cannot open the job file: No such file or directory");
    mkdir("folder", 0700);
    cr_assert_eq(shd_job_load("folder", NULL, 0, &job), SHERD_IO);
    cr_assert_str_eq(sherd_last_error(), "folder: not a regular file; give the path of a job file");
    mkfifo("fifo", 0600);
    cr_assert_eq(shd_job_load("fifo", NULL, 0, &job), SHERD_IO);
}

/* Returns how many of the cut ones are accepted. */
static int damage(const char *whole) {
    char text[1024];
    shd_job *job = NULL;
    int accepted = 0;
    size_t bytes = strlen(whole);
    for (size_t i = 0; i < bytes; i++) {
        write_file("job.yaml", whole, i);
        if (shd_job_load("job.yaml", NULL, 0, &job) == SHERD_OK) shd_job_destroy(job), accepted++;
        for (int bit = 0; bit < 8; bit += 3) {
            strcpy(text, whole);
            text[i] = (char)(text[i] ^ 1 << bit);
            write_file("job.yaml", text, bytes);
            if (shd_job_load("job.yaml", NULL, 0, &job) == SHERD_OK) shd_job_destroy(job);
        }
    }
    return accepted;
}

Test(job, survives_a_good_job_cut_at_every_byte_and_with_every_byte_changed) {
    /* Cut inside the last value it is still a number: "3", "3.", "3.0" and the whole without its line end. */
    cr_assert_eq(damage(good_job), 4);
    static const char groups[] = "{name: a, model: {family: gpt2, vocab_size: 2, context: 2, d_model: 2, n_layer: 1,\n"
                                 "n_head: 1}, data: {train: t}, train: {steps: 1, global_batch: 1, micro_batch: 1},\n"
                                 "optimizer: {lr: 1, decay: [\"*.w\", b],\n"
                                 "groups: [{match: a, lr_factor: 2}, {weight_decay: null, match: b}]}}";
    cr_assert_eq(damage(groups), 0);
    shd_job *job = good(groups, NULL);
    shd_job_destroy(job);
    cr_assert_eq(shd_memory_held(SHD_MEMORY_OBJECTS), 0);
}

/* --- good input --------------------------------------------------------------------------------------------------- */

Test(job, has_the_defaults_that_the_schema_states) {
    shd_job *job = good(good_job, NULL);
    cr_assert_str_eq(job->top.name, "tiny");
    cr_assert_eq(job->model.family, SHD_JOB_GPT2);
    cr_assert_eq(job->model.n_kv_head, 3);
    cr_assert_eq(job->model.d_ff, 192);
    cr_assert(job->model.tied_embeddings);
    cr_assert_null(job->model.init.path);
    cr_assert_eq(job->model.frozen.count, 0);
    cr_assert_eq(job->data.validation.count, 0);
    cr_assert_eq(job->data.format, SHD_FORMAT_AUTO);
    cr_assert(job->data.shuffle);
    cr_assert_eq(job->data.ignored_token, -1);
    cr_assert_eq(job->train.steps, 60);
    cr_assert_eq(job->train.clip, 1.0);
    cr_assert_eq(job->optimizer.lr, 3e-3);
    cr_assert_eq(job->optimizer.betas.at[0], 0.9);
    cr_assert_eq(job->optimizer.betas.at[1], 0.95);
    cr_assert_eq(job->optimizer.eps, 1e-8);
    cr_assert_eq(job->optimizer.schedule, SHERD_COSINE);
    cr_assert_eq(job->shard.stage, 3);
    cr_assert_eq(job->run.threads, 0);
    cr_assert_eq(job->run.timeout_s, 600);
    shd_job_destroy(job);
}

/* The resolved form of the resolved form. */
static void check_round_trip(const shd_job *job) {
    char *first = NULL, *second = NULL;
    shd_job *again = NULL;
    cr_assert_eq(shd_job_resolved_json(job, &first), SHERD_OK);
    cr_assert_eq(shd_job_from_json("note", first, &again), SHERD_OK, "%s", sherd_last_error());
    cr_assert_eq(shd_job_resolved_json(again, &second), SHERD_OK);
    cr_assert_str_eq(first, second);
    cr_assert_eq(again->optimizer.lr, job->optimizer.lr);
    shd_job_text_free(first);
    shd_job_text_free(second);
    shd_job_destroy(again);
}

/* Indented, and with its paths absolute, it may be larger than a job file can be. */
Test(job, comes_back_from_a_resolved_form_that_is_larger_than_the_file) {
    enum { PATTERNS = 34000, PATTERN_BYTES = 28 };
    size_t bytes = sizeof good_job + 64 + (size_t)PATTERNS * PATTERN_BYTES;
    char *text = malloc(bytes), *resolved_text = NULL;
    const char *rest = strstr(good_job, "data:");
    int at = sprintf(text, "%.*s  frozen: [", (int)(rest - good_job), good_job);
    for (int i = 0; i < PATTERNS; i++)
        at += sprintf(text + at, "block.%06d.attention.bias%s", i, i + 1 < PATTERNS ? "," : "]\n");
    strcpy(text + at, rest);
    cr_assert_lt(strlen(text), SHD_YAML_MAX_BYTES);
    shd_job *job = good(text, NULL);
    cr_assert_eq(job->model.frozen.count, PATTERNS);
    cr_assert_eq(shd_job_resolved_json(job, &resolved_text), SHERD_OK);
    cr_assert_gt(strlen(resolved_text), SHD_YAML_MAX_BYTES);
    check_round_trip(job);
    shd_free(resolved_text);
    shd_job_destroy(job);
    free(text);
}

Test(job, comes_back_the_same_from_its_resolved_form) {
    shd_job *job = good(good_job, (const char *const[3]){"optimizer.lr=0.1", "model.frozen=[\"wpe.*\"]",
                                                         "train.seed=9223372036854775807"});
    check_round_trip(job);
    shd_job_destroy(job);
    job = good(good_job, (const char *const[3]){"model.family=llama", "model.d_ff=130", "model.rope_theta=5e5"});
    check_round_trip(job);
    shd_job_destroy(job);
    job =
        good(good_job, (const char *const[3]){
                           "optimizer.groups=[{match: \"*\\u00fc\\\"\", lr_factor: 0.1}, {match: b, weight_decay: 1}]",
                           "optimizer.decay=[\"w?e.*\"]", "optimizer.warmup_tokens=15360"});
    check_round_trip(job);
    shd_job_destroy(job);
    cr_assert_eq(shd_job_from_json("note", "{\"name\": 3}", &job), SHERD_CONFIG);
    cr_assert_eq(strncmp(sherd_last_error(), "note:1:10: name: '3' is", 23), 0, "%s", sherd_last_error());
}

Test(job, takes_files_globs_lists_and_mixtures_to_train_on) {
    char here[4096], expected[8192];
    cr_assert_not_null(getcwd(here, sizeof here));
    shd_job *job = good(good_job, (const char *const[3]){"data.train=sub/*.bin"});
    cr_assert(job->data.train.count == 1 && !job->data.train.weighted && job->data.train.items[0].path_count == 1);
    snprintf(expected, sizeof expected, "%s/sub/*.bin", here);
    cr_assert_str_eq(job->data.train.items[0].paths[0], expected);
    check_round_trip(job);
    shd_job_destroy(job);
    job = good(good_job, (const char *const[3]){"data.train=[b.bin, /abs/a.bin]", "data.document_separator=256"});
    cr_assert(job->data.train.count == 1 && job->data.train.items[0].path_count == 2);
    cr_assert_str_eq(job->data.train.items[0].paths[1], "/abs/a.bin");
    cr_assert_eq(job->data.document_separator, 256);
    check_round_trip(job);
    shd_job_destroy(job);
    job = good(good_job, (const char *const[3]){"data.train=[{path: a.bin, weight: 0.25}, {path: [b, c*]}]"});
    const shd_job_sources *sources = &job->data.train;
    cr_assert(sources->count == 2 && sources->weighted);
    cr_assert(sources->items[0].weight == 0.25 && sources->items[1].weight == 1 && sources->items[1].path_count == 2);
    check_round_trip(job);
    char *text = NULL;
    cr_assert_eq(shd_job_explain(job, &text), SHERD_OK);
    cr_assert_not_null(strstr(text, "\"weight\": 0.25}"), "%s", text);
    shd_free(text);
    shd_job_destroy(job);
}

/* A folder's own characters are no part of a glob. */
Test(job, finds_globs_in_a_folder_with_odd_characters) {
    char here[4096], expected[8192];
    cr_assert_not_null(getcwd(here, sizeof here));
    mkdir("odd[1]", 0700);
    write_text("odd[1]/job.yaml", good_job);
    shd_job *job = NULL;
    cr_assert_eq(shd_job_load("odd[1]/job.yaml", NULL, 0, &job), SHERD_OK);
    snprintf(expected, sizeof expected, "%s/odd[1]/tokens.bin", here);
    cr_assert_str_eq(job->data.train.items[0].paths[0], expected);
    shd_job_destroy(job);
    cr_assert_eq(chdir("odd[1]"), 0);
    const shd_job_setting setting = {.text = "data.train=t*.bin"};
    cr_assert_eq(shd_job_load("job.yaml", &setting, 1, &job), SHERD_OK);
    cr_assert_eq(chdir(".."), 0);
    write_text("odd[1]/tokens.bin", "x");
    shd_keep *keep = shd_keep_create();
    const char *const *files;
    int32_t count;
    cr_assert_eq(shd_file_list_expand("data.train", (const char *const *)job->data.train.items[0].paths, 1, keep,
                                      &files, &count),
                 SHERD_OK, "%s", sherd_last_error());
    cr_assert_eq(count, 1);
    cr_assert_str_eq(files[0], expected);
    shd_keep_destroy(keep);
    shd_job_destroy(job);
}

Test(job, reads_numbers_as_yaml_1_2_does_in_any_locale) {
    setlocale(LC_ALL, "de_DE.UTF-8"); /* where it is installed */
    shd_job *job = good(good_job, (const char *const[3]){"optimizer.lr=2e-5", "optimizer.eps=1e-08", "train.clip=1"});
    cr_assert_eq(job->optimizer.lr, 2e-5);
    cr_assert_eq(job->optimizer.eps, 1e-8);
    cr_assert_eq(job->train.clip, 1.0);
    shd_job_destroy(job);
    job = good(good_job, (const char *const[3]){"optimizer.lr=.5", "train.seed=9223372036854775807", "train.clip=0"});
    cr_assert_eq(job->optimizer.lr, 0.5);
    cr_assert_eq(job->train.seed, INT64_MAX);
    shd_job_destroy(job);
}

Test(job, lets_later_settings_win_over_earlier_ones_and_the_file) {
    shd_job *job =
        good(good_job, (const char *const[3]){"train.steps=7", "optimizer.betas=[0.5, 0.25]", "train.steps=8"});
    cr_assert_eq(job->train.steps, 8);
    cr_assert_eq(job->optimizer.betas.at[1], 0.25);
    cr_assert_str_eq(shd_job_origin_of(job, "train.steps")->place.source, "--set train.steps=8");
    shd_job_destroy(job);
}

Test(job, names_a_setting_as_the_user_wrote_it) {
    write_text("job.yaml", good_job);
    shd_job_setting setting = {.source = "-n 65", .text = "run.ranks=65"};
    shd_job *job = NULL;
    cr_assert_eq(shd_job_load("job.yaml", &setting, 1, &job), SHERD_CONFIG);
    cr_assert_str_eq(sherd_last_error(), "-n 65: run.ranks: 65 is out of range; expected a whole number from 1 to 64");
}

Test(job, takes_paths_from_its_own_folder_and_those_of_settings_from_the_working_directory) {
    char here[4096], expected[8192];
    cr_assert_not_null(getcwd(here, sizeof here));
    mkdir("jobs", 0700);
    char text[2048];
    snprintf(text, sizeof text, "%scheckpoint:\n  dir: ckpt\n  resume: ../old\n", good_job);
    write_text("jobs/job.yaml", text);
    shd_job_setting settings[2] = {{.text = "data.validation=val.bin"}, {.text = "model.init=/abs/init.safetensors"}};
    shd_job *job = NULL;
    cr_assert_eq(shd_job_load("jobs/job.yaml", settings, 2, &job), SHERD_OK, "%s", sherd_last_error());
    const struct {
        const char *value, *ending;
    } cases[] = {{job->data.train.items[0].paths[0], "/jobs/tokens.bin"},
                 {job->data.validation.items[0].paths[0], "/val.bin"},
                 {job->checkpoint.dir, "/jobs/ckpt"},
                 {job->checkpoint.resume.path, "/jobs/../old"},
                 {job->run.dir, "/jobs/runs/tiny"},
                 {job->log.dir, "/jobs/runs/tiny"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(expected, sizeof expected, "%s%s", here, cases[i].ending);
        cr_expect_str_eq(cases[i].value, expected);
    }
    cr_assert_str_eq(job->model.init.path, "/abs/init.safetensors");
    shd_job_destroy(job);
    shd_job_setting run = {.text = "run.dir=out"};
    cr_assert_eq(shd_job_load("jobs/job.yaml", &run, 1, &job), SHERD_OK);
    snprintf(expected, sizeof expected, "%s/out", here);
    cr_assert_str_eq(job->run.dir, expected);
    cr_assert_str_eq(job->log.dir, expected);
    shd_job_destroy(job);
}

Test(job, is_loaded_again_from_its_text_whatever_the_file_says_by_then) {
    write_text("job.yaml", good_job);
    shd_job *job = NULL, *again = NULL;
    cr_assert_eq(shd_job_load("job.yaml", NULL, 0, &job), SHERD_OK);
    write_text("job.yaml", "not a job");
    shd_job_setting setting = {.text = "train.steps=0"};
    cr_assert_eq(shd_job_load_text("job.yaml", job->text, job->text_bytes, NULL, 0, &again), SHERD_OK);
    char *first, *second;
    cr_assert_eq(shd_job_resolved_json(job, &first), SHERD_OK);
    cr_assert_eq(shd_job_resolved_json(again, &second), SHERD_OK);
    cr_assert_str_eq(first, second);
    shd_job_destroy(again);
    cr_assert_eq(shd_job_load_text("job.yaml", job->text, job->text_bytes, &setting, 1, &again), SHERD_CONFIG);
    cr_assert_eq(shd_job_load_text("job.yaml", "nonsense: 1\n", 12, NULL, 0, &again), SHERD_CONFIG);
    cr_assert(strstr(sherd_last_error(), "job.yaml:1:1: ") == sherd_last_error(), "%s", sherd_last_error());
    shd_job_text_free(first);
    shd_job_text_free(second);
    shd_job_destroy(job);
}

Test(job, keeps_words_and_paths_apart) {
    const char *const words[3] = {"checkpoint.resume=never", "model.init=./random", NULL};
    shd_job *job = good(good_job, words);
    cr_assert_null(job->checkpoint.resume.path);
    cr_assert_eq(job->checkpoint.resume.word, SHD_RESUME_NEVER);
    cr_assert_not_null(job->model.init.path);
    cr_assert_str_eq(strrchr(job->model.init.path, '/'), "/random");
    shd_job_destroy(job);
}

Test(job, accepts_keys_that_a_choice_does_not_use) {
    shd_job *job = good(
        good_job, (const char *const[3]){"optimizer.name=sgd", "optimizer.eps=1e-8", "optimizer.betas=[0.9, 0.99]"});
    shd_job_destroy(job);
    job =
        good(good_job, (const char *const[3]){"optimizer.schedule=constant", "optimizer.min_lr=1.0", "shard.stage=0"});
    shd_job_destroy(job);
}

Test(job, reads_groups_in_order_with_their_defaults) {
    const char *text = "  groups:\n"
                       "    - match: \"*.bias\"\n"
                       "      weight_decay: 0\n"
                       "    - {match: wte.weight, lr_factor: 0.25, weight_decay: null}\n"
                       "    - {match: \"h.?.*\", weight_decay: 0.5, lr_factor: 0}\n";
    char whole[2048];
    snprintf(whole, sizeof whole, "%s%s", good_job, text);
    shd_job *job = good(whole, NULL);
    const shd_job_groups *groups = &job->optimizer.groups;
    cr_assert_eq(groups->count, 3);
    static const sherd_optimizer_group expected[] = {{"*.bias", 1, 0}, {"wte.weight", 0.25, -1}, {"h.?.*", 0, 0.5}};
    for (int i = 0; i < 3; i++) {
        cr_expect_str_eq(groups->items[i].match, expected[i].match);
        cr_expect_eq(groups->items[i].lr_factor, expected[i].lr_factor);
        cr_expect_eq(groups->items[i].weight_decay, expected[i].weight_decay);
    }
    shd_job_destroy(job);
    job = good(whole, (const char *const[3]){"optimizer.groups=[]"});
    cr_assert_eq(job->optimizer.groups.count, 0);
    shd_job_destroy(job);
}

Test(job, takes_a_word_or_patterns_for_what_decays) {
    shd_job *job = good(good_job, (const char *const[3]){"optimizer.decay=none"});
    cr_assert(!job->optimizer.decay.texts.items && job->optimizer.decay.word == SHERD_DECAY_NONE);
    shd_job_destroy(job);
    job = good(good_job, (const char *const[3]){"optimizer.decay=all", "optimizer.decay=[none, \"*.bias\"]"});
    cr_assert_eq(job->optimizer.decay.texts.count, 2);
    cr_assert_str_eq(job->optimizer.decay.texts.items[0], "none"); /* in a list it is a pattern */
    cr_assert_str_eq(job->optimizer.decay.texts.items[1], "*.bias");
    shd_job_destroy(job);
    job = good(good_job, (const char *const[3]){"optimizer.decay=[none]", "optimizer.decay=matrices"});
    cr_assert(!job->optimizer.decay.texts.items && job->optimizer.decay.word == SHERD_DECAY_MATRICES);
    shd_job_destroy(job);
    job = good(good_job, (const char *const[3]){"optimizer.decay=[]"});
    cr_assert(job->optimizer.decay.texts.items && job->optimizer.decay.texts.count == 0);
    shd_job_destroy(job);
}

Test(job, reads_a_section_inside_another_and_sets_its_keys) {
    static const char text[] =
        "name: tiny\nmodel: {family: gpt2, vocab_size: 257, context: 32, d_model: 48, n_layer: 3, "
        "n_head: 3}\ndata: {train: tokens.bin}\ntrain:\n  steps: 60\n  global_batch: 8\n"
        "  micro_batch: 2\n  precision: fp16\n  loss_scale:\n    initial: 1024\n    hysteresis: 2\n"
        "optimizer: {lr: 1e-3}\nshard: {reduce_dtype: bf16}\n";
    shd_job *job =
        good(text, (const char *const[3]){"train.loss_scale.growth_interval=7", "train.loss_scale.initial=2e3"});
    cr_assert(job->train.precision == SHERD_FP16 && job->shard.reduce_dtype == SHERD_BF16);
    cr_assert(job->loss_scale.initial == 2000 && job->loss_scale.hysteresis == 2);
    cr_assert(job->loss_scale.growth_interval == 7 && job->loss_scale.minimum == 1);
    shd_job_destroy(job);
}

/* --- texts -------------------------------------------------------------------------------------------------------- */

/* Exactly the keys that the job's family has. */
static void check_keys(const char *text, const char *const settings[3]) {
    shd_job *job = good(text, settings);
    json_t *root = resolved(job);
    int32_t count;
    const shd_job_key *keys = shd_job_keys(&count);
    for (int32_t i = 0; i < count; i++) {
        const char *inner = strchr(keys[i].section, '.');
        char outer[64];
        snprintf(outer, sizeof outer, "%.*s", (int)strcspn(keys[i].section, "."), keys[i].section);
        const json_t *section = *outer ? json_object_get(root, outer) : root;
        if (inner) section = json_object_get(section, inner + 1);
        cr_expect_eq(json_object_get(section, keys[i].name) != NULL, shd_job_has(job, keys[i].path), "%s",
                     keys[i].path);
    }
    check_round_trip(job);
    json_decref(root);
    shd_job_destroy(job);
}

Test(job, resolves_to_json_with_every_key_that_its_model_has) {
    shd_job *job = good(good_job, (const char *const[3]){"model.family=llama", "model.d_ff=130"});
    json_t *root = resolved(job);
    cr_assert_eq(json_real_value(json_object_get(json_object_get(root, "optimizer"), "lr")), 3e-3);
    cr_assert_str_eq(json_string_value(json_object_get(json_object_get(root, "run"), "threads")), "auto");
    cr_assert_not_null(json_object_get(json_object_get(root, "model"), "rope_theta"));
    json_decref(root);
    shd_job_destroy(job);
    job = good(good_job, NULL);
    root = resolved(job);
    cr_assert_null(json_object_get(json_object_get(root, "model"), "rope_theta"));
    json_decref(root);
    shd_job_destroy(job);
    check_keys(good_job, NULL);
    check_keys(good_job, (const char *const[3]){"model.family=llama", "model.d_ff=130"});
    check_keys(MLP_JOB, NULL);
}

Test(job, takes_pairs_of_arrays_for_an_mlp) {
    char here[4096], expected[8192];
    cr_assert_not_null(getcwd(here, sizeof here));
    shd_job *job = good(MLP_JOB, (const char *const[3]){"data.ignored_label=-100", "data.validation=v.safetensors"});
    const shd_job_data_source *source = &job->data.train.items[0];
    cr_assert(job->data.train.count == 1 && source->path_count == 1 && source->target_path_count == 1);
    snprintf(expected, sizeof expected, "%s/y.npy", here);
    cr_assert_str_eq(source->target_paths[0], expected);
    cr_assert_eq(job->data.ignored_label, -100);
    cr_assert_null(job->data.validation.items[0].target_paths);
    cr_assert_eq(shd_job_step_tokens(job), 1);
    cr_assert_str_eq(shd_job_items(job), "samples");
    check_round_trip(job);
    shd_job_destroy(job);
    job =
        good(MLP_JOB,
             (const char *const[3]){"data.train=[{inputs: [a, b], targets: 'c*', weight: 2}, {path: d.safetensors}]"});
    cr_assert(job->data.train.count == 2 && job->data.train.items[0].path_count == 2);
    cr_assert_eq(job->data.ignored_label, INT64_MIN);
    check_round_trip(job);
    shd_job_destroy(job);
}

Test(job, explains_every_key_with_its_value_and_where_that_comes_from) {
    shd_job *job = good(good_job, (const char *const[3]){"train.seed=5"});
    char *text = NULL;
    cr_assert_eq(shd_job_explain(job, &text), SHERD_OK);
    int32_t count;
    const shd_job_key *keys = shd_job_keys(&count);
    for (int32_t i = 0; i < count; i++)
        cr_expect_not_null(strstr(text, keys[i].help), "%s is not explained", keys[i].path);
    cr_assert_not_null(strstr(text, "  steps: 60  (job.yaml:12)\n"));
    cr_assert_not_null(strstr(text, "  seed: 5  (--set train.seed=5)\n"));
    cr_assert_not_null(strstr(text, "  clip: 1.0  (default)\n"));
    cr_assert_not_null(strstr(text, "  d_ff: none  (not in gpt2)\n"));
    cr_assert_not_null(
        strstr(text, "  decay: matrices  (default)\n      matrices, all, none or a list of texts; what "));
    cr_assert_not_null(strstr(text, "  groups: []  (default)\n      a list of groups, each with the keys match, "));
    cr_assert_not_null(strstr(text, "\n      lr_factor: a number from 0 on, default 1.0; "));
    shd_job_text_free(text);
    cr_assert_eq(shd_job_explain(NULL, &text), SHERD_OK);
    cr_assert_not_null(strstr(text, "  steps: required  (required)\n"));
    shd_job_text_free(text);
    shd_job_destroy(job);
}

Test(job, explains_groups_as_they_would_be_written) {
    shd_job *job = good(good_job, (const char *const[3]){"optimizer.groups=[{match: \"*.bias\", weight_decay: 0}]",
                                                         "optimizer.decay=[\"h.*\"]"});
    char *text = NULL;
    cr_assert_eq(shd_job_explain(job, &text), SHERD_OK);
    cr_assert_not_null(strstr(text, "  decay: [\"h.*\"]  (--set optimizer.decay=[\"h.*\"])\n"), "%s", text);
    cr_assert_not_null(
        strstr(text, "  groups: [{\"match\": \"*.bias\", \"lr_factor\": 1.0, \"weight_decay\": 0.0, \"optimizer\": "
                     "\"auto\"}]  (--set "),
        "%s", text);
    shd_job_text_free(text);
    shd_job_destroy(job);
}

Test(job, gives_every_key_a_place_a_kind_and_help_of_its_own) {
    int32_t count;
    const shd_job_key *keys = shd_job_keys(&count);
    char text[SHD_JOB_TEXT_BYTES];
    for (int32_t i = 0; i < count; i++) {
        cr_expect_eq(shd_job_find_path(keys[i].path), i);
        cr_expect_eq(keys[i].required + (keys[i].fallback != NULL) + (keys[i].computed != NULL), 1, "%s", keys[i].path);
        shd_job_expected(&keys[i], text);
        cr_expect(strlen(text) > 3 && *keys[i].help);
        for (int32_t j = 0; j < i; j++) cr_expect_neq(keys[i].offset, keys[j].offset);
    }
}

Test(job, is_documented_as_it_is) {
    size_t length;
    char *text = NULL, *file = read_file(JOB_MD, &length);
    cr_assert_eq(shd_job_document(&text), SHERD_OK);
    cr_assert_str_eq(file, text, "docs/JOB.md is old: `ninja -C build docs` writes it anew");
    shd_job_text_free(text);
    free(file);
}

Test(job, leaves_no_memory_behind) {
    shd_job *job = good(good_job, NULL);
    shd_job_destroy(job);
    shd_job_destroy(NULL);
    cr_assert_eq(shd_memory_held(SHD_MEMORY_OBJECTS), 0);
}
