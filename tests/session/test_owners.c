/* Optimizers that need whole tensors, through whole sessions: against float64, the same bits for any number of ranks, at
 * every stage and with either gather, over a save and a load, and past a step that is skipped. */
#include "support/ranks.h"
#include "support/textbook.h"
#include "support/textbook_whole.h"
#include "tests/support/scratch.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* More blocks than there are gradient slots, with matrices of all forms, and a table that is shared. */
enum { BLOCKS = 5, BLOCK_TENSORS = 5, TENSORS = 1 + BLOCKS * BLOCK_TENSORS + 2, UNITS = BLOCKS + 2, LARGEST = 23 * 29 };
#define BLOCK(name_)                                                                                                   \
    {.name = name_ ".norm", .dim_count = 1, .shape = {11}}, {.name = name_ ".in", .dim_count = 2, .shape = {11, 37}},  \
        {.name = name_ ".bias", .dim_count = 1, .shape = {37}},                                                        \
        {.name = name_ ".out", .dim_count = 2, .shape = {37, 11}}, {                                                   \
        .name = name_ ".tiny", .dim_count = 2, .shape = { 1, 3 }                                                       \
    }
static const sherd_tensor tensors[TENSORS] = {
    {.name = "table", .dim_count = 2, .shape = {23, 29}},
    BLOCK("h.0"),
    BLOCK("h.1"),
    BLOCK("h.2"),
    BLOCK("h.3"),
    BLOCK("h.4"),
    {.name = "last", .dim_count = 1, .shape = {300}},
    {.name = "gain", .dim_count = 0},
};
static const int32_t shared_by_head[] = {0};
static const sherd_unit units[UNITS] = {
    {.name = "embedding", .first_tensor = 0, .tensor_count = 1},
    {.name = "h.0", .first_tensor = 1, .tensor_count = BLOCK_TENSORS},
    {.name = "h.1", .first_tensor = 6, .tensor_count = BLOCK_TENSORS},
    {.name = "h.2", .first_tensor = 11, .tensor_count = BLOCK_TENSORS},
    {.name = "h.3", .first_tensor = 16, .tensor_count = BLOCK_TENSORS},
    {.name = "h.4", .first_tensor = 21, .tensor_count = BLOCK_TENSORS},
    {.name = "head", .first_tensor = 26, .tensor_count = 2, .shares = shared_by_head, .share_count = 1},
};
static const sherd_model model = {
    .size = sizeof model, .units = units, .unit_count = UNITS, .tensors = tensors, .tensor_count = TENSORS};

enum { BATCH = 12, STEPS = 100, FEW_STEPS = 6 };

/* In [-1, 1), and quite irregular, so that matrices have their full rank. */
static float noise(uint64_t tensor, uint64_t step, uint64_t index) {
    uint64_t word = (index + 1) * 0x9e3779b97f4a7c15u + step * 0xbf58476d1ce4e5b9u + tensor * 0x94d049bb133111ebu;
    word ^= word >> 31, word *= 0xd6e8feb86659fd93u, word ^= word >> 29, word *= 0xd6e8feb86659fd93u;
    return (float)((int64_t)(word >> 44) - 524288) / 524288.0f;
}

static sherd_status fill(void *user, int32_t tensor, int64_t first, int64_t count, float *values) {
    (void)user;
    for (int64_t i = 0; i < count; i++) values[i] = noise((uint64_t)tensor, 1u << 20, (uint64_t)(first + i)) / 2;
    return SHERD_OK;
}

/* Half of it is the same for all samples of a step, so that errors of sums stay small beside it. */
static float gradient_at(int32_t tensor, int64_t step, int64_t sample, int64_t i) {
    return noise((uint64_t)tensor, (uint64_t)step, (uint64_t)i) +
           noise((uint64_t)tensor + 100, (uint64_t)(step * BATCH + sample), (uint64_t)i) / 8;
}

typedef float final[TENSORS][LARGEST];

