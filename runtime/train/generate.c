#include "runtime/train/generate.h"

#include "io/checkpoint_manifest.h"
#include "io/checkpoint_pick.h"
#include "io/parameter_reader.h"
#include "io/tokens.h"
#include "runtime/base/arith.h"
#include "runtime/base/memory.h"
#include "runtime/base/status.h"
#include "runtime/model/decoder.h"
#include "runtime/train/note.h"
#include "runtime/train/window.h"

#include <string.h>

enum { ALIGNMENT_BYTES = 64 };

typedef struct generator {
    const shd_generate *request;
    const shd_generate_sink *sink;
    const char *path; /* of the checkpoint */
    shd_checkpoint *checkpoint;
    shd_model_config config;
    shd_model *model;
    shd_decoder *decoder;
    char *memory; /* of all parameters */
    int64_t memory_bytes;
    const void **parameters; /* by tensor, in `memory` */
    int32_t *tokens;         /* the prompt, then what is generated */
    int64_t prompt_count;
    shd_window window, after_prompt; /* of the text; as it was when the prompt had been run */
    float *logits, *prompt_logits;   /* [vocab_size]: of the next token; of the first one after the prompt */
    int32_t *candidates;             /* [vocab_size] */
    int64_t end_token;
} generator;

static sherd_status open_checkpoint(generator *g) {
    SHD_TRY(shd_checkpoint_pick(g->request->checkpoint, &g->checkpoint));
    g->path = shd_checkpoint_path(g->checkpoint);
    sherd_status status = shd_note_model(shd_checkpoint_content(g->checkpoint)->note, &g->config);
    if (status == SHERD_OK && g->config.family == SHD_MODEL_MLP)
        status = shd_fail(SHERD_DATA, "an mlp: it has no tokens to write texts with");
    if (status != SHERD_OK) return shd_fail_within(status, "%s", g->path);
    g->config.precision = SHERD_FP32; /* as the checkpoint has them, whatever the run computed in */
    g->config.micro_batch = 1;
    g->config.threads = g->request->threads;
    return SHERD_OK;
}

/* What is asked for against what the checkpoint is. */
static sherd_status check_request(generator *g) {
    const shd_generate *request = g->request;
    const int64_t vocab_size = g->config.vocab_size;
    const bool bytes = shd_vocabulary_is_bytes(vocab_size);
    if (request->bytes && !bytes)
        return shd_fail(SHERD_DATA,
                        "%s: the model has %lld tokens, not the %d bytes (and one more for the end of a text): what "
                        "they spell is known to its tokenizer alone; give and take token ids",
                        g->path, (long long)vocab_size, SHD_BYTE_TOKENS);
    if (request->prompt_count == 0 && !bytes)
        return shd_fail(SHERD_CONFIG, "%s: the model's tokens are no bytes; give it a token id to begin with", g->path);
    for (int64_t i = 0; i < request->prompt_count; i++)
        if (request->prompt[i] < 0 || request->prompt[i] >= vocab_size)
            return shd_fail(SHERD_CONFIG, "token %d of the prompt is not one of the model's, 0 to %lld",
                            request->prompt[i], (long long)vocab_size - 1);
    if (request->end_token >= vocab_size)
        return shd_fail(SHERD_CONFIG, "token %lld, which is to end a text, is not one of the model's, 0 to %lld",
                        (long long)request->end_token, (long long)vocab_size - 1);
    g->end_token = request->end_token;
    if (g->end_token < 0 && vocab_size == SHD_BYTE_TOKENS + 1) g->end_token = SHD_BYTE_TOKENS;
    return SHERD_OK;
}

/* Bytes that a tensor takes in the generator's memory. */
static int64_t tensor_bytes(const sherd_tensor *tensor) {
    return shd_round_up(shd_element_count(tensor) * (int64_t)sizeof(float), ALIGNMENT_BYTES);
}

static sherd_status read_parameters(generator *g, const shd_parameter_reader *reader) {
    const sherd_model *model = shd_model_describe(g->model);
    char *at = g->memory;
    for (int32_t t = 0; t < model->tensor_count; t++) {
        const sherd_tensor *tensor = &model->tensors[t];
        SHD_TRY(shd_parameter_reader_read(reader, tensor->name, 0, shd_element_count(tensor), (float *)at));
        g->parameters[t] = at;
        at += tensor_bytes(tensor);
    }
    return SHERD_OK;
}

static sherd_status load_parameters(generator *g) {
    const sherd_model *model = shd_model_describe(g->model);
    for (int32_t t = 0; t < model->tensor_count; t++) g->memory_bytes += tensor_bytes(&model->tensors[t]);
    g->memory = shd_map(g->memory_bytes);
    g->parameters = shd_alloc((size_t)model->tensor_count, sizeof *g->parameters);
    if (!g->memory || !g->parameters)
        return shd_fail(SHERD_MEMORY, "no memory for parameters of %lld bytes", (long long)g->memory_bytes);
    shd_parameter_reader *reader;
    SHD_TRY(shd_parameter_reader_create(g->checkpoint, &reader));
    sherd_status status = read_parameters(g, reader);
    shd_parameter_reader_destroy(reader);
    return status;
}

