/* What a session is told of a model: its tensors and units, and how much memory each needs for what; units.h says what
 * lies there. */
#include "runtime/base/arith.h"
#include "runtime/base/dtype.h"
#include "runtime/base/memory.h"
#include "runtime/base/status.h"
#include "runtime/model/units.h"
#include "runtime/ops/ops.h"

#include <stdio.h>
#include <string.h>

enum { ALIGNMENT_BYTES = 64, NAME_BYTES = 80 /* room for the longest tensor or unit name of any family */ };

/* Logits held at once: at most MAX rows, fewer where the vocabulary is large, but never so few that products get
 * thin. */
enum { MAX_CHUNK_ROWS = 256, MIN_CHUNK_ROWS = 64, CHUNK_BYTES = 64 << 20, DEVICE_CHUNK_BYTES = 512 << 20 };

static const shd_tensor_spec output_spec = {
    "lm_head.weight", SHD_START_NORMAL, 2, {SHD_LENGTH_VOCABULARY, SHD_LENGTH_MODEL}};
static const int32_t tied_unit = 0;

static void set_lengths(shd_model *model) {
    shd_model_config *config = &model->config;
    if (config->family == SHD_MODEL_GPT2) {
        config->n_kv_head = config->n_head;
        config->d_ff = 4 * config->d_model;
    }
    model->head_size = config->d_model / config->n_head;
    model->rows = config->micro_batch * config->context;
    model->lengths[SHD_LENGTH_VOCABULARY] = config->vocab_size;
    model->lengths[SHD_LENGTH_CONTEXT] = config->context;
    model->lengths[SHD_LENGTH_MODEL] = config->d_model;
    model->lengths[SHD_LENGTH_KEYS] = config->n_kv_head * model->head_size;
    model->lengths[SHD_LENGTH_PROJECTED] = config->d_model + 2 * model->lengths[SHD_LENGTH_KEYS];
    model->lengths[SHD_LENGTH_INNER] = config->d_ff;
}

sherd_status shd_model_take_lists(shd_model *model, int32_t unit_count, int32_t tensor_count, char **names) {
    model->units = shd_alloc((size_t)unit_count, sizeof *model->units);
    model->tensors = shd_alloc((size_t)tensor_count, sizeof *model->tensors);
    model->starts = shd_alloc((size_t)tensor_count, sizeof *model->starts);
    model->names = shd_alloc((size_t)(unit_count + tensor_count), NAME_BYTES);
    if (!model->units || !model->tensors || !model->starts || !model->names)
        return shd_fail(SHERD_MEMORY, "no memory to describe a model of %d tensors", tensor_count);
    *names = model->names;
    return SHERD_OK;
}

sherd_unit *shd_model_add_unit(shd_model *model, char **names, const char *name) {
    sherd_unit *unit = &model->units[model->description.unit_count++];
    *unit = (sherd_unit){.name = strcpy(*names, name), .first_tensor = model->description.tensor_count};
    *names += NAME_BYTES;
    return unit;
}

sherd_tensor *shd_model_add_tensor(shd_model *model, char **names, sherd_unit *unit, const char *prefix,
                                   const char *name, shd_start start) {
    int32_t index = model->description.tensor_count++;
    sherd_tensor *tensor = &model->tensors[index];
    snprintf(*names, NAME_BYTES, "%s%s", prefix, name);
    tensor->name = *names;
    *names += NAME_BYTES;
    model->starts[index] = start;
    unit->tensor_count++;
    return tensor;
}

/* --- transformers ------------------------------------------------------------------------------------------------- */

static void add_tensors(shd_model *model, char **names, sherd_unit *unit, const char *prefix, shd_spec_list list) {
    for (int32_t i = 0; i < list.count; i++) {
        const shd_tensor_spec *spec = &list.specs[i];
        sherd_tensor *tensor = shd_model_add_tensor(model, names, unit, prefix, spec->name, spec->start);
        tensor->dim_count = spec->dim_count;
        for (int32_t j = 0; j < spec->dim_count; j++) tensor->shape[j] = model->lengths[spec->shape[j]];
    }
}

static sherd_status list_tensors(shd_model *model) {
    set_lengths(model);
    const shd_family *family = model->family;
    bool tied = model->config.tied_embeddings;
    int32_t layers = (int32_t)model->config.n_layer;
    int32_t unit_count = layers + 2;
    int32_t tensor_count = family->embedding.count + layers * family->block.count + family->head.count + !tied;

    char *names = NULL;
    SHD_TRY(shd_model_take_lists(model, unit_count, tensor_count, &names));
    char text[NAME_BYTES];
    add_tensors(model, &names, shd_model_add_unit(model, &names, "embedding"), "", family->embedding);
    for (int32_t i = 0; i < layers; i++) {
        snprintf(text, sizeof text, "block %d", i);
        sherd_unit *unit = shd_model_add_unit(model, &names, text);
        snprintf(text, sizeof text, family->block_prefix, i);
        add_tensors(model, &names, unit, text, family->block);
    }
    sherd_unit *head = shd_model_add_unit(model, &names, "head");
    add_tensors(model, &names, head, "", family->head);
    if (tied) {
        head->shares = &tied_unit;
        head->share_count = 1;
    } else {
        add_tensors(model, &names, head, "", (shd_spec_list){&output_spec, 1});
    }
    model->output_tensor = tied ? 0 : tensor_count - 1;
    return SHERD_OK;
}

