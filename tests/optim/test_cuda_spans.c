/* Spans on a device have the CPU's bits. */
#include "optim/optimizer.h"
#include "optim/rounding.h"
#include "optim/spans.h"
#include "runtime/base/dtype.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#ifdef SOFT_DEVICE
#include "tests/softcuda/softcuda.h"
#endif

enum { ROOM = 8192 };

static shd_device *device;
static shd_stream *stream;
static shd_event *event;
static shd_pool *pool;
static const shd_device_ops *ops;

static void begin(void) {
    int32_t count;
    ops = shd_device_backend();
    if (!ops || ops->count(&count) != SHERD_OK) cr_skip_test("no device");
    cr_assert_eq(ops->open(&(shd_device_config){0}, &device), SHERD_OK, "%s", sherd_last_error());
    cr_assert_eq(ops->create_stream(device, "test", false, &stream), SHERD_OK);
    cr_assert_eq(ops->create_event(device, &event), SHERD_OK);
    cr_assert_eq(shd_pool_create(1, &pool), SHERD_OK);
}

static void end(void) {
    cr_assert_eq(ops->status(device), SHERD_OK, "%s", sherd_last_error());
    shd_pool_destroy(pool);
    ops->destroy_event(event);
    ops->destroy_stream(stream);
    ops->close(device);
#ifdef SOFT_DEVICE
    cr_assert_eq(softcuda_report_count(), 0, "%s", softcuda_report(0));
#endif
}

static void *take(int64_t bytes, bool pinned) {
    void *memory;
    sherd_status status = (pinned ? ops->allocate_pinned : ops->allocate)(device, bytes, &memory);
    cr_assert_eq(status, SHERD_OK, "%s", sherd_last_error());
    return memory;
}

static void wait_all(void) {
    ops->record(stream, event);
    while (!ops->reached(event)) {}
    cr_assert_eq(ops->status(device), SHERD_OK, "%s", sherd_last_error());
}

/* An array here and on the device. */
typedef struct twin {
    char *here, *there;
    int64_t bytes;
} twin;

static twin make_twin(int64_t bytes) { return (twin){take(bytes, true), take(bytes, false), bytes}; }
static void send(const twin *t) { ops->copy(stream, t->there, t->here, t->bytes); }
static void fetch(const twin *t) { ops->copy(stream, t->here, t->there, t->bytes); }
static void drop(const twin *t) {
    ops->release_pinned(device, t->here);
    ops->release(device, t->there);
}

static uint32_t state = 12345;
static float draw(void) {
    state = state * 1664525u + 1013904223u;
    return (float)((int32_t)state) * 0x1p-31f;
}

static void check_bits(const char *what, const void *a, const void *b, int64_t bytes) {
    for (int64_t i = 0; i < bytes; i++)
        cr_assert_eq(((const char *)a)[i], ((const char *)b)[i], "%s differ in byte %lld", what, (long long)i);
}

typedef struct arrays {
    float parameters[ROOM], gradients[ROOM], states[2][ROOM];
    uint16_t rounded[ROOM];
} arrays;

static shd_update update_of(arrays *a, int64_t at, int64_t count, sherd_dtype rounded) {
    return (shd_update){.parameters = a->parameters + at,
                        .gradients = a->gradients + at,
                        .states = {a->states[0] + at, a->states[1] + at},
                        .rounded = rounded == SHERD_FP32 ? NULL : a->rounded + at,
                        .rounded_dtype = rounded,
                        .count = count,
                        .lr = 0.013,
                        .weight_decay = 0.1,
                        .gradient_scale = 0.37f};
}

