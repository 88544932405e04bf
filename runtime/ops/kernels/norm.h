/* LayerNorm and RMSNorm, row by row, and the sums over rows that their weights and biases need.
 *
 * Sums of a row: lane l holds columns l, l+16, …; a last part of a row is filled with the value that adds nothing. */

static void layernorm(int64_t columns, float eps, const float *x, const float *weight, const float *bias, float *y,
                      float *mean, float *rstd) {
    const int64_t whole = columns / LANES * LANES;
    lanes sum = {0}, squares = {0};
    for (int64_t j = 0; j < whole; j += LANES) sum = lanes_add(sum, lanes_load(x + j));
    if (whole < columns) sum = lanes_add(sum, lanes_load_part(x + whole, columns - whole, 0));
    const float m = lanes_sum(sum) / (float)columns;
    for (int64_t j = 0; j < whole; j += LANES) {
        const lanes d = lanes_subtract(lanes_load(x + j), m);
        squares = lanes_add(squares, lanes_mul(d, d));
    }
    if (whole < columns) {
        const lanes d = lanes_subtract(lanes_load_part(x + whole, columns - whole, m), m);
        squares = lanes_add(squares, lanes_mul(d, d));
    }
    const float r = 1.0f / __builtin_sqrtf(lanes_sum(squares) / (float)columns + eps);
    INDEPENDENT
    for (int64_t j = 0; j < columns; j++) y[j] = (x[j] - m) * r * weight[j] + bias[j];
    *mean = m;
    *rstd = r;
}

/* dx = residual + rstd·(g - mean(g) - x̂·mean(g·x̂)), g = dy·weight, x̂ = (x - mean)·rstd; RMSNorm leaves mean(g)
 * out. */
static inline void norm_backward(int64_t columns, const float *x, const float *weight, float mean, float rstd,
                                 const float *dy, const float *residual, float *dx, float centred) {
    const int64_t whole = columns / LANES * LANES;
    lanes sum_g = {0}, sum_gx = {0};
    for (int64_t j = 0; j < whole; j += LANES) {
        const lanes g = lanes_mul(lanes_load(dy + j), lanes_load(weight + j));
        sum_g = lanes_add(sum_g, g);
        sum_gx = lanes_add(sum_gx, lanes_mul(g, lanes_scale(lanes_subtract(lanes_load(x + j), mean), rstd)));
    }
    if (whole < columns) {
        const int64_t rest = columns - whole;
        const lanes g = lanes_mul(lanes_load_part(dy + whole, rest, 0), lanes_load_part(weight + whole, rest, 0));
        const lanes normed = lanes_scale(lanes_subtract(lanes_load_part(x + whole, rest, mean), mean), rstd);
        sum_g = lanes_add(sum_g, g);
        sum_gx = lanes_add(sum_gx, lanes_mul(g, normed));
    }
    const float mean_g = centred * (lanes_sum(sum_g) / (float)columns);
    const float mean_gx = lanes_sum(sum_gx) / (float)columns;
    if (residual) {
        INDEPENDENT
        for (int64_t j = 0; j < columns; j++)
            dx[j] = residual[j] + rstd * (dy[j] * weight[j] - mean_g - (x[j] - mean) * rstd * mean_gx);
    } else {
        INDEPENDENT
        for (int64_t j = 0; j < columns; j++)
            dx[j] = rstd * (dy[j] * weight[j] - mean_g - (x[j] - mean) * rstd * mean_gx);
    }
}

static void layernorm_backward(int64_t columns, const float *x, const float *weight, float mean, float rstd,
                               const float *dy, const float *residual, float *dx) {
    norm_backward(columns, x, weight, mean, rstd, dy, residual, dx, 1.0f);
}

static void rmsnorm_backward(int64_t columns, const float *x, const float *weight, float rstd, const float *dy,
                             const float *residual, float *dx) {
    norm_backward(columns, x, weight, 0.0f, rstd, dy, residual, dx, 0.0f);
}

static void rmsnorm(int64_t columns, float eps, const float *x, const float *weight, float *y, float *rstd) {
    const int64_t whole = columns / LANES * LANES;
    lanes squares = {0};
    for (int64_t j = 0; j < whole; j += LANES)
        squares = lanes_add(squares, lanes_mul(lanes_load(x + j), lanes_load(x + j)));
    if (whole < columns) {
        const lanes part = lanes_load_part(x + whole, columns - whole, 0);
        squares = lanes_add(squares, lanes_mul(part, part));
    }
    const float r = 1.0f / __builtin_sqrtf(lanes_sum(squares) / (float)columns + eps);
    INDEPENDENT
    for (int64_t j = 0; j < columns; j++) y[j] = x[j] * r * weight[j];
    *rstd = r;
}

static void column_sum(int64_t rows, int64_t width, int64_t stride, const float *x, float *sum) {
    float total[SHD_SLAB] = {0};
    for (int64_t i = 0; i < rows; i++) {
        const float *row = x + i * stride;
        INDEPENDENT
        for (int64_t j = 0; j < width; j++) total[j] += row[j];
    }
    memcpy(sum, total, sizeof(float) * (size_t)width);
}

static void norm_weight_backward(int64_t rows, int64_t width, int64_t stride, const float *x, const float *mean,
                                 const float *rstd, const float *dy, float *dweight, float *dbias) {
    float total_weight[SHD_SLAB] = {0}, total_bias[SHD_SLAB] = {0};
    for (int64_t i = 0; i < rows; i++) {
        const float *row_x = x + i * stride, *row_dy = dy + i * stride;
        const float m = mean ? mean[i] : 0.0f, r = rstd[i];
        INDEPENDENT
        for (int64_t j = 0; j < width; j++) {
            total_weight[j] += row_dy[j] * ((row_x[j] - m) * r);
            total_bias[j] += row_dy[j];
        }
    }
    if (dweight) memcpy(dweight, total_weight, sizeof(float) * (size_t)width);
    if (dbias) memcpy(dbias, total_bias, sizeof(float) * (size_t)width);
}
