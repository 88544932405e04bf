#include "runtime/train/sample.h"

#include "io/tokens.h"
#include "runtime/base/log.h"
#include "runtime/base/memory.h"
#include "runtime/base/status.h"
#include "runtime/model/decoder.h"
#include "runtime/train/characters.h"
#include "runtime/train/draw.h"
#include "runtime/train/job_setup.h"
#include "runtime/train/window.h"

#include <stdio.h>

/* A line of the log; longer lines of a text are broken. */
enum { LINE_BYTES = 400 };

/* As `sherd sample` draws by default. */
static const double temperature = 0.8;

struct shd_sample {
    shd_draw draw;
    int64_t wanted; /* train.sample_tokens */
    int32_t vocab_size, unit_count, micro_steps;
    shd_window empty;     /* of a text with its first newline alone */
    shd_decoder *decoder; /* rank 0 */
    int32_t *tokens;      /* [1 + wanted], a newline first */
    int32_t *candidates;  /* [vocab_size] */
};

sherd_status shd_sample_bytes(const shd_job *job, int64_t *out) {
    *out = 0;
    if (job->train.sample_tokens == 0) return SHERD_OK;
    shd_model *model;
    SHD_TRY(shd_job_model(job, &model));
    *out = shd_decoder_bytes(model);
    shd_model_destroy(model);
    return SHERD_OK;
}

static sherd_status init(shd_sample *sample, const sherd_options *options, const shd_model *model, shd_pool *pool) {
    sample->tokens = shd_alloc((size_t)(sample->wanted + 1), sizeof *sample->tokens);
    sample->candidates = shd_alloc((size_t)sample->vocab_size, sizeof *sample->candidates);
    if (!sample->tokens || !sample->candidates) return shd_fail(SHERD_MEMORY, "no memory for a text");
    sample->tokens[0] = '\n';
    if (options->rank != 0) return SHERD_OK;
    return shd_decoder_create(model, pool, &sample->decoder);
}

sherd_status shd_sample_create(const shd_job *job, const sherd_options *options, const shd_model *model, shd_pool *pool,
                               shd_sample **out) {
    shd_sample *sample = shd_alloc(1, sizeof *sample);
    if (!sample) return shd_fail(SHERD_MEMORY, "no memory for a text");
    sample->draw = (shd_draw){.temperature = temperature, .top_p = 1, .seed = (uint64_t)job->train.seed};
    sample->wanted = job->train.sample_tokens;
    sample->vocab_size = (int32_t)job->model.vocab_size;
    sample->unit_count = shd_model_describe(model)->unit_count;
    sample->micro_steps = options->eval_micro_steps;
    sample->empty =
        (shd_window){.context = job->model.context, .longest_run = shd_decoder_longest_run(model), .count = 1};
    sherd_status status = init(sample, options, model, pool);
    if (status != SHERD_OK) {
        shd_sample_destroy(sample);
        return status;
    }
    *out = sample;
    return SHERD_OK;
}

void shd_sample_destroy(shd_sample *sample) {
    if (!sample) return;
    shd_decoder_destroy(sample->decoder);
    shd_free(sample->tokens);
    shd_free(sample->candidates);
    shd_free(sample);
}

/* --- the text as log lines ---------------------------------------------------------------------------------------- */

typedef struct log_text {
    char line[LINE_BYTES + 8]; /* room for one more character, escaped byte by byte */
    int length;
} log_text;

static void end_line(log_text *text) {
    shd_log(SHERD_LOG_INFO, "  | %.*s", text->length, text->line);
    text->length = 0;
}

/* A shd_characters' take: control characters, and bytes that are none, as C writes them. */
static void add_character(void *user, const unsigned char *bytes, int count, bool character) {
    log_text *text = user;
    if (count == 1 && bytes[0] == '\n') {
        end_line(text);
        return;
    }
    bool shown = character && (count > 1 || (bytes[0] >= 0x20 && bytes[0] != 0x7f));
    for (int i = 0; i < count; i++)
        text->length += snprintf(text->line + text->length, sizeof text->line - (size_t)text->length,
                                 shown ? "%c" : "\\x%02x", bytes[i]);
    if (text->length > LINE_BYTES - 4 * SHD_CHARACTER_BYTES) end_line(text);
}

static void log_tokens(const shd_sample *sample, int64_t count, int64_t step) {
    log_text text = {.length = 0};
    shd_characters characters = {.take = add_character, .user = &text};
    shd_log(SHERD_LOG_INFO, "after step %lld the model writes:", (long long)step);
    for (int64_t i = 1; i <= count; i++) shd_characters_put(&characters, (unsigned char)sample->tokens[i]);
    int left = shd_characters_end(&characters);
    if (left > 0) add_character(&text, characters.held, left, false);
    if (text.length > 0) end_line(&text);
}

/* --- the text ----------------------------------------------------------------------------------------------------- */

/* A text under way; the same on every rank but for the tokens. */
typedef struct writing {
    shd_sample *sample;
    sherd_session *session;
    int64_t step;
    shd_window window;
    int64_t written; /* rank 0: tokens before the text's own end */
    bool ended;
} writing;

/* Forward of all units: with `run`, and where there is a decoder, it computes. */
static sherd_status pass(const writing *w, const shd_window_run *run) {
    const shd_sample *sample = w->sample;
    bool computes = run && sample->decoder && !w->ended;
    if (computes) shd_decoder_begin(sample->decoder, run->past, sample->tokens + run->first, run->count);
    for (int32_t unit = 0; unit < sample->unit_count; unit++) {
        sherd_view view;
        SHD_TRY(sherd_forward_begin(w->session, unit, &view));
        if (computes) SHD_TRY(shd_decoder_forward(sample->decoder, &view));
        SHD_TRY(sherd_forward_end(w->session, unit));
    }
    return SHERD_OK;
}

/* Draws the next token on rank 0. The text's end, or a number that is not finite, ends what is written, not the passes
 * that the others count on. */
static void draw(writing *w) {
    shd_sample *sample = w->sample;
    if (!sample->decoder || w->ended) return;
    int32_t token = 0;
    sherd_status status = shd_draw_token(&sample->draw, w->step, w->written, shd_decoder_logits(sample->decoder),
                                         sample->vocab_size, sample->candidates, &token);
    if (status != SHERD_OK) shd_log(SHERD_LOG_WARN, "the text ends early: %s", sherd_last_error());
    w->ended = status != SHERD_OK || token >= SHD_BYTE_TOKENS;
    if (!w->ended) sample->tokens[++w->written] = token;
}

/* One evaluation: as many passes as the program has, those too many idle. */
static sherd_status run_portion(writing *w) {
    const int64_t whole = w->sample->wanted + 1;
    SHD_TRY(sherd_evaluate_begin(w->session));
    for (int32_t k = 0; k < w->sample->micro_steps; k++) {
        if (w->window.count == whole) {
            SHD_TRY(pass(w, NULL));
            continue;
        }
        const shd_window_run run = shd_window_next(&w->window);
        SHD_TRY(pass(w, &run));
        if (!shd_window_add(&w->window, &run)) continue;
        draw(w);
        w->window.count++;
    }
    sherd_evaluation ignored;
    return sherd_evaluate_end(w->session, 0, &ignored);
}

sherd_status shd_sample_write(shd_sample *sample, sherd_session *session, int64_t step) {
    writing w = {.sample = sample, .session = session, .step = step, .window = sample->empty};
    while (w.window.count <= sample->wanted) SHD_TRY(run_portion(&w));
    if (sample->decoder) log_tokens(sample, w.written, step);
    return SHERD_OK;
}
