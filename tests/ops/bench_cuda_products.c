/* What products reach on a GPU, of random numbers: `gpu-bench-products [divisor]`. A square one, whose rate is taken for
 * what the GPU can do at most, and those of GPT-2 124M and a Llama of a billion parameters: forward, and backward to
 * inputs and weights. `divisor` makes each side so many times shorter. */
#include "runtime/base/clock.h"
#include "runtime/base/dtype.h"
#include "runtime/ops/cuda/cuda_ops.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { REPEATS = 20, SQUARE = 8192, PATTERN = 1 << 20 };

static const shd_device_ops *ops;
static shd_device *device;
static shd_stream *stream;
static shd_event *event;

typedef enum kind { FORWARD, TO_INPUTS, TO_WEIGHTS } kind;

/* y[tokens][outputs] = x[tokens][inputs] · w[outputs][inputs]ᵀ, and what its gradients take. */
static const struct layer {
    const char *name;
    int64_t tokens, outputs, inputs;
} layers[] = {{"square", SQUARE, SQUARE, SQUARE},    {"gpt2-124m qkv", 16384, 2304, 768},
              {"gpt2-124m up", 16384, 3072, 768},    {"gpt2-124m down", 16384, 768, 3072},
              {"gpt2-124m head", 16384, 50257, 768}, {"llama-1b qkv", 8192, 3072, 2048},
              {"llama-1b up", 8192, 8192, 2048},     {"llama-1b down", 8192, 2048, 8192}};
static const char *const kinds[] = {"forward", "to inputs", "to weights"};

static void require(sherd_status status) {
    if (status == SHERD_OK) return;
    fprintf(stderr, "gpu-bench-products: %s\n", sherd_last_error());
    exit(1);
}

static void wait_for_all(void) {
    ops->record(stream, event);
    while (!ops->reached(event)) nanosleep(&(struct timespec){.tv_nsec = 2000}, NULL);
    require(ops->status(device));
}

/* Random numbers from -1 to 1, the same few again and again: of zeros, products are faster than of anything else. */
static void *take_random(sherd_dtype dtype, int64_t count) {
    static void *patterns[2]; /* fp32 and bf16, pinned */
    void **pattern = &patterns[dtype != SHERD_FP32], *memory;
    const int64_t element = shd_dtype_bytes(dtype);
    if (!*pattern) {
        uint64_t state = 1;
        require(ops->allocate_pinned(device, PATTERN * element, pattern));
        for (int64_t i = 0; i < PATTERN; i++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            const float number = (float)(int32_t)(state >> 32) * 0x1p-31f;
            shd_round(dtype, 1, &number, shd_element(dtype, *pattern, i));
        }
    }
    require(ops->allocate(device, count * element, &memory));
    for (int64_t i = 0; i < count; i += PATTERN)
        ops->copy(stream, shd_element(dtype, memory, i), *pattern,
                  (count - i < PATTERN ? count - i : PATTERN) * element);
    return memory;
}

static shd_matmul product_of(const struct layer *l, kind k, void *x, void *w, void *y) {
    switch (k) {
    case FORWARD:
        return (shd_matmul){.m = l->tokens,
                            .n = l->outputs,
                            .k = l->inputs,
                            .a = x,
                            .b = w,
                            .c = y,
                            .lda = l->inputs,
                            .ldb = l->inputs,
                            .ldc = l->outputs,
                            .b_transposed = true};
    case TO_INPUTS:
        return (shd_matmul){.m = l->tokens,
                            .n = l->inputs,
                            .k = l->outputs,
                            .a = y,
                            .b = w,
                            .c = x,
                            .lda = l->outputs,
                            .ldb = l->inputs,
                            .ldc = l->inputs};
    default: /* sums of gradients, in fp32 */
        return (shd_matmul){.m = l->outputs,
                            .n = l->inputs,
                            .k = l->tokens,
                            .a = y,
                            .b = x,
                            .c = w,
                            .lda = l->outputs,
                            .ldb = l->inputs,
                            .ldc = l->inputs,
                            .a_transposed = true,
                            .accumulate = true,
                            .wide_c = true};
    }
}

static void measure(const struct layer *l, kind k, const shd_math *math) {
    void *x = take_random(math->dtype, l->tokens * l->inputs), *y = take_random(math->dtype, l->tokens * l->outputs);
    void *w = take_random(k == TO_WEIGHTS ? SHERD_FP32 : math->dtype, l->outputs * l->inputs);
    const shd_matmul product = product_of(l, k, x, w, y);
    shd_cuda_matmul(math, &product);
    wait_for_all();
    const double start = shd_clock_ms();
    for (int i = 0; i < REPEATS; i++) shd_cuda_matmul(math, &product);
    wait_for_all();
    const double ms = (shd_clock_ms() - start) / REPEATS;
    printf("%-16s %-10s %s  %8.3f ms  %7.1f TFLOP/s\n", l->name, kinds[k], math->dtype == SHERD_FP32 ? "fp32" : "bf16",
           ms, 2e-9 * (double)l->tokens * (double)l->outputs * (double)l->inputs / ms);
    fflush(stdout);
    ops->release(device, x);
    ops->release(device, y);
    ops->release(device, w);
}

int main(int argc, char **argv) {
    shd_math math = {0};
    const int64_t divisor = argc > 1 ? atoll(argv[1]) : 1;
    ops = shd_device_backend();
    require(ops->open(&(shd_device_config){.index = 0}, &device));
    require(ops->create_stream(device, "products", false, &stream));
    require(ops->create_event(device, &event));
    math.device_ops = ops;
    math.stream = stream;
    require(ops->allocate(device, shd_cuda_matmul_scratch_bytes(SHERD_BF16, 1), &math.scratch));
    for (size_t l = 0; l < sizeof layers / sizeof *layers; l++) {
        struct layer layer = layers[l];
        layer.tokens /= divisor, layer.outputs /= divisor, layer.inputs /= divisor;
        math.dtype = SHERD_BF16;
        for (int k = FORWARD; k <= TO_WEIGHTS; k++) measure(&layer, (kind)k, &math);
    }
    struct layer square = layers[0];
    square.tokens /= divisor, square.outputs /= divisor, square.inputs /= divisor;
    math.dtype = SHERD_FP32;
    measure(&square, FORWARD, &math);
    return 0;
}
