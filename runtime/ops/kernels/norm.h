/* LayerNorm and RMSNorm, row by row, and the sums over rows that their weights and biases need.
 *
 * Sums of a row: lane l holds columns l, l+16, …; a last part of a row is filled with the value that adds nothing. */

static void layernorm(int64_t columns, float eps, const void *x, const void *weight, const void *bias, void *y,
                      float *mean, float *rstd) {
    const int64_t whole = columns / LANES * LANES;
    lanes sum = {0}, squares = {0};
    for (int64_t j = 0; j < whole; j += LANES) sum = lanes_add(sum, lanes_load(x, j));
    if (whole < columns) sum = lanes_add(sum, lanes_load_part(x, whole, columns - whole, 0));
    const float m = lanes_sum(sum) / (float)columns;
    for (int64_t j = 0; j < whole; j += LANES) {
        const lanes d = lanes_subtract(lanes_load(x, j), m);
        squares = lanes_add(squares, lanes_mul(d, d));
    }
    if (whole < columns) {
        const lanes d = lanes_subtract(lanes_load_part(x, whole, columns - whole, m), m);
        squares = lanes_add(squares, lanes_mul(d, d));
    }
    const float r = 1.0f / __builtin_sqrtf(lanes_sum(squares) / (float)columns + eps);
    INDEPENDENT
    for (int64_t j = 0; j < columns; j++) put(y, j, (get(x, j) - m) * r * get(weight, j) + get(bias, j));
    *mean = m;
    *rstd = r;
}

/* dx = residual + rstd·(g - mean(g) - x̂·mean(g·x̂)), g = dy·weight, x̂ = (x - mean)·rstd; RMSNorm leaves mean(g)
 * out. */
static inline void norm_backward(int64_t columns, const void *x, const void *weight, float mean, float rstd,
                                 const void *dy, const void *residual, void *dx, float centred) {
    const int64_t whole = columns / LANES * LANES;
    lanes sum_g = {0}, sum_gx = {0};
    for (int64_t j = 0; j < whole; j += LANES) {
        const lanes g = lanes_mul(lanes_load(dy, j), lanes_load(weight, j));
        sum_g = lanes_add(sum_g, g);
        sum_gx = lanes_add(sum_gx, lanes_mul(g, lanes_scale(lanes_subtract(lanes_load(x, j), mean), rstd)));
    }
    if (whole < columns) {
        const int64_t rest = columns - whole;
        const lanes g = lanes_mul(lanes_load_part(dy, whole, rest, 0), lanes_load_part(weight, whole, rest, 0));
        const lanes normed = lanes_scale(lanes_subtract(lanes_load_part(x, whole, rest, mean), mean), rstd);
        sum_g = lanes_add(sum_g, g);
        sum_gx = lanes_add(sum_gx, lanes_mul(g, normed));
    }
    const float mean_g = centred * (lanes_sum(sum_g) / (float)columns);
    const float mean_gx = lanes_sum(sum_gx) / (float)columns;
    if (residual) {
        INDEPENDENT
        for (int64_t j = 0; j < columns; j++)
            put(dx, j,
                get(residual, j) + rstd * (get(dy, j) * get(weight, j) - mean_g - (get(x, j) - mean) * rstd * mean_gx));
    } else {
        INDEPENDENT
        for (int64_t j = 0; j < columns; j++)
            put(dx, j, rstd * (get(dy, j) * get(weight, j) - mean_g - (get(x, j) - mean) * rstd * mean_gx));
    }
}

static void layernorm_backward(int64_t columns, const void *x, const void *weight, float mean, float rstd,
                               const void *dy, const void *residual, void *dx) {
    norm_backward(columns, x, weight, mean, rstd, dy, residual, dx, 1.0f);
}

static void rmsnorm_backward(int64_t columns, const void *x, const void *weight, float rstd, const void *dy,
                             const void *residual, void *dx) {
    norm_backward(columns, x, weight, 0.0f, rstd, dy, residual, dx, 0.0f);
}

static void rmsnorm(int64_t columns, float eps, const void *x, const void *weight, void *y, float *rstd) {
    const int64_t whole = columns / LANES * LANES;
    lanes squares = {0};
    for (int64_t j = 0; j < whole; j += LANES)
        squares = lanes_add(squares, lanes_mul(lanes_load(x, j), lanes_load(x, j)));
    if (whole < columns) {
        const lanes part = lanes_load_part(x, whole, columns - whole, 0);
        squares = lanes_add(squares, lanes_mul(part, part));
    }
    const float r = 1.0f / __builtin_sqrtf(lanes_sum(squares) / (float)columns + eps);
    INDEPENDENT
    for (int64_t j = 0; j < columns; j++) put(y, j, get(x, j) * r * get(weight, j));
    *rstd = r;
}

static void column_sum(int64_t rows, int64_t width, int64_t stride, const void *x, float *sum) {
    float total[SHD_SLAB] = {0};
    for (int64_t i = 0; i < rows; i++) {
        const void *row = from(x, i * stride);
        INDEPENDENT
        for (int64_t j = 0; j < width; j++) total[j] += get(row, j);
    }
    memcpy(sum, total, sizeof(float) * (size_t)width);
}

static void norm_weight_backward(int64_t rows, int64_t width, int64_t stride, const void *x, const float *mean,
                                 const float *rstd, const void *dy, float *dweight, float *dbias) {
    float total_weight[SHD_SLAB] = {0}, total_bias[SHD_SLAB] = {0};
    for (int64_t i = 0; i < rows; i++) {
        const void *row_x = from(x, i * stride), *row_dy = from(dy, i * stride);
        const float m = mean ? mean[i] : 0.0f, r = rstd[i];
        INDEPENDENT
        for (int64_t j = 0; j < width; j++) {
            total_weight[j] += get(row_dy, j) * ((get(row_x, j) - m) * r);
            total_bias[j] += get(row_dy, j);
        }
    }
    if (dweight) memcpy(dweight, total_weight, sizeof(float) * (size_t)width);
    if (dbias) memcpy(dbias, total_bias, sizeof(float) * (size_t)width);
}
