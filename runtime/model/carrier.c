#include "runtime/model/carrier.h"

#include "runtime/base/arith.h"
#include "runtime/base/memory.h"
#include "runtime/base/status.h"

#include <string.h>

typedef struct load {
    char *memory;     /* [layout.there_bytes], pinned */
    shd_event *event; /* what was copied from it last has arrived */
} load;

struct shd_carrier {
    const shd_model *model;
    shd_model_place place;
    const shd_carrier_layout *layout;
    char *pinned;
    load loads[SHD_CARRIER_LOADS];
    char *unloads[SHD_CARRIER_UNLOADS]; /* [layout.back_bytes] each */
    float *rope_table;                  /* pinned; NULL: there is none */
    bool tables_sent;
    int64_t load_count, unload_count;
};

/* --- layout ------------------------------------------------------------------------------------------------------- */

static int64_t take(int64_t *end, int64_t count, size_t size) {
    int64_t begin = *end;
    *end = shd_round_up(begin + count * (int64_t)size, 64);
    return begin;
}

/* Of tokens a row is a token, of samples a sample. */
void shd_carrier_lay_out(const shd_model_config *config, shd_carrier_layout *layout, int64_t *end) {
    bool samples = config->family == SHD_MODEL_MLP, classes = config->loss == SHD_MODEL_CROSS_ENTROPY;
    int64_t rows = config->micro_batch * (samples ? 1 : config->context);
    int64_t tokens = samples ? 0 : rows;
    layout->loss_count = samples && !classes ? rows * config->outputs : rows;
    layout->correct_count = samples && classes ? rows : 0;
    layout->first = *end;
    layout->inputs = take(end, tokens, sizeof(int32_t));
    layout->starts = take(end, tokens, sizeof(int32_t));
    layout->targets = take(end, samples && !classes ? 0 : rows, sizeof(int32_t));
    layout->features = take(end, samples ? rows * config->inputs : 0, sizeof(float));
    layout->values = take(end, samples && !classes ? rows * config->outputs : 0, sizeof(float));
    layout->there_bytes = *end - layout->first;
    layout->losses = take(end, layout->loss_count, sizeof(double));
    layout->correct = take(end, layout->correct_count, sizeof(double));
    layout->back_bytes = *end - layout->losses;
    layout->rope_table = take(
        end, config->family == SHD_MODEL_LLAMA ? config->context * config->d_model / config->n_head : 0, sizeof(float));
    layout->rope_bytes = *end - layout->rope_table;
}

/* --- life --------------------------------------------------------------------------------------------------------- */

static sherd_status init(shd_carrier *carrier) {
    const shd_carrier_layout *layout = carrier->layout;
    const shd_model_place *place = &carrier->place;
    int64_t bytes =
        SHD_CARRIER_LOADS * layout->there_bytes + SHD_CARRIER_UNLOADS * layout->back_bytes + layout->rope_bytes;
    void *pinned;
    SHD_TRY(place->device_ops->allocate_pinned(place->device, bytes, &pinned));
    char *at = carrier->pinned = pinned;
    for (int i = 0; i < SHD_CARRIER_LOADS; i++, at += layout->there_bytes) {
        carrier->loads[i].memory = at;
        SHD_TRY(place->device_ops->create_event(place->device, &carrier->loads[i].event));
    }
    for (int i = 0; i < SHD_CARRIER_UNLOADS; i++, at += layout->back_bytes) carrier->unloads[i] = at;
    if (!carrier->model->rope_table) return SHERD_OK;
    carrier->rope_table = (float *)(void *)at;
    memcpy(at, carrier->model->rope_table,
           (size_t)(carrier->model->config.context * carrier->model->head_size) * sizeof(float));
    return SHERD_OK;
}

sherd_status shd_carrier_create(const shd_model *model, shd_carrier **out) {
    shd_carrier *carrier = shd_alloc(1, sizeof *carrier);
    if (!carrier) return shd_fail(SHERD_MEMORY, "no memory for what goes to and from a device");
    carrier->model = model;
    carrier->place = model->place;
    carrier->layout = &model->layout.carried;
    sherd_status status = init(carrier);
    if (status == SHERD_OK)
        *out = carrier;
    else
        shd_carrier_destroy(carrier);
    return status;
}