static void check_update(const sherd_optimizer *optimizer, sherd_dtype rounded, int64_t at, int64_t count) {
    arrays *host = malloc(sizeof *host);
    twin both = make_twin(sizeof *host);
    for (int i = 0; i < ROOM; i++) {
        host->parameters[i] = draw();
        host->states[0][i] = host->states[1][i] = 0;
        host->rounded[i] = 7;
    }
    memcpy(both.here, host, sizeof *host);
    send(&both);
    for (int64_t step = 0; step < 3; step++) {
        arrays *there = (arrays *)(void *)both.there;
        for (int i = 0; i < ROOM; i++) host->gradients[i] = i % 11 == 3 ? 0 : draw() * 0.01f;
        wait_all();
        memcpy(both.here, host->gradients, sizeof host->gradients);
        ops->copy(stream, there->gradients, both.here, sizeof host->gradients);
        shd_update here = update_of(host, at, count, rounded), on_device = update_of(there, at, count, rounded);
        here.step = on_device.step = step;
        shd_optimizer_update(optimizer, pool, &here);
        shd_spans_device()->update(stream, optimizer, &on_device);
    }
    wait_all();
    fetch(&both);
    wait_all();
    check_bits("arrays", both.here, host, sizeof *host);
    drop(&both);
    free(host);
}

Test(cuda_spans, updates_have_the_bits_of_the_cpu, .init = begin, .fini = end, .timeout = 120) {
    static const struct {
        sherd_optimizer_kind kind;
        double momentum;
        bool nesterov;
    } rules[] = {{SHERD_ADAMW, 0, false}, {SHERD_ADAM, 0, false}, {SHERD_LION, 0, false},  {SHERD_SGD, 0, false},
                 {SHERD_SGD, 0.9, false}, {SHERD_SGD, 0.9, true}, {SHERD_MUON, 0.95, true}};
    static const int64_t counts[] = {1, 15, 255, 1000, 4113};
    static const sherd_dtype dtypes[] = {SHERD_FP32, SHERD_BF16, SHERD_FP16};
    for (size_t r = 0; r < sizeof rules / sizeof *rules; r++)
        for (int d = 0; d < 3; d++)
            for (int64_t at = 0; at < 5; at++) {
                sherd_optimizer optimizer = SHERD_OPTIMIZER_INIT;
                optimizer.kind = rules[r].kind;
                optimizer.momentum = rules[r].momentum;
                optimizer.nesterov = rules[r].nesterov;
                check_update(&optimizer, dtypes[d], at, counts[(at + (int64_t)r) % 5]);
            }
}

/* States in 8 bits: blocks of codes here and there, after each of a few steps. */
enum { CODE_BLOCKS = 17, CODED = CODE_BLOCKS * SHD_CODE_BLOCK_COUNT, CODED_STEPS = 4 };

typedef struct coded_arrays {
    float parameters[CODED], gradients[CODED];
    shd_code_block blocks[2][CODE_BLOCKS];
    uint16_t rounded[CODED];
} coded_arrays;

static shd_update coded_update_of(const sherd_optimizer *optimizer, coded_arrays *a, const shd_codebook *books,
                                  int64_t first_block, int64_t count, int64_t step) {
    const int64_t at = first_block * SHD_CODE_BLOCK_COUNT;
    shd_update update = {.parameters = a->parameters + at,
                         .gradients = a->gradients + at,
                         .rounded = a->rounded + at,
                         .rounded_dtype = SHERD_BF16,
                         .count = count,
                         .step = step,
                         .lr = 0.013,
                         .weight_decay = 0.1,
                         .gradient_scale = 0.37f};
    for (int32_t s = 0; s < shd_optimizer_state_count(optimizer); s++) {
        update.state_blocks[s] = a->blocks[s] + first_block;
        update.codebooks[s] = &books[s];
    }
    return update;
}

/* Of every size, some zero; in a block of each step a number that is not finite. */
static float draw_gradient(int i, int64_t step) {
    static const float special[] = {INFINITY, -INFINITY, NAN, 3e38f};
    if (i / SHD_CODE_BLOCK_COUNT == 3 + step && i % 50 == 7) return special[step];
    return i % 11 == 3 ? 0 : ldexpf(draw(), i % 40 - 34);
}

