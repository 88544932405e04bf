/* The parts of attention and cross-entropy that are not products, and rotary positions. */

static void rope(int64_t half, const float *cosines, const float *sines, float sign, void *x) {
    INDEPENDENT
    for (int64_t j = 0; j < half; j++) {
        float a = get(x, j), b = get(x, j + half), c = cosines[j], s = sign * sines[j];
        put(x, j, a * c - b * s);
        put(x, j + half, b * c + a * s);
    }
}

static float max(int64_t count, const float *x) {
    const int64_t whole = count / LANES * LANES;
    float best[LANES];
    for (int l = 0; l < LANES; l++) best[l] = x[0];
    for (int64_t i = 0; i < whole; i += LANES)
        for (int l = 0; l < LANES; l++) best[l] = x[i + l] > best[l] ? x[i + l] : best[l];
    float result = x[0];
    for (int l = 0; l < LANES; l++) result = best[l] > result ? best[l] : result;
    for (int64_t i = whole; i < count; i++) result = x[i] > result ? x[i] : result;
    return result;
}

/* Float lanes over blocks of 256 elements, double over blocks: the error does not grow with the length. */
static double exp_sum(int64_t count, const float *x, float shift, float *y) {
    enum { BLOCK = 256 };
    double total = 0;
    for (int64_t start = 0; start < count; start += BLOCK) {
        const int64_t size = count - start < BLOCK ? count - start : BLOCK;
        const int64_t whole = size / LANES * LANES;
        const float *at = x + start;
        float *to = y + start;
        INDEPENDENT
        for (int64_t i = 0; i < size; i++) to[i] = exp_of(at[i] - shift);
        lanes sum = {0};
        for (int64_t i = 0; i < whole; i += LANES) sum = lanes_add(sum, lanes_of_floats(to + i));
        if (whole < size) sum = lanes_add(sum, lanes_of_part(to + whole, size - whole));
        total += (double)lanes_sum(sum);
    }
    return total;
}

static float dot(int64_t count, const void *x, const void *z) {
    const int64_t whole = count / LANES * LANES;
    lanes sum = {0};
    for (int64_t i = 0; i < whole; i += LANES) sum = lanes_add(sum, lanes_mul(lanes_load(x, i), lanes_load(z, i)));
    if (whole < count) {
        const int64_t rest = count - whole;
        sum = lanes_add(sum, lanes_mul(lanes_load_part(x, whole, rest, 0), lanes_load_part(z, whole, rest, 0)));
    }
    return lanes_sum(sum);
}

static void softmax_backward(int64_t count, float log_sum, float mean, float factor, float *score_to_p,
                             float *dp_to_ds) {
    INDEPENDENT
    for (int64_t i = 0; i < count; i++) {
        float p = exp_of(score_to_p[i] - log_sum);
        score_to_p[i] = p;
        dp_to_ds[i] = p * (dp_to_ds[i] - mean) * factor;
    }
}
