/* A model's life: from its configuration to the description a session needs, then the two callbacks, one unit at a
 * time. */
#include "runtime/base/memory.h"
#include "runtime/base/status.h"
#include "runtime/model/carrier.h"
#include "runtime/model/units.h"
#include "runtime/ops/ops.h"

#include <assert.h>

static const shd_family *const families[] = {
    [SHD_MODEL_GPT2] = &shd_family_gpt2, [SHD_MODEL_LLAMA] = &shd_family_llama, [SHD_MODEL_MLP] = &shd_family_mlp};

static sherd_status build(shd_model *model, const shd_model_config *config) {
    model->config = *config;
    model->config.frozen = NULL;
    model->config.frozen_count = 0;
    model->family = families[config->family];
    model->ops = config->ops ? config->ops : &shd_ops_cpu;
    SHD_TRY(model->family->architecture->list_tensors(model));
    SHD_TRY(shd_model_freeze(model, config->frozen, config->frozen_count));
    SHD_TRY(model->family->architecture->lay_out(model));
    model->description.size = sizeof model->description;
    model->description.units = model->units;
    model->description.tensors = model->tensors;
    return SHERD_OK;
}

sherd_status shd_model_create(const shd_model_config *config, shd_model **out) {
    SHD_TRY(shd_config_check(config));
    shd_model *model = shd_alloc(1, sizeof *model);
    if (!model) return shd_fail(SHERD_MEMORY, "no memory for a model");
    sherd_status status = build(model, config);
    if (status != SHERD_OK) {
        shd_model_destroy(model);
        return status;
    }
    *out = model;
    return SHERD_OK;
}

void shd_model_destroy(shd_model *model) {
    if (!model) return;
    shd_model_leave(model);
    shd_free(model->rope_table);
    shd_free(model->names);
    shd_free(model->starts);
    shd_free(model->tensors);
    shd_free(model->units);
    shd_free(model);
}

const sherd_model *shd_model_describe(const shd_model *model) { return &model->description; }

void shd_model_bind(shd_model *model, shd_pool *pool, const shd_batch *batch) {
    assert(shd_pool_threads(pool) <= model->config.threads);
    /* Before its first product; who only plans with a model, or computes on a device, needs no kernels. */
    if (!model->pool && !model->carrier) shd_ops_init();
    model->pool = pool;
    model->bound = *batch;
}

shd_parameter shd_pass_tensor(const shd_pass *pass, int32_t tensor) {
    return (shd_parameter){
        .value = pass->view->parameters[tensor],
        .gradient = pass->view->gradients ? pass->view->gradients[tensor] : NULL,
    };
}

shd_parameter shd_pass_parameter(const shd_pass *pass, int32_t slot) {
    return shd_pass_tensor(pass, pass->model->units[pass->view->unit].first_tensor + slot);
}

const void *shd_pass_input(const shd_pass *pass) { return pass->view->outputs[pass->view->unit - 1]; }

void shd_pass_open(shd_pass *pass) {
    char *scratch = pass->view->scratch;
    const shd_layout *layout = pass->layout;
    pass->rows = pass->sequences * pass->length;
    pass->flow = scratch + layout->work.flow;
    pass->normed = scratch + layout->work.normed;
    pass->wide = scratch + layout->work.wide;
    pass->mean = (float *)(scratch + layout->work.mean);
    pass->rstd = (float *)(scratch + layout->work.rstd);
    pass->math.scratch = scratch + layout->work.operation;
}

void shd_transformer_forward(const shd_pass *pass) {
    if (pass->view->unit == 0)
        shd_embedding_forward(pass);
    else if (pass->view->unit == pass->model->description.unit_count - 1)
        shd_head_forward(pass);
    else
        shd_block_forward(pass);
}

void shd_transformer_backward(const shd_pass *pass) {
    if (pass->view->unit == 0)
        shd_embedding_backward(pass);
    else if (pass->view->unit == pass->model->description.unit_count - 1)
        shd_head_backward(pass);
    else
        shd_block_backward(pass);
}

