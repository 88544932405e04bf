#include "runtime/train/checkpoint_import.h"

#include "io/checkpoint_block.h"
#include "io/checkpoint_build.h"
#include "io/checkpoint_manifest.h"
#include "io/json.h"
#include "runtime/base/arith.h"
#include "runtime/base/memory.h"
#include "runtime/base/status.h"
#include "runtime/train/job_setup.h"
#include "runtime/train/weights.h"

#include <string.h>

static sherd_status copy_tensors(const shd_import *import, const sherd_model *model, shd_weights_file *weights,
                                 shd_build *build) {
    int64_t done = 0, all = 0;
    for (int32_t t = 0; t < model->tensor_count; t++) all += shd_element_count(&model->tensors[t]);
    for (int32_t t = 0; t < model->tensor_count; t++) {
        const int64_t count = shd_element_count(&model->tensors[t]), most = shd_block_count_max(SHERD_FP32);
        for (int64_t first = 0; first < count; first += most) {
            const shd_checkpoint_slice slice = {.tensor = model->tensors[t].name,
                                                .state = SHD_CHECKPOINT_PARAMETER,
                                                .first = first,
                                                .count = shd_min(most, count - first),
                                                .values = shd_build_values(build),
                                                .dtype = SHERD_FP32};
            SHD_TRY(shd_weights_file_fill(weights, t, first, slice.count, slice.values));
            SHD_TRY(shd_build_add(build, &slice));
            done += slice.count;
            SHD_TRY(shd_advance_tell(import->advance, done * (int64_t)sizeof(float), all * (int64_t)sizeof(float)));
        }
    }
    return SHERD_OK;
}

/* What `sherd train` writes too, as far as it goes without data. */
static sherd_status make_note(const shd_import *import, const char *kind, char **out) {
    char *text;
    SHD_TRY(shd_job_resolved_json(import->job, &text));
    json_t *note = json_pack("{s:o*, s:i, s:i, s:{s:s, s:s}}", "job", json_loads(text, 0, NULL), "sequence", 0,
                             "tokens_seen", 0, "imported", "from", import->from, "kind", kind);
    shd_job_text_free(text);
    sherd_status status = note ? shd_json_print(note, 0, out) : shd_fail(SHERD_MEMORY, "no memory for a note");
    json_decref(note);
    return status;
}

static sherd_status write_all(const shd_import *import, const sherd_model *model, shd_weights_file *weights,
                              shd_build *build) {
    char *note;
    SHD_TRY(shd_build_begin_file(build));
    SHD_TRY(copy_tensors(import, model, weights, build));
    SHD_TRY(shd_build_finish_file(build));
    SHD_TRY(make_note(import, shd_weights_file_kind(weights), &note));
    const shd_checkpoint_manifest manifest = {.precision = SHERD_FP32,
                                              .world_size = 1,
                                              .replicas = 1,
                                              .optimizer = SHD_CHECKPOINT_NO_OPTIMIZER,
                                              .state_dtype = SHERD_FP32,
                                              .tensor_count = model->tensor_count,
                                              .tensors = model->tensors,
                                              .note = note};
    sherd_status status = shd_build_commit(build, &manifest);
    shd_free(note);
    return status;
}

static sherd_status build_from(const shd_import *import, const shd_model *model, shd_weights_file *weights,
                               char **path) {
    const shd_build_config config = {.parent = import->parent, .file_count = 1, .compression = import->compression};
    shd_build *build;
    SHD_TRY(shd_build_create(&config, &build));
    sherd_status status = write_all(import, shd_model_describe(model), weights, build);
    char *copy = status == SHERD_OK ? shd_strdup(shd_build_path(build)) : NULL;
    shd_build_destroy(build);
    if (status == SHERD_OK && !copy) status = shd_fail(SHERD_MEMORY, "no memory for a path");
    if (status == SHERD_OK) *path = copy;
    return status;
}

sherd_status shd_import_run(const shd_import *import, char **path, const char **kind) {
    shd_model *model;
    shd_weights_file *weights;
    SHD_TRY(shd_job_model(import->job, &model));
    sherd_status status = shd_weights_open(import->from, model, &weights);
    if (status == SHERD_OK) {
        status = build_from(import, model, weights, path);
        *kind = shd_weights_file_kind(weights);
        shd_weights_file_close(weights);
    }
    shd_model_destroy(model);
    return status;
}