void shd_carrier_destroy(shd_carrier *carrier) {
    if (!carrier) return;
    const shd_model_place *place = &carrier->place;
    for (int i = 0; i < SHD_CARRIER_LOADS; i++)
        if (carrier->loads[i].event) place->device_ops->destroy_event(carrier->loads[i].event);
    if (carrier->pinned) place->device_ops->release_pinned(place->device, carrier->pinned);
    shd_free(carrier);
}

/* --- there -------------------------------------------------------------------------------------------------------- */

/* Arrays of the batch, where they are carried; what is not there stays behind. */
static void pack(char *memory, const shd_carrier_layout *layout, int64_t at, const void *array, int64_t end) {
    if (array) memcpy(memory + (at - layout->first), array, (size_t)(end - at));
}

sherd_status shd_carrier_load(shd_carrier *carrier, const shd_pass *pass) {
    const shd_carrier_layout *layout = carrier->layout;
    const shd_model_place *place = &carrier->place;
    const shd_model_config *config = &carrier->model->config;
    const shd_batch *batch = &pass->batch;
    load *next = &carrier->loads[carrier->load_count++ % SHD_CARRIER_LOADS];
    if (!place->device_ops->reached(next->event)) SHD_TRY(place->wait(place->user, next->event));
    bool samples = config->family == SHD_MODEL_MLP;
    int64_t rows = config->micro_batch * (samples ? 1 : config->context);
    pack(next->memory, layout, layout->inputs, batch->inputs, layout->inputs + rows * (int64_t)sizeof(int32_t));
    pack(next->memory, layout, layout->starts, batch->document_starts,
         layout->starts + rows * (int64_t)sizeof(int32_t));
    pack(next->memory, layout, layout->targets, batch->targets, layout->targets + rows * (int64_t)sizeof(int32_t));
    pack(next->memory, layout, layout->features, batch->features,
         layout->features + rows * config->inputs * (int64_t)sizeof(float));
    pack(next->memory, layout, layout->values, batch->values,
         layout->values + rows * config->outputs * (int64_t)sizeof(float));
    char *scratch = pass->view->scratch;
    place->device_ops->copy(place->stream, scratch + layout->first, next->memory, layout->there_bytes);
    place->device_ops->record(place->stream, next->event);
    if (carrier->rope_table && !carrier->tables_sent)
        place->device_ops->copy(place->stream, scratch + layout->rope_table, carrier->rope_table, layout->rope_bytes);
    carrier->tables_sent = true;
    return SHERD_OK;
}

void shd_carrier_point(const shd_carrier *carrier, shd_pass *pass) {
    const shd_carrier_layout *layout = carrier->layout;
    char *scratch = pass->view->scratch;
    shd_batch *batch = &pass->batch;
    if (batch->inputs) batch->inputs = (const int32_t *)(void *)(scratch + layout->inputs);
    if (batch->document_starts) batch->document_starts = (const int32_t *)(void *)(scratch + layout->starts);
    if (batch->targets) batch->targets = (const int32_t *)(void *)(scratch + layout->targets);
    if (batch->features) batch->features = (const float *)(void *)(scratch + layout->features);
    if (batch->values) batch->values = (const float *)(void *)(scratch + layout->values);
    batch->losses = (double *)(void *)(scratch + layout->losses);
    batch->correct = layout->correct_count > 0 ? (double *)(void *)(scratch + layout->correct) : NULL;
    pass->rope_table = carrier->rope_table ? (const float *)(void *)(scratch + layout->rope_table) : NULL;
}

/* --- back --------------------------------------------------------------------------------------------------------- */

void shd_carrier_unload(shd_carrier *carrier, const shd_pass *pass) {
    const shd_model_place *place = &carrier->place;
    char *to = carrier->unloads[carrier->unload_count++ % SHD_CARRIER_UNLOADS];
    place->device_ops->copy(place->stream, to, (char *)pass->view->scratch + carrier->layout->losses,
                            carrier->layout->back_bytes);
}

void shd_carrier_last(const shd_carrier *carrier, const double **losses, const double **correct) {
    const shd_carrier_layout *layout = carrier->layout;
    const char *last = carrier->unloads[(carrier->unload_count + SHD_CARRIER_UNLOADS - 1) % SHD_CARRIER_UNLOADS];
    *losses = (const double *)(const void *)last;
    *correct =
        layout->correct_count > 0 ? (const double *)(const void *)(last + (layout->correct - layout->losses)) : NULL;
}
