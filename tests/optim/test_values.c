/* Muon and Adafactor against values that PyTorch made: tests/data/optimizers, whose script says how. */
#include "tests/optim/whole_run.h"

#include <criterion/criterion.h>
#include <jansson.h>
#include <math.h>
#include <string.h>

/* The script's. */
static double noise(int64_t tensor, int64_t step, int64_t index) {
    int64_t word = (index * 7919 + step * 104729 + tensor * 1299709 + 1) & 0x7fffffff;
    for (int i = 0; i < 3; i++) {
        word = (word * 1103515245 + 12345) & 0x7fffffff;
        word ^= word >> 11;
    }
    return (double)(word % 65536 - 32768) / 65536;
}

static double gradient(const char *kind, int64_t tensor, int64_t step, int64_t columns, int64_t index) {
    double size = step % 10 == 9 ? 8 : 1;
    if (strcmp(kind, "zero") == 0) return 0;
    if (strcmp(kind, "rank-one") == 0)
        return size * noise(tensor, step, index / columns) * noise(tensor + 50, step, index % columns);
    return size * noise(tensor, step, index);
}

static double real(const json_t *object, const char *key) { return json_number_value(json_object_get(object, key)); }
static const char *text(const json_t *object, const char *key) {
    return json_string_value(json_object_get(object, key));
}

static sherd_optimizer read_options(const char *name, const json_t *options) {
    sherd_optimizer optimizer = SHERD_OPTIMIZER_INIT;
    optimizer.lr = real(options, "lr");
    optimizer.weight_decay = real(options, "weight_decay");
    if (strcmp(name, "adafactor") == 0) {
        const json_t *eps = json_object_get(options, "eps");
        optimizer.kind = SHERD_ADAFACTOR;
        optimizer.beta2_decay = real(options, "beta2_decay");
        optimizer.update_clip = real(options, "d");
        optimizer.scale_floor = json_number_value(json_array_get(eps, 1));
        cr_assert_eq(json_number_value(json_array_get(eps, 0)), 0x1p-23);
        return optimizer;
    }
    optimizer.kind = SHERD_MUON;
    optimizer.momentum = real(options, "momentum");
    optimizer.nesterov = json_is_true(json_object_get(options, "nesterov"));
    optimizer.ns_steps = (int32_t)json_integer_value(json_object_get(options, "ns_steps"));
    if (strcmp(text(options, "adjust_lr_fn"), "original") == 0) optimizer.adjust_lr = SHERD_ADJUST_LR_ORIGINAL;
    return optimizer;
}

static sherd_tensor read_tensor(const json_t *about) {
    const json_t *shape = json_object_get(about, "shape");
    sherd_tensor tensor = {.name = "t", .dim_count = (int32_t)json_array_size(shape)};
    for (int32_t i = 0; i < tensor.dim_count; i++)
        tensor.shape[i] = json_integer_value(json_array_get(shape, (size_t)i));
    return tensor;
}

/* The distance of two results, relative to the way from the start. */
static double relative_gap(const whole_run *run, const json_t *expected, int64_t tensor_index) {
    double gap = 0, way = 0;
    for (int64_t i = 0; i < run->count; i++) {
        double value = json_number_value(json_array_get(expected, (size_t)i));
        gap += pow((double)run->p[i] - value, 2);
        way += pow(value - noise(tensor_index, -1, i), 2);
    }
    return way > 0 ? sqrt(gap / way) : sqrt(gap);
}

static void check_tensor(const sherd_optimizer *optimizer, shd_pool *pool, const json_t *about, int64_t t,
                         int64_t steps) {
    sherd_tensor tensor = read_tensor(about);
    whole_run run = whole_run_make(optimizer, &tensor);
    int64_t columns = tensor.dim_count > 0 ? tensor.shape[tensor.dim_count - 1] : 1;
    for (int64_t i = 0; i < run.count; i++) run.p[i] = (float)noise(t, -1, i);
    for (int64_t step = 0; step < steps; step++) {
        for (int64_t i = 0; i < run.count; i++)
            run.g[i] = (float)gradient(text(about, "gradient"), t, step, columns, i);
        whole_run_update(&run, optimizer, pool, step, optimizer->lr, optimizer->weight_decay, 1);
    }
    const json_t *exact = json_object_get(about, "float64"), *shipped = json_object_get(about, "bfloat16");
    cr_assert_eq((int64_t)json_array_size(exact), run.count);
    double gap = relative_gap(&run, exact, t);
    cr_expect(gap <= 2e-5, "kind %d, tensor %d: %g from float64", optimizer->kind, (int)t, gap);
    if (shipped) {
        gap = relative_gap(&run, shipped, t);
        cr_expect(gap <= 0.02, "kind %d, tensor %d: %g from PyTorch's bfloat16", optimizer->kind, (int)t, gap);
    }
    whole_run_free(&run);
}

Test(values, are_those_of_pytorch) {
    json_error_t error;
    json_t *values = json_load_file(SHD_VALUES_FILE, 0, &error), *cases, *one;
    cr_assert_not_null(values, "%s: %s", SHD_VALUES_FILE, error.text);
    shd_pool *pool = NULL;
    cr_assert_eq(shd_pool_create(1, &pool), SHERD_OK);
    size_t index, t, checked = 0;
    cases = json_object_get(values, "cases");
    json_array_foreach(cases, index, one) {
        const sherd_optimizer optimizer = read_options(text(one, "optimizer"), json_object_get(one, "options"));
        const json_t *tensors = json_object_get(one, "tensors");
        for (t = 0; t < json_array_size(tensors); t++, checked++)
            check_tensor(&optimizer, pool, json_array_get(tensors, t), (int64_t)t,
                         json_integer_value(json_object_get(values, "steps")));
    }
    cr_assert_eq(checked, 36);
    shd_pool_destroy(pool);
    json_decref(values);
}