static void check_coded_update(const sherd_optimizer *optimizer, int64_t first_block, int64_t count) {
    coded_arrays *host = malloc(sizeof *host);
    twin both = make_twin(sizeof *host);
    coded_arrays *there = (coded_arrays *)(void *)both.there;
    shd_codebook books[2];
    for (int32_t s = 0; s < shd_optimizer_state_count(optimizer); s++)
        shd_codebook_init(&books[s], shd_optimizer_state_is_root(optimizer, s));
    memset(host, 0, sizeof *host);
    for (int i = 0; i < CODED; i++) host->parameters[i] = draw();
    memcpy(both.here, host, sizeof *host);
    send(&both);
    for (int64_t step = 0; step < CODED_STEPS; step++) {
        for (int i = 0; i < CODED; i++) host->gradients[i] = draw_gradient(i, step);
        wait_all();
        memcpy(both.here, host->gradients, sizeof host->gradients);
        ops->copy(stream, there->gradients, both.here, sizeof host->gradients);
        const shd_update here = coded_update_of(optimizer, host, books, first_block, count, step);
        const shd_update on_device = coded_update_of(optimizer, there, books, first_block, count, step);
        shd_optimizer_update(optimizer, pool, &here);
        shd_spans_device()->update(stream, optimizer, &on_device);
        wait_all();
        fetch(&both);
        wait_all();
        const coded_arrays *fetched = (const coded_arrays *)(const void *)both.here;
        check_bits("codes", fetched->blocks, host->blocks, sizeof host->blocks);
        for (int i = 0; i < CODED; i++)
            cr_assert(fetched->parameters[i] == host->parameters[i] ||
                      (isnan(fetched->parameters[i]) && isnan(host->parameters[i])));
    }
    drop(&both);
    free(host);
}

Test(cuda_spans, states_in_8_bits_have_the_codes_of_the_cpu, .init = begin, .fini = end, .timeout = 120) {
    static const sherd_optimizer_kind kinds[] = {SHERD_ADAMW, SHERD_ADAM, SHERD_LION, SHERD_SGD};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        sherd_optimizer optimizer = SHERD_OPTIMIZER_INIT;
        optimizer.kind = kinds[k];
        optimizer.momentum = 0.9;
        optimizer.state_dtype = SHERD_INT8;
        check_coded_update(&optimizer, 0, CODED);
        check_coded_update(&optimizer, 1, 1);
        check_coded_update(&optimizer, 2, 9 * SHD_CODE_BLOCK_COUNT - 1);
    }
}

static const float odd[] = {0.0f,     -0.0f,     1e-45f, -1e-40f,  65504.0f,    65519.9f,
                            65520.0f, 1e38f,     -3e-8f, 5.96e-8f, 1.00390625f, 1.01171875f,
                            INFINITY, -INFINITY, NAN,    -NAN,     6.1e-5f,     0.1f};

Test(cuda_spans, rounding_has_the_bits_of_the_cpu, .init = begin, .fini = end, .timeout = 60) {
    const int64_t count = 3001;
    twin from = make_twin(count * 4), to = make_twin(count * 2);
    float *values = (float *)(void *)from.here;
    uint16_t *expected = malloc((size_t)count * 2);
    for (int64_t i = 0; i < count; i++)
        values[i] = i < (int64_t)(sizeof odd / sizeof *odd) ? odd[i] : ldexpf(draw(), (int)(i % 60) - 40);
    for (int d = 0; d < 2; d++) {
        sherd_dtype dtype = d ? SHERD_FP16 : SHERD_BF16;
        shd_round_span(pool, dtype, count, values, expected);
        send(&from);
        shd_spans_device()->round(stream, dtype, count, (const float *)(void *)from.there, to.there);
        fetch(&to);
        wait_all();
        check_bits(shd_dtype_text(dtype), to.here, expected, count * 2);
    }
    free(expected);
    drop(&from);
    drop(&to);
}

