/* Weights from everything that a model can start from: all give the same. */
#include "runtime/train/weights.h"

#include "io/checkpoint_export.h"
#include "io/checkpoint_pick.h"
#include "io/safetensors.h"
#include "runtime/base/memory.h"
#include "runtime/train/job_setup.h"
#include "runtime/train/note.h"
#include "tests/io/llmc_files.h"
#include "tests/io/make_job.h"
#include "tests/support/find_tensor.h"
#include "tests/train/run_job.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

TestSuite(weights, .init = enter_fresh_folder, .fini = leave_fresh_folder, .timeout = 120);

static shd_model *make_model(void) {
    shd_job *job;
    shd_model *model;
    cr_assert_eq(load_job(small_job, (const char *const[3]){NULL}, &job), SHERD_OK, "%s", sherd_last_error());
    cr_assert_eq(shd_job_model(job, &model), SHERD_OK, "%s", sherd_last_error());
    shd_job_destroy(job);
    return model;
}

/* All parameters, one after the other, read in two parts each; from malloc. */
static float *read_weights(const shd_model *model, const char *path, const char *kind, int64_t *count) {
    const sherd_model *described = shd_model_describe(model);
    shd_weights_file *file = NULL;
    cr_assert_eq(shd_weights_open(path, model, &file), SHERD_OK, "%s: %s", path, sherd_last_error());
    cr_assert_str_eq(shd_weights_file_kind(file), kind);
    float *values = malloc(100000 * sizeof *values);
    *count = 0;
    for (int32_t t = 0; t < described->tensor_count; t++) {
        const sherd_tensor *tensor = &described->tensors[t];
        int64_t elements = tensor->shape[0] * (tensor->dim_count > 1 ? tensor->shape[1] : 1), half = elements / 3;
        cr_assert_eq(shd_weights_file_fill(file, t, 0, half, values + *count), SHERD_OK);
        cr_assert_eq(shd_weights_file_fill(file, t, half, elements - half, values + *count + half), SHERD_OK);
        *count += elements;
    }
    shd_weights_file_close(file);
    return values;
}

/* Copies tensors [first, end) of a file into another. */
static void copy_part(const shd_safetensors *from, const char *path, int32_t first, int32_t end) {
    shd_safetensors_spec specs[64];
    static float values[100000];
    shd_safetensors_writer *writer;
    for (int32_t i = first; i < end; i++) {
        const shd_safetensors_entry *entry = shd_safetensors_at(from, i);
        specs[i - first] = (shd_safetensors_spec){entry->name, entry->dim_count, entry->shape};
    }
    cr_assert_eq(shd_safetensors_writer_create(path, SHERD_FP32, specs, end - first, &writer), SHERD_OK);
    for (int32_t i = first; i < end; i++) {
        const shd_safetensors_entry *entry = shd_safetensors_at(from, i);
        cr_assert_eq(shd_safetensors_read(from, entry, 0, entry->element_count, values), SHERD_OK);
        cr_assert_eq(shd_safetensors_writer_append(writer, values, entry->element_count), SHERD_OK);
    }
    cr_assert_eq(shd_safetensors_writer_finish(writer), SHERD_OK);
    shd_safetensors_writer_destroy(writer);
}

static void export_for_transformers(const char *from, const char *to) {
    shd_checkpoint *checkpoint;
    shd_job *job;
    size_t bytes;
    char path[100];
    cr_assert_eq(shd_checkpoint_pick(from, &checkpoint), SHERD_OK, "%s", sherd_last_error());
    cr_assert_eq(shd_note_job(shd_checkpoint_content(checkpoint)->note, NULL, &job), SHERD_OK, "%s",
                 sherd_last_error());
    const shd_export form = {.to = to, .transformers = job};
    cr_assert_eq(shd_checkpoint_export_as(checkpoint, &form), SHERD_OK, "%s", sherd_last_error());
    snprintf(path, sizeof path, "%s/config.json", to);
    cr_assert(strstr(read_file(path, &bytes), "\"GPT2LMHeadModel\""));
    snprintf(path, sizeof path, "%s/model.safetensors", to);
    shd_safetensors *file;
    cr_assert_eq(shd_safetensors_open(path, &file), SHERD_OK, "%s", sherd_last_error());
    cr_assert(find_tensor(file, "transformer.h.1.mlp.c_fc.weight"));
    shd_safetensors_close(file);
    shd_job_destroy(job);
    shd_checkpoint_close(checkpoint);
}