typedef struct trainer {
    int32_t rank, world_size, replicas;
    int64_t step, data_step; /* whose gradients are taken */
    bool overflow;           /* this step's gradient on the last rank */
    final *last;             /* parameters as the last forward found them; NULL: not kept */
    size_t value_bytes;
} trainer;

static sherd_status forward(void *user, const sherd_view *view) {
    const trainer *run = user;
    for (int32_t t = 0; t < TENSORS && run->last; t++)
        if (view->parameters[t])
            memcpy((*run->last)[t], view->parameters[t], (size_t)textbook_count(&tensors[t]) * run->value_bytes);
    return SHERD_OK;
}

static sherd_status backward(void *user, const sherd_view *view) {
    const trainer *run = user;
    int32_t split = run->world_size / run->replicas; /* a replica takes a run of samples */
    int64_t sample = run->rank / split * (BATCH / run->replicas) + view->micro_step * split + run->rank % split;
    for (int32_t t = 0; t < TENSORS; t++) {
        float *gradient = view->gradients[t];
        if (!gradient || (t == 0 && view->unit == 0)) continue; /* the head writes the table's */
        for (int64_t i = 0; i < textbook_count(&tensors[t]); i++)
            gradient[i] = gradient_at(t, run->data_step, sample, i) * view->loss_scale;
        if (run->overflow && run->rank == run->world_size - 1) gradient[0] = INFINITY;
    }
    return SHERD_OK;
}

typedef struct story {
    final *last;
    int64_t steps, skipped_step, saved_after;
    int64_t wasted_steps; /* before it is filled again; the second one overflows in fp16 */
    const char *dir;
} story;

static int run_steps(sherd_session *session, const sherd_options *options, const story *told, trainer *run,
                     int64_t until) {
    const sherd_callbacks callbacks = {.size = sizeof callbacks, .forward = forward, .backward = backward, .user = run};
    for (; run->step < until; run->step++, run->data_step += !run->overflow) {
        sherd_step_result result;
        run->overflow = run->step == told->skipped_step;
        EXPECT(sherd_run_step(session, options->micro_steps, &callbacks, &result) == SHERD_OK);
        EXPECT(result.skipped == run->overflow);
    }
    return 0;
}

static int train(void *user, const sherd_options *options) {
    const story *told = user;
    sherd_session *session;
    trainer run = {.rank = options->rank,
                   .world_size = options->world_size,
                   .replicas = options->replicas,
                   .last = options->rank == 0 ? told->last : NULL,
                   .value_bytes = options->precision == SHERD_FP32 ? 4 : 2};
    EXPECT(sherd_session_create(options, &model, &session) == SHERD_OK);
    EXPECT(sherd_session_fill(session, fill, NULL) == SHERD_OK);
    if (told->wasted_steps > 0) {
        const story wasted = {.skipped_step = options->precision == SHERD_FP16 ? 1 : -1};
        trainer other = run;
        int line = run_steps(session, options, &wasted, &other, told->wasted_steps);
        if (line) return line;
        EXPECT(sherd_session_fill(session, fill, NULL) == SHERD_OK);
        EXPECT(sherd_session_step_count(session) == 0);
    }
    int line = run_steps(session, options, told, &run, told->dir ? told->saved_after : told->steps + 1);
    if (line) return line;
    if (told->dir) {
        EXPECT(sherd_session_save(session, told->dir, NULL) == SHERD_OK);
        sherd_session_destroy(session);
        EXPECT(sherd_session_create(options, &model, &session) == SHERD_OK);
        EXPECT(sherd_session_load(session, told->dir, NULL) == SHERD_OK);
        line = run_steps(session, options, told, &run, told->steps + 1);
    }
    sherd_session_destroy(session);
    return line;
}

