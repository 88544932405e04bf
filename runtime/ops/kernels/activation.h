/* GELU, ReLU and SwiGLU, forward and backward, and the plain elementwise kernels. */

static void add(int64_t count, const void *x, const void *z, void *y) {
    INDEPENDENT
    for (int64_t i = 0; i < count; i++) put(y, i, get(x, i) + get(z, i));
}

static void accumulate(int64_t count, const void *x, float *sum) {
    INDEPENDENT
    for (int64_t i = 0; i < count; i++) sum[i] = sum[i] + get(x, i);
}

static void widen(int64_t count, const void *x, float *y) {
    INDEPENDENT
    for (int64_t i = 0; i < count; i++) y[i] = get(x, i);
}

/* y may begin where x does, an element being no wider than a float: what is written is what was read before. The
 * compiler must not conclude from the types that they are apart. */
static void scale(int64_t count, float factor, const float *x, void *y) {
    INDEPENDENT
    for (int64_t i = 0; i < count; i++) {
        float value;
        memcpy(&value, x + i, sizeof value);
        put(y, i, factor * value);
    }
}

/* ½(1 + tanh u) = sigmoid(2u): 2u = 2√(2/π)(x + 0.044715x³), and its derivative. */
static const float gelu_linear = 1.5957691216f, gelu_cubic = 0.0713548163f, gelu_cubic_3 = 0.2140644488f;

static void gelu(int64_t count, const void *x, void *y) {
    INDEPENDENT
    for (int64_t i = 0; i < count; i++) {
        float e, v = get(x, i);
        put(y, i, v * sigmoid_of(v * fused(gelu_cubic, v * v, gelu_linear), &e));
    }
}

/* (x·s)' = s + x·s(1 - s)·(2u)', with 1 - s = e·s. */
static void gelu_backward(int64_t count, const void *x, const void *dy, void *dx) {
    INDEPENDENT
    for (int64_t i = 0; i < count; i++) {
        float e, v = get(x, i);
        float s = sigmoid_of(v * fused(gelu_cubic, v * v, gelu_linear), &e);
        float slope = e * s * s * fused(gelu_cubic_3, v * v, gelu_linear);
        put(dx, i, get(dy, i) * fused(v, slope, s));
    }
}

/* Comparisons are such that NaN stays. */
static void relu(int64_t count, const void *x, void *y) {
    INDEPENDENT
    for (int64_t i = 0; i < count; i++) {
        float v = get(x, i);
        put(y, i, v < 0 ? 0 : v);
    }
}

static void relu_backward(int64_t count, const void *y, const void *dy, void *dx) {
    INDEPENDENT
    for (int64_t i = 0; i < count; i++) put(dx, i, get(y, i) <= 0 ? 0 : get(dy, i));
}

static void swiglu(int64_t count, const void *gate, const void *up, void *y) {
    INDEPENDENT
    for (int64_t i = 0; i < count; i++) {
        float e, g = get(gate, i);
        put(y, i, g * sigmoid_of(g, &e) * get(up, i));
    }
}

static void swiglu_backward(int64_t count, const void *gate, const void *up, const void *dy, void *dgate, void *dup) {
    INDEPENDENT
    for (int64_t i = 0; i < count; i++) {
        float e, g = get(gate, i), u = get(up, i), d = get(dy, i);
        float s = sigmoid_of(g, &e);
        put(dgate, i, d * u * fused(g, e * s * s, s));
        put(dup, i, d * (g * s));
    }
}