bool shd_model_is_on_device(const shd_model *model) { return model->ops != &shd_ops_cpu; }

void shd_model_lay_out_carried(shd_model *model) {
    if (shd_model_is_on_device(model))
        shd_carrier_lay_out(&model->config, &model->layout.carried, &model->layout.work_bytes);
}

sherd_status shd_model_move(shd_model *model, const shd_model_place *place) {
    assert(shd_model_is_on_device(model) && !model->carrier);
    model->place = *place;
    return shd_carrier_create(model, &model->carrier);
}

void shd_model_leave(shd_model *model) {
    shd_carrier_destroy(model->carrier);
    model->carrier = NULL;
}

bool shd_model_late_losses(const shd_model *model, const double **losses, const double **correct) {
    if (!model->carrier) return false;
    shd_carrier_last(model->carrier, losses, correct);
    return true;
}

/* The pass over the bound micro-batch. */
static sherd_status open_pass(const shd_model *model, const sherd_view *view, shd_pass *pass) {
    if (!model->pool) return shd_fail(SHERD_STATE, "the model has no micro-batch: shd_model_bind comes first");
    if (shd_model_is_on_device(model) && !model->carrier)
        return shd_fail(SHERD_STATE, "the model is not on its device yet: shd_model_move comes first");
    *pass = (shd_pass){
        .model = model,
        .view = view,
        .math = {.ops = model->ops,
                 .pool = model->pool,
                 .device_ops = model->place.device_ops,
                 .stream = model->place.stream,
                 .dtype = model->config.precision},
        .layout = &model->layout,
        .rope_table = model->rope_table,
        .sequences = model->config.micro_batch,
        .length = model->config.context,
        .batch = model->bound,
    };
    shd_pass_open(pass);
    return SHERD_OK;
}

/* On a device losses are sent back when the head has computed them, and what has failed till then is told. */
static sherd_status close_pass(const shd_pass *pass, bool has_losses) {
    const shd_model *model = pass->model;
    if (!model->carrier) return SHERD_OK;
    if (has_losses && pass->view->unit == model->description.unit_count - 1) shd_carrier_unload(model->carrier, pass);
    return model->place.device_ops->status(model->place.device);
}

sherd_status shd_model_forward(void *user, const sherd_view *view) {
    shd_pass pass;
    SHD_TRY(open_pass(user, view, &pass));
    shd_carrier *carrier = pass.model->carrier;
    if (carrier && view->unit == 0 && !view->again) SHD_TRY(shd_carrier_load(carrier, &pass));
    if (carrier) shd_carrier_point(carrier, &pass);
    pass.model->family->architecture->forward(&pass);
    return close_pass(&pass, !view->training);
}

sherd_status shd_model_backward(void *user, const sherd_view *view) {
    const shd_model *model = user;
    shd_pass pass;
    if (view->unit < model->first_trained_unit) return SHERD_OK;
    SHD_TRY(open_pass(model, view, &pass));
    if (model->carrier) shd_carrier_point(model->carrier, &pass);
    model->family->architecture->backward(&pass);
    return close_pass(&pass, true);
}

shd_model_work shd_model_work_get(void) {
    shd_matmul_stats stats;
    shd_matmul_stats_get(&stats);
    return (shd_model_work){.ms = stats.ms, .flop = stats.flop};
}

void shd_model_work_reset(void) { shd_matmul_stats_reset(); }

void shd_model_kernels(char *text, size_t bytes) { shd_ops_kernels(text, bytes); }
void shd_model_library(char *text, size_t bytes) { shd_ops_library(text, bytes); }

sherd_status shd_model_measure(shd_model_speed *out) {
    shd_model_speed speed;
    shd_ops_init_quietly();
    SHD_TRY(shd_ops_measure(SHERD_FP32, &speed.fp32_gflops));
    SHD_TRY(shd_ops_measure(SHERD_BF16, &speed.bf16_gflops));
    *out = speed;
    return SHERD_OK;
}