static sherd_options make_options(sherd_optimizer_kind kind, int ranks, int stage) {
    static const sherd_optimizer_group groups[] = {{"h.1.*", 0.5, 0.25, SHERD_GROUP_AUTO},
                                                   {"h.2.in", 1, -1, SHERD_GROUP_ADAMW}};
    sherd_options options = SHERD_OPTIONS_INIT;
    options.world_size = ranks;
    options.stage = stage;
    options.micro_steps = BATCH / ranks;
    options.timeout_s = options.start_timeout_s = 30;
    options.optimizer.kind = kind;
    options.optimizer.lr = 0.01;
    options.optimizer.weight_decay = 0.125;
    options.optimizer.groups = groups;
    options.optimizer.group_count = kind == SHERD_MUON ? 2 : 1;
    if (kind == SHERD_MUON) {
        options.optimizer.momentum = 0.95;
        options.optimizer.nesterov = true;
    }
    return options;
}

static void must_train(const sherd_options *options, story *told) {
    int line = run_ranks(options->world_size, options, train, told);
    cr_assert_eq(line, 0, "%d ranks, stage %d: line %d: %s", options->world_size, options->stage, line,
                 sherd_last_error());
}

/* --- against float64 ---------------------------------------------------------------------------------------------- */

/* Whose a tensor is, by hand: matrices of blocks but h.2.in are Muon's. */
static bool is_muons(int32_t t) { return t > 0 && t < 26 && tensors[t].dim_count == 2 && t != 12; }

static void follow(const sherd_optimizer *optimizer, int32_t t, double *p) {
    int64_t count = textbook_count(&tensors[t]);
    bool halved = t >= 6 && t < 11, muon = optimizer->kind == SHERD_MUON && is_muons(t);
    double lr = halved ? 0.005 : 0.01, wd = halved ? 0.25 : tensors[t].dim_count >= 2 ? 0.125 : 0;
    double *g = calloc((size_t)count, 8);
    textbook_whole book = {&tensors[t], p, calloc((size_t)count, 8), calloc((size_t)count, 8)};
    textbook *elements = calloc((size_t)count, sizeof *elements);
    sherd_optimizer adamw = *optimizer;
    adamw.kind = SHERD_ADAMW;
    for (int64_t i = 0; i < count; i++) elements[i].p = p[i];
    for (int64_t step = 0; step < STEPS; step++) {
        for (int64_t i = 0; i < count; i++) {
            g[i] = 0;
            for (int64_t b = 0; b < BATCH; b++) g[i] += (double)gradient_at(t, step, b, i) / BATCH;
            if (optimizer->kind == SHERD_MUON && !muon) textbook_step(&adamw, &elements[i], g[i], step, lr, wd);
        }
        if (muon)
            textbook_muon(optimizer, &book, g, lr, wd);
        else if (optimizer->kind == SHERD_ADAFACTOR)
            textbook_adafactor(optimizer, &book, g, step, lr, wd);
    }
    for (int64_t i = 0; i < count && optimizer->kind == SHERD_MUON && !muon; i++) p[i] = elements[i].p;
    free(g), free(book.s0), free(book.s1), free(elements);
}

static void check_against_textbook(sherd_optimizer_kind kind) {
    static final last;
    sherd_options options = make_options(kind, 1, 0);
    must_train(&options, &(story){.last = &last, .steps = STEPS, .skipped_step = -1});
    for (int32_t t = 0; t < TENSORS; t++) {
        double p[LARGEST];
        float start[LARGEST];
        int64_t count = textbook_count(&tensors[t]);
        fill(NULL, t, 0, count, start);
        for (int64_t i = 0; i < count; i++) p[i] = (double)start[i];
        follow(&options.optimizer, t, p);
        for (int64_t i = 0; i < count; i++)
            cr_assert_float_eq((double)last[t][i], p[i], 1e-5 * (1 + fabs(p[i])), "%s[%d]: %.9g, not %.9g",
                               tensors[t].name, (int)i, (double)last[t][i], p[i]);
    }
}

Test(owners, muon_follows_float64_for_a_hundred_steps, .timeout = 60) { check_against_textbook(SHERD_MUON); }
Test(owners, adafactor_follows_float64_for_a_hundred_steps, .timeout = 60) { check_against_textbook(SHERD_ADAFACTOR); }

/* --- the same bits everywhere ------------------------------------------------------------------------------------- */

