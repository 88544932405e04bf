/* GELU and SwiGLU, forward and backward, and the plain elementwise kernels. */

static void add(int64_t count, const float *x, const float *z, float *y) {
    INDEPENDENT
    for (int64_t i = 0; i < count; i++) y[i] = x[i] + z[i];
}

static void scale(int64_t count, float factor, const float *x, float *y) {
    INDEPENDENT
    for (int64_t i = 0; i < count; i++) y[i] = factor * x[i];
}

/* ½(1 + tanh u) = sigmoid(2u): 2u = 2√(2/π)(x + 0.044715x³), and its derivative. */
static const float gelu_linear = 1.5957691216f, gelu_cubic = 0.0713548163f, gelu_cubic_3 = 0.2140644488f;

static void gelu(int64_t count, const float *x, float *y) {
    INDEPENDENT
    for (int64_t i = 0; i < count; i++) {
        float e, v = x[i];
        y[i] = v * sigmoid_of(v * fused(gelu_cubic, v * v, gelu_linear), &e);
    }
}

/* (x·s)' = s + x·s(1 - s)·(2u)', with 1 - s = e·s. */
static void gelu_backward(int64_t count, const float *x, const float *dy, float *dx) {
    INDEPENDENT
    for (int64_t i = 0; i < count; i++) {
        float e, v = x[i];
        float s = sigmoid_of(v * fused(gelu_cubic, v * v, gelu_linear), &e);
        float slope = e * s * s * fused(gelu_cubic_3, v * v, gelu_linear);
        dx[i] = dy[i] * fused(v, slope, s);
    }
}

static void swiglu(int64_t count, const float *gate, const float *up, float *y) {
    INDEPENDENT
    for (int64_t i = 0; i < count; i++) {
        float e, g = gate[i];
        y[i] = g * sigmoid_of(g, &e) * up[i];
    }
}

static void swiglu_backward(int64_t count, const float *gate, const float *up, const float *dy, float *dgate,
                            float *dup) {
    INDEPENDENT
    for (int64_t i = 0; i < count; i++) {
        float e, g = gate[i], u = up[i], d = dy[i];
        float s = sigmoid_of(g, &e);
        dgate[i] = d * u * fused(g, e * s * s, s);
        dup[i] = d * (g * s);
    }
}