static sherd_status take_prompt(generator *g) {
    const shd_generate *request = g->request;
    const size_t vocab_size = (size_t)g->config.vocab_size;
    g->prompt_count = shd_max(request->prompt_count, 1);
    g->tokens = shd_alloc((size_t)(g->prompt_count + request->token_count), sizeof *g->tokens);
    g->logits = shd_alloc(vocab_size, sizeof *g->logits);
    g->prompt_logits = shd_alloc(vocab_size, sizeof *g->prompt_logits);
    g->candidates = shd_alloc(vocab_size, sizeof *g->candidates);
    if (!g->tokens || !g->logits || !g->prompt_logits || !g->candidates)
        return shd_fail(SHERD_MEMORY, "no memory for %lld tokens", (long long)(g->prompt_count + request->token_count));
    g->tokens[0] = '\n';
    if (request->prompt_count > 0)
        memcpy(g->tokens, request->prompt, (size_t)request->prompt_count * sizeof *g->tokens);
    return SHERD_OK;
}

/* Runs what is not known of the text; afterwards `logits` are those of its next token. */
static sherd_status predict(generator *g) {
    const int32_t unit_count = shd_model_describe(g->model)->unit_count;
    if (g->request->recompute) g->window.known = 0;
    for (bool whole = false; !whole;) {
        const shd_window_run run = shd_window_next(&g->window);
        shd_decoder_begin(g->decoder, run.past, g->tokens + run.first, run.count);
        for (int32_t unit = 0; unit < unit_count; unit++) {
            const sherd_view view = {.unit = unit, .parameters = g->parameters};
            SHD_TRY(shd_decoder_forward(g->decoder, &view));
        }
        whole = shd_window_add(&g->window, &run);
    }
    memcpy(g->logits, shd_decoder_logits(g->decoder), (size_t)g->config.vocab_size * sizeof *g->logits);
    return SHERD_OK;
}

/* The text is the prompt alone again. What was kept of it is still there unless the window has moved on. */
static sherd_status begin_sample(generator *g) {
    const size_t logits_bytes = (size_t)g->config.vocab_size * sizeof *g->logits;
    if (g->after_prompt.known == 0 || g->window.start != g->after_prompt.start) {
        g->window = (shd_window){
            .context = g->config.context, .longest_run = shd_decoder_longest_run(g->model), .count = g->prompt_count};
        SHD_TRY(predict(g));
        memcpy(g->prompt_logits, g->logits, logits_bytes);
        g->after_prompt = g->window;
        return SHERD_OK;
    }
    g->window = g->after_prompt;
    memcpy(g->logits, g->prompt_logits, logits_bytes);
    return SHERD_OK;
}

static sherd_status generate(generator *g, int64_t sample) {
    const shd_generate *request = g->request;
    SHD_TRY(begin_sample(g));
    g->sink->begin(g->sink->user, sample);
    for (int64_t i = 0; i < request->token_count; i++) {
        if (i > 0) SHD_TRY(predict(g));
        int32_t token;
        SHD_TRY(
            shd_draw_token(&request->draw, sample, i, g->logits, (int32_t)g->config.vocab_size, g->candidates, &token));
        if (token == g->end_token) break;
        g->sink->token(g->sink->user, token);
        g->tokens[g->window.count++] = token;
    }
    g->sink->end(g->sink->user, sample);
    return SHERD_OK;
}

static sherd_status run(generator *g) {
    SHD_TRY(open_checkpoint(g));
    SHD_TRY(check_request(g));
    SHD_TRY(shd_model_create(&g->config, &g->model));
    SHD_TRY(load_parameters(g));
    SHD_TRY(shd_decoder_create(g->model, NULL, &g->decoder));
    SHD_TRY(take_prompt(g));
    for (int64_t sample = 0; sample < g->request->sample_count; sample++) SHD_TRY(generate(g, sample));
    return SHERD_OK;
}

static void fini(generator *g) {
    shd_decoder_destroy(g->decoder);
    shd_model_destroy(g->model);
    shd_checkpoint_close(g->checkpoint);
    shd_unmap(g->memory, g->memory_bytes);
    shd_free(g->parameters);
    shd_free(g->tokens);
    shd_free(g->logits);
    shd_free(g->prompt_logits);
    shd_free(g->candidates);
}

sherd_status shd_generate_run(const shd_generate *request, const shd_generate_sink *sink) {
    generator g = {.request = request, .sink = sink};
    sherd_status status = run(&g);
    fini(&g);
    return status;
}