static void train_everywhere(sherd_optimizer_kind kind, sherd_dtype precision, sherd_dtype reduce_dtype, double clip) {
    static final first, other;
    for (int ranks = 1; ranks <= 4; ranks++)
        for (int stage = 0; stage <= 3; stage++)
            for (int copy = 0; copy <= (ranks > 1 && stage > 0); copy++) {
                bool is_first = ranks == 1 && stage == 0;
                sherd_options options = make_options(kind, ranks, stage);
                options.gather = copy ? SHERD_GATHER_COPY : SHERD_GATHER_AUTO;
                options.precision = precision;
                options.reduce_dtype = reduce_dtype;
                options.clip = clip;
                options.threads = 1 + stage % 2;
                memset(other, 0, sizeof other);
                must_train(&options,
                           &(story){.last = is_first ? &first : &other, .steps = FEW_STEPS, .skipped_step = -1});
                if (!is_first)
                    cr_assert_eq(memcmp(first, other, sizeof first), 0, "%d ranks, stage %d, %s: other bits", ranks,
                                 stage, copy ? "copy" : "shared");
            }
}

Test(owners, muon_is_the_same_everywhere, .timeout = 60) { train_everywhere(SHERD_MUON, SHERD_FP32, SHERD_FP32, 0.5); }
Test(owners, muon_is_the_same_everywhere_in_bf16, .timeout = 60) {
    train_everywhere(SHERD_MUON, SHERD_BF16, SHERD_BF16, 0);
}
Test(owners, adafactor_is_the_same_everywhere, .timeout = 60) {
    train_everywhere(SHERD_ADAFACTOR, SHERD_FP32, SHERD_FP32, 0);
}
Test(owners, adafactor_is_the_same_everywhere_in_bf16, .timeout = 60) {
    train_everywhere(SHERD_ADAFACTOR, SHERD_BF16, SHERD_FP32, 0.5);
}

/* Replicas add gradients in another order, but the same for every number of ranks in them. */
static void train_replicated(sherd_optimizer_kind kind) {
    static final alone, first, other;
    sherd_options options = make_options(kind, 1, 3);
    must_train(&options, &(story){.last = &alone, .steps = FEW_STEPS, .skipped_step = -1});
    for (int ranks = 2; ranks <= 6; ranks += 2)
        for (int stage = 1; stage <= 3; stage++)
            for (int copy = 0; copy <= 1; copy++) {
                bool is_first = ranks == 2 && stage == 1 && !copy;
                options = make_options(kind, ranks, stage);
                options.replicas = 2;
                options.gather = copy ? SHERD_GATHER_COPY : SHERD_GATHER_AUTO;
                must_train(&options,
                           &(story){.last = is_first ? &first : &other, .steps = FEW_STEPS, .skipped_step = -1});
                cr_assert(is_first || memcmp(first, other, sizeof first) == 0, "%d ranks, stage %d", ranks, stage);
            }
    for (int32_t t = 0; t < TENSORS; t++)
        for (int64_t i = 0; i < textbook_count(&tensors[t]); i++)
            cr_assert_float_eq((double)first[t][i], (double)alone[t][i], 1e-5, "%s[%d]", tensors[t].name, (int)i);
}

Test(owners, muon_runs_in_replicas, .timeout = 60) { train_replicated(SHERD_MUON); }
Test(owners, adafactor_runs_in_replicas, .timeout = 60) { train_replicated(SHERD_ADAFACTOR); }

/* --- what is kept ------------------------------------------------------------------------------------------------- */

