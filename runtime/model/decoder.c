/* One block of memory: the caches of all blocks, then what one run needs, as units.h lays it out. */
#include "runtime/model/decoder.h"

#include "runtime/base/arith.h"
#include "runtime/base/dtype.h"
#include "runtime/base/memory.h"
#include "runtime/base/status.h"
#include "runtime/model/units.h"
#include "runtime/ops/ops.h"

#include <assert.h>

/* Long enough that a prompt's products are not thin. */
enum { LONGEST_RUN = 64, ALIGNMENT_BYTES = 64 };

struct shd_decoder {
    const shd_model *model;
    shd_pool *pool, *own_pool; /* own_pool: NULL when it was lent */
    shd_layout layout;         /* of a longest run */
    char *memory;
    int64_t memory_bytes;
    int64_t cache_bytes;                     /* of one block */
    void **outputs, **activations, **remade; /* by unit, as a view has them: all one memory */
    char *scratch;
    float *logits;
    const int32_t *tokens; /* of the run */
    int64_t past, count, length;
    bool ready; /* the process can run products */
};

/* Offsets in the decoder's memory, in its order. */
typedef struct decoder_areas {
    int64_t cache_bytes; /* the caches lie one after the other, from 0 on */
    int64_t output, kept, remade, scratch, logits, bytes;
} decoder_areas;

int64_t shd_decoder_longest_run(const shd_model *model) { return shd_min(LONGEST_RUN, model->config.context); }

static shd_layout run_layout(const shd_model *model) {
    const shd_model_config *config = &model->config;
    return shd_layout_make(
        model, shd_decoder_longest_run(model),
        shd_op_attention_scratch_bytes(config->precision, config->context, model->head_size, config->threads));
}

static decoder_areas find_areas(const shd_model *model) {
    const shd_layout layout = run_layout(model);
    const int64_t element_bytes = shd_dtype_bytes(model->config.precision);
    const int64_t pair_bytes = 2 * model->lengths[SHD_LENGTH_KEYS] * element_bytes;
    decoder_areas areas;
    areas.cache_bytes = shd_round_up(model->config.context * pair_bytes, ALIGNMENT_BYTES);
    areas.output = model->config.n_layer * areas.cache_bytes;
    areas.kept = areas.output +
                 shd_round_up(shd_decoder_longest_run(model) * model->config.d_model * element_bytes, ALIGNMENT_BYTES);
    areas.remade = areas.kept + layout.kept_bytes;
    areas.scratch = areas.remade + layout.remade_bytes;
    areas.logits = areas.scratch + shd_round_up(layout.work_bytes, ALIGNMENT_BYTES);
    areas.bytes = areas.logits + model->config.vocab_size * (int64_t)sizeof(float);
    return areas;
}

int64_t shd_decoder_bytes(const shd_model *model) { return find_areas(model).bytes; }

static sherd_status init(shd_decoder *decoder) {
    const shd_model *model = decoder->model;
    const decoder_areas areas = find_areas(model);
    if (!decoder->pool) {
        SHD_TRY(shd_pool_create(model->config.threads, &decoder->own_pool));
        decoder->pool = decoder->own_pool;
    }
    decoder->layout = run_layout(model);
    decoder->cache_bytes = areas.cache_bytes;
    decoder->memory_bytes = areas.bytes;
    decoder->memory = shd_map(areas.bytes);
    const size_t unit_count = (size_t)model->description.unit_count;
    decoder->outputs = shd_alloc(unit_count, sizeof *decoder->outputs);
    decoder->activations = shd_alloc(unit_count, sizeof *decoder->activations);
    decoder->remade = shd_alloc(unit_count, sizeof *decoder->remade);
    if (!decoder->memory || !decoder->outputs || !decoder->activations || !decoder->remade)
        return shd_fail(SHERD_MEMORY, "no memory for the keys and values of %lld tokens: %lld bytes",
                        (long long)model->config.context, (long long)areas.bytes);
    for (size_t u = 0; u < unit_count; u++) {
        decoder->outputs[u] = decoder->memory + areas.output;
        decoder->activations[u] = decoder->memory + areas.kept;
        decoder->remade[u] = decoder->memory + areas.remade;
    }
    decoder->scratch = decoder->memory + areas.scratch;
    decoder->logits = (float *)(decoder->memory + areas.logits);
    return SHERD_OK;
}

sherd_status shd_decoder_create(const shd_model *model, shd_pool *pool, shd_decoder **out) {
    assert(!pool || shd_pool_threads(pool) <= model->config.threads);
    shd_decoder *decoder = shd_alloc(1, sizeof *decoder);
    if (!decoder) return shd_fail(SHERD_MEMORY, "no memory for a decoder");
    decoder->model = model;
    decoder->pool = pool;
    sherd_status status = init(decoder);
    if (status != SHERD_OK) {
        shd_decoder_destroy(decoder);
        return status;
    }
    *out = decoder;
    return SHERD_OK;
}

void shd_decoder_destroy(shd_decoder *decoder) {
    if (!decoder) return;
    shd_pool_destroy(decoder->own_pool);
    shd_unmap(decoder->memory, decoder->memory_bytes);
    shd_free(decoder->outputs);
    shd_free(decoder->activations);
    shd_free(decoder->remade);
    shd_free(decoder);
}

void shd_decoder_begin(shd_decoder *decoder, int64_t past, const int32_t *tokens, int64_t count) {
    assert(past >= 0 && past <= decoder->length && past + count <= decoder->model->config.context);
    assert(count > 0 && count <= shd_decoder_longest_run(decoder->model));
    if (!decoder->ready && !decoder->model->pool) shd_ops_init(); /* who bound the model has done it */
    decoder->ready = true;
    decoder->tokens = tokens;
    decoder->past = past;
    decoder->count = count;
    decoder->length = past; /* until the head is through */
}

sherd_status shd_decoder_forward(shd_decoder *decoder, const sherd_view *view) {
    const shd_model *model = decoder->model;
    const int32_t head = model->description.unit_count - 1;
    const bool block = view->unit > 0 && view->unit < head;
    const sherd_view own = {.unit = view->unit,
                            .parameters = view->parameters,
                            .outputs = decoder->outputs,
                            .activations = decoder->activations,
                            .remade = decoder->remade,
                            .scratch = decoder->scratch};
    shd_pass pass = {
        .model = model,
        .view = &own,
        .rope_table = model->rope_table,
        .math = {.ops = &shd_ops_cpu, .pool = decoder->pool, .dtype = model->config.precision},
        .layout = &decoder->layout,
        .sequences = 1,
        .length = decoder->count,
        .batch = {.inputs = decoder->tokens},
        .past = decoder->past,
        .cache = block ? decoder->memory + (view->unit - 1) * decoder->cache_bytes : NULL,
        .logits_wanted = decoder->logits,
    };
    shd_pass_open(&pass);
    shd_transformer_forward(&pass);
    if (view->unit == head) decoder->length = decoder->past + decoder->count;
    return SHERD_OK;
}

const float *shd_decoder_logits(const shd_decoder *decoder) { return decoder->logits; }