static void check_squares(const float *values, int64_t count) {
    twin there = make_twin(count * 4), sum = make_twin(sizeof(shd_exact_sum));
    double *partials = malloc((size_t)(count / 256 + 1) * sizeof *partials);
    shd_exact_sum expected;
    shd_exact_sum_clear(&expected);
    memcpy(there.here, values, (size_t)count * 4);
    send(&there);
    memset(sum.here, 0, sizeof(shd_exact_sum));
    send(&sum);
    for (int times = 0; times < 3; times++) {
        shd_square_sum(pool, values, count, partials, &expected);
        shd_spans_device()->square_sum(stream, (const float *)(void *)there.there, count,
                                       (shd_exact_sum *)(void *)sum.there);
    }
    fetch(&sum);
    wait_all();
    double a = shd_exact_sum_value(&expected), b = shd_exact_sum_value((shd_exact_sum *)(void *)sum.here);
    cr_assert(a == b || (isnan(a) && isnan(b)), "%a here, %a there, of %lld values", a, b, (long long)count);
    free(partials);
    drop(&there);
    drop(&sum);
}

Test(cuda_spans, squares_are_summed_exactly, .init = begin, .fini = end, .timeout = 60) {
    static float values[256 * 70];
    static const int64_t counts[] = {256, 512, 256 * 17, 256 * 70};
    for (int c = 0; c < 4; c++) {
        for (int64_t i = 0; i < counts[c]; i++) values[i] = ldexpf(draw(), (int)(i % 200) - 120);
        check_squares(values, counts[c]);
    }
    values[300] = 1e-42f;
    check_squares(values, counts[3]);
    values[700] = INFINITY;
    check_squares(values, counts[3]);
    values[900] = NAN;
    check_squares(values, counts[3]);
}

static void check_fold(sherd_dtype dtype, int32_t part_count, int64_t count, int64_t apart, bool first) {
    int64_t size = shd_dtype_bytes(dtype);
    twin parts = make_twin(part_count * apart * size), sum = make_twin(count * 4), word = make_twin(64);
    float *expected = malloc((size_t)count * 4), *plain = malloc((size_t)(part_count * apart) * 4);
    const void *at[64];
    for (int64_t i = 0; i < part_count * apart; i++) plain[i] = draw() * 3;
    if (part_count > 1) plain[apart + count / 2] = INFINITY;
    if (dtype == SHERD_FP32)
        memcpy(parts.here, plain, (size_t)parts.bytes);
    else
        shd_round(dtype, part_count * apart, plain, parts.here),
            shd_widen(dtype, part_count * apart, parts.here, plain);
    for (int64_t i = 0; i < count; i++) ((float *)(void *)sum.here)[i] = expected[i] = draw();
    for (int64_t i = 0; i < count; i++)
        for (int32_t p = 0; p < part_count; p++)
            expected[i] = first && p == 0 ? plain[i] : expected[i] + plain[p * apart + i];
    for (int32_t p = 0; p < part_count; p++) at[p] = parts.there + p * apart * size;
    memset(word.here, 0, 64);
    send(&parts), send(&sum), send(&word);
    shd_spans_device()->fold(stream, (float *)(void *)sum.there, at, part_count, dtype, count, first,
                             (uint64_t *)(void *)word.there);
    fetch(&sum), fetch(&word);
    wait_all();
    check_bits("sums", sum.here, expected, count * 4);
    cr_assert_eq(*(uint64_t *)(void *)word.here, part_count > 1 ? 2u : 0u);
    free(plain), free(expected);
    drop(&parts), drop(&sum), drop(&word);
}

Test(cuda_spans, contributions_are_folded_in_the_order_of_ranks, .init = begin, .fini = end, .timeout = 60) {
    for (int d = 0; d < 2; d++)
        for (int first = 0; first < 2; first++) {
            sherd_dtype dtype = d ? SHERD_BF16 : SHERD_FP32;
            check_fold(dtype, 1, 256, 256, first);
            check_fold(dtype, 2, 512, 512, first);
            check_fold(dtype, 3, 255, 257, first);
            check_fold(dtype, 64, 1024, 1024, first);
        }
}
