#include "runtime/train/generate.h"

#include "io/checkpoint.h"
#include "io/parameter_reader.h"
#include "runtime/base/memory.h"
#include "runtime/base/random.h"
#include "runtime/base/status.h"
#include "runtime/model/model.h"
#include "runtime/session/setup.h"
#include "runtime/train/note.h"

#include <math.h>
#include <sherd/session.h>
#include <string.h>

enum { BYTES = 256 };

typedef struct text_generator {
    const shd_generate *request;
    char *path;
    shd_checkpoint *checkpoint;
    shd_parameter_reader *reader;
    shd_model_config config;
    shd_model *model;
    shd_pool *pool; /* the session's */
    sherd_session *session;
    int32_t *tokens; /* all so far; room for the prompt and what is generated */
    int64_t token_count;
    int32_t *inputs, *targets; /* [context] */
    double *losses;            /* [context]; not used, the model wants a place */
    float *logits;             /* [vocab_size] */
} text_generator;

/* A sherd_fill_fn: from whichever rank files hold the elements. */
static sherd_status fill(void *user, int32_t tensor, int64_t first, int64_t count, float *values) {
    const text_generator *generator = user;
    const char *name = shd_model_describe(generator->model)->tensors[tensor].name;
    return shd_parameter_reader_read(generator->reader, name, first, count, values);
}

static sherd_status open_checkpoint(text_generator *generator) {
    const char *given = generator->request->checkpoint;
    SHD_TRY(shd_checkpoint_find(given, &generator->path));
    if (!generator->path) return shd_fail(SHERD_DATA, "%s: there is no complete checkpoint", given);
    SHD_TRY(shd_checkpoint_open(generator->path, &generator->checkpoint));
    SHD_TRY(shd_parameter_reader_create(generator->checkpoint, &generator->reader));
    const char *note = shd_checkpoint_content(generator->checkpoint)->note;
    sherd_status status = shd_note_model(note, &generator->config);
    if (status != SHERD_OK) return shd_fail_within(status, "%s", generator->path);
    if (generator->config.vocab_size != BYTES && generator->config.vocab_size != BYTES + 1)
        return shd_fail(
            SHERD_DATA,
            "%s: the model has %lld tokens, not the %d bytes (and one more for the end of a text): what they "
            "spell is known to its tokenizer alone",
            generator->path, (long long)generator->config.vocab_size, BYTES);
    return SHERD_OK;
}

static sherd_status open_session(text_generator *generator) {
    generator->config.micro_batch = 1;
    generator->config.threads = generator->request->threads;
    SHD_TRY(shd_model_create(&generator->config, &generator->model));
    sherd_options options = SHERD_OPTIONS_INIT;
    options.eval_micro_steps = 1;
    options.threads = generator->request->threads;
    SHD_TRY(sherd_session_create(&options, shd_model_describe(generator->model), &generator->session));
    generator->pool = shd_session_pool(generator->session);
    SHD_TRY(sherd_session_fill(generator->session, fill, generator));

    size_t context = (size_t)generator->config.context;
    size_t longest = generator->request->prompt_bytes + (size_t)generator->request->token_count + 1;
    generator->tokens = shd_alloc(longest, sizeof *generator->tokens);
    generator->inputs = shd_alloc(context, sizeof *generator->inputs);
    generator->targets = shd_alloc(context, sizeof *generator->targets);
    generator->losses = shd_alloc(context, sizeof *generator->losses);
    generator->logits = shd_alloc((size_t)generator->config.vocab_size, sizeof *generator->logits);
    if (!generator->tokens || !generator->inputs || !generator->targets || !generator->losses || !generator->logits)
        return shd_fail(SHERD_MEMORY, "no memory for %zu tokens", longest);
    return SHERD_OK;
}

static void close_generator(text_generator *generator) {
    sherd_session_destroy(generator->session);
    shd_model_destroy(generator->model);
    shd_parameter_reader_destroy(generator->reader);
    shd_checkpoint_close(generator->checkpoint);
    shd_free(generator->path);
    shd_free(generator->tokens);
    shd_free(generator->inputs);
    shd_free(generator->targets);
    shd_free(generator->losses);
    shd_free(generator->logits);
}

/* The logits after the last token: one evaluation over the last tokens that fit the context, what follows them does not
 * matter since attention looks back only. */
static sherd_status predict(text_generator *generator) {
    int64_t context = generator->config.context, count = generator->token_count;
    int64_t used = count < context ? count : context;
    memset(generator->inputs, 0, (size_t)context * sizeof *generator->inputs);
    memcpy(generator->inputs, generator->tokens + count - used, (size_t)used * sizeof *generator->inputs);
    for (int64_t i = 0; i < context; i++) generator->targets[i] = -1;
    const shd_batch batch = {.inputs = generator->inputs, .targets = generator->targets, .losses = generator->losses};
    shd_model_bind(generator->model, generator->pool, &batch);
    shd_model_want_logits(generator->model, used - 1, generator->logits);
    SHD_TRY(sherd_evaluate_begin(generator->session));
    int32_t unit_count = shd_model_describe(generator->model)->unit_count;
    for (int32_t unit = 0; unit < unit_count; unit++) {
        sherd_view view;
        SHD_TRY(sherd_forward_begin(generator->session, unit, &view));
        SHD_TRY(shd_model_forward(generator->model, &view));
        SHD_TRY(sherd_forward_end(generator->session, unit));
    }
    sherd_evaluation ignored;
    return sherd_evaluate_end(generator->session, 0, &ignored);
}

/* Draws token number `position`: by inversion, with one uniform number that seed and position decide. */
static int32_t draw(const text_generator *generator, int64_t position) {
    const float *logits = generator->logits;
    int32_t count = (int32_t)generator->config.vocab_size, best = 0;
    for (int32_t i = 1; i < count; i++)
        if (logits[i] > logits[best]) best = i;
    double temperature = generator->request->temperature;
    if (temperature == 0) return best;
    double total = 0, highest = (double)logits[best];
    for (int32_t i = 0; i < count; i++) total += exp(((double)logits[i] - highest) / temperature);
    uint32_t words[4];
    shd_philox(shd_random_key(generator->request->seed, "sample"), (uint64_t)position, 0, words);
    double left = ((double)words[0] + 0.5) * 0x1p-32 * total;
    for (int32_t i = 0; i < count; i++) {
        left -= exp(((double)logits[i] - highest) / temperature);
        if (left < 0) return i;
    }
    return best;
}

static sherd_status generate(text_generator *generator, shd_generate_sink sink, void *user) {
    const shd_generate *request = generator->request;
    for (size_t i = 0; i < request->prompt_bytes; i++) generator->tokens[i] = (unsigned char)request->prompt[i];
    generator->token_count = (int64_t)request->prompt_bytes;
    if (generator->token_count == 0) generator->tokens[generator->token_count++] = '\n';
    for (int64_t i = 0; i < request->token_count; i++) {
        SHD_TRY(predict(generator));
        int32_t token = draw(generator, i);
        if (token >= BYTES) break;
        sink(user, (unsigned char)token);
        generator->tokens[generator->token_count++] = token;
    }
    return SHERD_OK;
}

sherd_status shd_generate_run(const shd_generate *request, shd_generate_sink sink, void *user) {
    text_generator generator = {.request = request};
    sherd_status status = open_checkpoint(&generator);
    if (status == SHERD_OK) status = open_session(&generator);
    if (status == SHERD_OK) status = generate(&generator, sink, user);
    close_generator(&generator);
    return status;
}