Test(weights, come_alike_from_a_checkpoint_a_file_a_folder_and_its_parts) {
    static job_result result;
    make_tokens("tokens.u16", 600, 1);
    run_job(small_job, (const char *const[]){"train.steps=2", "optimizer.warmup_steps=1", "run.ranks=2", NULL},
            &result);
    cr_assert_eq(result.status[0], SHERD_OK, "%s", result.cause);
    cr_assert(mkdir("whole", 0777) == 0 && mkdir("parts [1*]", 0777) == 0);
    cr_assert_eq(shd_checkpoint_export("ckpt", "whole/model.safetensors"), SHERD_OK, "%s", sherd_last_error());
    shd_safetensors *file;
    cr_assert_eq(shd_safetensors_open("whole/model.safetensors", &file), SHERD_OK);
    int32_t tensors = shd_safetensors_count(file), third = tensors / 3;
    copy_part(file, "parts [1*]/model-00001-of-00003.safetensors", 0, third);
    copy_part(file, "parts [1*]/model-00003-of-00003.safetensors", third, tensors - 1);
    shd_model *model = make_model();
    shd_weights_file *refused = NULL;
    cr_assert_eq(shd_weights_open("parts [1*]", model, &refused), SHERD_DATA);
    cr_assert(strstr(sherd_last_error(), "parts [1*] does not fit the model: "), "%s", sherd_last_error());
    copy_part(file, "parts [1*]/model-00002-of-00003.safetensors", tensors - 1, tensors);
    export_for_transformers("ckpt", "hf");
    int64_t expected_count, count;
    float *expected = read_weights(model, "whole/model.safetensors", "safetensors", &expected_count);
    static const char *const places[][2] = {{"whole", "safetensors"},
                                            {"hf", "safetensors"},
                                            {"parts [1*]", "safetensors"},
                                            {"ckpt", "checkpoint"},
                                            {"ckpt/step-00000002", "checkpoint"}};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        float *values = read_weights(model, places[i][0], places[i][1], &count);
        cr_assert(count == expected_count && !memcmp(values, expected, (size_t)count * sizeof *values), "%s",
                  places[i][0]);
        free(values);
    }
    free(expected);
    shd_safetensors_close(file);
    shd_model_destroy(model);
}

Test(weights, of_llm_c_fit_the_model_they_say) {
    llmc_file shape = {.version = 5,
                       .context = 8,
                       .vocab_size = 60,
                       .n_layer = 2,
                       .n_head = 2,
                       .d_model = 16,
                       .padded_vocab_size = 128};
    size_t bytes;
    int64_t count;
    char *content = make_llmc(&shape, &bytes);
    write_file("gpt2.bin", content, bytes);
    free(content);
    shd_model *model = make_model();
    float *values = read_weights(model, "gpt2.bin", "llm.c, bf16", &count);
    /* h.0.attn.c_attn.weight follows the tables and the first norm: [16, 48] of [48, 16] behind four norms' worth. */
    const float *c_attn = values + (60 + 8 + 2) * 16;
    for (int i = 0; i < 16 * 48; i++) cr_assert_eq(c_attn[i], llmc_value((128 + 8 + 4) * 16 + i % 48 * 16 + i / 48));
    free(values);
    shape.vocab_size = 61;
    content = make_llmc(&shape, &bytes);
    write_file("gpt2.bin", content, bytes);
    free(content);
    shd_weights_file *refused = NULL;
    cr_assert_eq(shd_weights_open("gpt2.bin", model, &refused), SHERD_DATA);
    cr_assert(strstr(sherd_last_error(), "wte.weight has shape [61, 16], not [60, 16]"), "%s", sherd_last_error());
    shd_model_destroy(model);
}

Test(weights, say_what_is_there_instead) {
    shd_model *model = make_model();
    shd_weights_file *file = NULL;
    cr_assert_eq(shd_weights_open("none", model, &file), SHERD_DATA);
    cr_assert_str_eq(sherd_last_error(), "cannot open none: No such file or directory");
    cr_assert_eq(shd_weights_file_open("none", model, &file), SHERD_DATA);
    cr_assert_str_eq(sherd_last_error(), "model.init: cannot open none: No such file or directory");
    cr_assert_eq(shd_weights_open(".", model, &file), SHERD_DATA);
    cr_assert(strstr(sherd_last_error(), "neither a complete checkpoint in it nor model.safetensors"));
    write_text("text", "no weights");
    cr_assert_eq(shd_weights_open("text", model, &file), SHERD_DATA);
    cr_assert_null(file);
    shd_model_destroy(model);
    cr_assert_eq(shd_memory_held(SHD_MEMORY_OBJECTS), 0);
}