static void train_on(sherd_optimizer_kind kind, sherd_dtype precision) {
    static final straight, resumed;
    char dir[SCRATCH_BYTES], command[64];
    cr_assert(scratch_folder(dir));
    snprintf(command, sizeof command, "rm -rf %s", dir);
    for (int ranks = 1; ranks <= 3; ranks++)
        for (int stage = 0; stage <= 3; stage++) {
            sherd_options options = make_options(kind, ranks, stage);
            options.precision = precision;
            must_train(&options, &(story){.last = &straight, .steps = FEW_STEPS, .skipped_step = -1});
            must_train(&options, &(story){.last = &resumed,
                                          .steps = FEW_STEPS,
                                          .skipped_step = -1,
                                          .saved_after = FEW_STEPS / 2,
                                          .dir = dir});
            cr_assert_eq(memcmp(straight, resumed, sizeof straight), 0, "%d ranks, stage %d", ranks, stage);
            cr_assert_eq(system(command), 0);
        }
}

Test(owners, muon_goes_on_where_it_was_saved, .timeout = 60) { train_on(SHERD_MUON, SHERD_FP32); }
Test(owners, adafactor_goes_on_where_it_was_saved, .timeout = 60) { train_on(SHERD_ADAFACTOR, SHERD_BF16); }

/* A step that overflows on one rank leaves no trace: as if it had not been. */
static void skip_a_step(sherd_optimizer_kind kind) {
    static final straight, skipped;
    for (int ranks = 1; ranks <= 2; ranks++)
        for (int stage = 0; stage <= 3; stage++) {
            sherd_options options = make_options(kind, ranks, stage);
            options.precision = SHERD_FP16;
            must_train(&options, &(story){.last = &straight, .steps = FEW_STEPS, .skipped_step = -1});
            must_train(&options, &(story){.last = &skipped, .steps = FEW_STEPS + 1, .skipped_step = 2});
            cr_assert_eq(memcmp(straight, skipped, sizeof straight), 0, "%d ranks, stage %d", ranks, stage);
        }
}

Test(owners, muon_skips_what_overflows, .timeout = 60) { skip_a_step(SHERD_MUON); }
Test(owners, adafactor_skips_what_overflows, .timeout = 60) { skip_a_step(SHERD_ADAFACTOR); }

/* A session that is filled again forgets all that it has learned, whatever its optimizer keeps, and where. */
static void fill_again(sherd_optimizer_kind kind, sherd_dtype precision, sherd_dtype state_dtype) {
    static final once, twice;
    for (int ranks = 1; ranks <= 2; ranks++)
        for (int stage = 0; stage <= 3; stage++) {
            sherd_options options = make_options(kind, ranks, stage);
            options.precision = precision;
            options.optimizer.momentum = 0.95;
            options.optimizer.state_dtype = state_dtype;
            must_train(&options, &(story){.last = &once, .steps = 2, .skipped_step = -1});
            must_train(&options, &(story){.last = &twice, .steps = 2, .skipped_step = -1, .wasted_steps = 3});
            cr_assert_eq(memcmp(once, twice, sizeof once), 0, "optimizer %d, %d ranks, stage %d", kind, ranks, stage);
        }
}

Test(owners, a_session_that_is_filled_again_starts_anew, .timeout = 60) {
    fill_again(SHERD_MUON, SHERD_FP32, SHERD_FP32);
    fill_again(SHERD_MUON, SHERD_FP16, SHERD_FP32);
    fill_again(SHERD_ADAFACTOR, SHERD_BF16, SHERD_FP32);
    fill_again(SHERD_ADAMW, SHERD_FP16, SHERD_FP32);
    fill_again(SHERD_ADAMW, SHERD_FP32, SHERD_INT8);
    fill_again(SHERD_SGD, SHERD_BF16, SHERD_INT8);
}

Test(owners, muon_without_a_matrix_is_refused) {
    static const sherd_optimizer_group all = {"*", 1, -1, SHERD_GROUP_ADAMW};
    sherd_options options = make_options(SHERD_MUON, 1, 0);
    sherd_session *session = NULL;
    options.optimizer.groups = &all;
    options.optimizer.group_count = 1;
    cr_assert_eq(sherd_session_create(&options, &model, &session), SHERD_CONFIG);
    cr_assert_str_eq(sherd_last_error(), "optimizer.name is muon, but no matrix between the first and the last unit is "
                                         "trained; take adamw, or give it matrices in optimizer.groups");
}