int64_t shd_layout_take(int64_t *end, sherd_dtype dtype, int64_t rows, int64_t length) {
    int64_t begin = *end;
    *end += shd_round_up(rows * length * shd_dtype_bytes(dtype), ALIGNMENT_BYTES);
    return begin;
}

shd_layout shd_layout_make(const shd_model *model, int64_t rows, int64_t attention_bytes) {
    const shd_model_config *config = &model->config;
    const sherd_dtype precision = config->precision;
    int64_t d = config->d_model, inner = model->lengths[SHD_LENGTH_INNER];
    int64_t projected = model->lengths[SHD_LENGTH_PROJECTED];
    shd_layout layout = {0};
    layout.remade.projected = shd_layout_take(&layout.remade_bytes, precision, rows, projected);
    layout.remade.attended = shd_layout_take(&layout.remade_bytes, precision, rows, d);
    layout.remade.log_sum = shd_layout_take(&layout.remade_bytes, SHERD_FP32, rows, config->n_head);
    layout.kept.mid = shd_layout_take(&layout.kept_bytes, precision, rows, d);
    for (int32_t i = 0; i < model->family->inner_count; i++)
        layout.kept.inner[i] = shd_layout_take(&layout.kept_bytes, precision, rows, inner);

    layout.work.flow = shd_layout_take(&layout.work_bytes, precision, rows, d);
    layout.work.normed = shd_layout_take(&layout.work_bytes, precision, rows, d);
    layout.work.wide = shd_layout_take(&layout.work_bytes, precision, rows, shd_max(inner, projected));
    layout.work.mean = shd_layout_take(&layout.work_bytes, SHERD_FP32, rows, 1);
    layout.work.rstd = shd_layout_take(&layout.work_bytes, SHERD_FP32, rows, 1);
    layout.work.operation = layout.work_bytes;
    layout.work_bytes += shd_max(attention_bytes, model->ops->matmul_scratch_bytes(precision, config->threads));
    return layout;
}

static int64_t attention_bytes(const shd_model *model, bool backward) {
    const shd_model_config *config = &model->config;
    return model->ops->attention_scratch_bytes(config->precision, config->micro_batch, config->context, config->n_head,
                                               model->head_size, config->threads, backward);
}

static sherd_status lay_out(shd_model *model) {
    const shd_model_config *config = &model->config;
    int64_t rows = model->rows;
    model->layout = shd_layout_make(model, rows, shd_max(attention_bytes(model, false), attention_bytes(model, true)));
    shd_model_lay_out_carried(model);
    for (int32_t u = 0; u < model->description.unit_count - 1; u++) {
        (void)shd_layout_take(&model->units[u].output_bytes, config->precision, rows, config->d_model);
        if (u == 0) continue;
        model->units[u].activation_bytes = model->layout.kept_bytes;
        model->units[u].remade_bytes = model->layout.remade_bytes;
    }
    model->description.scratch_bytes = model->layout.work_bytes;

    const bool on_device = shd_model_is_on_device(model);
    const int64_t chunk_bytes = on_device ? DEVICE_CHUNK_BYTES : CHUNK_BYTES;
    int64_t fitting = chunk_bytes / ((int64_t)sizeof(float) * config->vocab_size) / MIN_CHUNK_ROWS * MIN_CHUNK_ROWS;
    int64_t chunk_rows = shd_max(MIN_CHUNK_ROWS, fitting);
    model->chunk_rows = shd_min(rows, on_device ? chunk_rows : shd_min(MAX_CHUNK_ROWS, chunk_rows));
    (void)shd_layout_take(&model->description.logits_bytes, SHERD_FP32, model->chunk_rows, config->vocab_size);

    if (!model->family->rotary) return SHERD_OK;
    model->rope_table = shd_alloc((size_t)(config->context * model->head_size), sizeof(float));
    if (!model->rope_table) return shd_fail(SHERD_MEMORY, "no memory for a table of rotary positions");
    shd_op_rope_table(config->context, model->head_size, config->rope_theta, model->rope_table);
    return SHERD_OK;
}

const shd_architecture shd_transformer = {
    .list_tensors = list_tensors,
    .lay_out = lay_out,
    .forward = shd_transformer_forward,
    .backward = shd_transformer_backward,
};
