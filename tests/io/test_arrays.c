#include "io/arrays.h"
#include "runtime/base/memory.h"
#include "tests/io/make_job.h"
#include "tests/io/npy_files.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(arrays, .init = enter_fresh_folder, .fini = leave_fresh_folder);

static const shd_sample_shape classes = {
    .input_count = 3, .output_count = 4, .classes = true, .ignored_label = -1, .input_scale = 0.5};
static const shd_sample_shape numbers = {
    .input_count = 3, .output_count = 2, .ignored_label = INT64_MIN, .input_scale = 1};

static shd_arrays_config config_of(const char *const *inputs, const char *const *targets, int32_t count,
                                   shd_sample_shape shape) {
    return (shd_arrays_config){.key = "data.train",
                               .inputs = inputs,
                               .inputs_count = count,
                               .targets = targets,
                               .targets_count = targets ? count : 0,
                               .shape = shape};
}

static const char *refusal(const char *inputs, const char *targets, shd_sample_shape shape) {
    shd_arrays *arrays = NULL;
    const shd_arrays_config config = config_of(&inputs, targets ? &targets : NULL, 1, shape);
    cr_expect_eq(shd_arrays_open(&config, &arrays), SHERD_DATA, "%s, %s", inputs, targets);
    cr_expect_null(arrays);
    cr_expect_eq(shd_memory_held(SHD_MEMORY_OBJECTS), 0);
    return sherd_last_error();
}

/* Rows of bytes first, first + 1, … */
static void write_rows(const char *path, int32_t rows, int32_t columns, int first) {
    unsigned char data[256];
    char shape[40];
    for (int i = 0; i < rows * columns; i++) data[i] = (unsigned char)(first + i);
    snprintf(shape, sizeof shape, columns == 1 ? "(%d,)" : "(%d, %d)", rows, columns);
    write_npy(path, "|u1", shape, data, (size_t)(rows * columns));
}

/* Three files, the second one empty, with one descriptor between them: rows 0 and 1, then 2 to 4. */
Test(arrays, are_the_rows_of_all_files_in_order_with_scaled_inputs_and_classes) {
    static const int8_t labels[] = {3, -1, 0, 1, 2};
    const char *inputs[] = {"x0.npy", "x1.npy", "x2.npy"}, *targets[] = {"y0.npy", "y1.npy", "y2.npy"};
    write_rows("x0.npy", 2, 3, 0);
    write_rows("x1.npy", 0, 3, 0);
    write_rows("x2.npy", 3, 3, 6);
    write_npy("y0.npy", "|i1", "(2, 1)", labels, 2);
    write_npy("y1.npy", "|i1", "(0,)", NULL, 0);
    write_npy("y2.npy", "|i1", "(3,)", labels + 2, 3);
    shd_arrays_config config = config_of(inputs, targets, 3, classes);
    config.open_files = 1;
    shd_arrays *arrays;
    cr_assert_eq(shd_arrays_open(&config, &arrays), SHERD_OK, "%s", sherd_last_error());
    const shd_source_summary held = shd_arrays_summarize(arrays);
    cr_expect_eq(held.file_count, 3);
    cr_expect_eq(held.sequence_count, 5);
    cr_expect_eq(held.dropped_count, 0);
    cr_assert_eq(shd_arrays_sample(arrays), SHERD_OK, "%s", sherd_last_error());
    for (int64_t i = 4; i >= 0; i--) {
        float values[3];
        int32_t label;
        int64_t counted;
        cr_assert_eq(shd_arrays_read(arrays, i, values, &label, NULL, &counted), SHERD_OK, "%s", sherd_last_error());
        for (int j = 0; j < 3; j++) cr_expect_eq(values[j], 0.5f * (float)(3 * i + j));
        cr_expect_eq(label, labels[i]);
        cr_expect_eq(counted, labels[i] >= 0);
        const shd_source_place place = shd_arrays_locate(arrays, i);
        cr_expect_str_eq(place.file, i < 2 ? "x0.npy" : "x2.npy");
        cr_expect(place.index == (i < 2 ? i : i - 2) && place.token == -1);
    }
    shd_arrays_close(arrays);
    cr_expect_eq(shd_memory_held(SHD_MEMORY_OBJECTS), 0);
}

Test(arrays, have_rows_of_numbers_as_targets_of_a_regression) {
    const float y[] = {0.5f, -1, 2, 3e30f};
    const char *inputs = "x.npy", *targets = "y.npy";
    write_rows("x.npy", 2, 3, 0);
    write_npy("y.npy", "<f4", "(2, 2)", y, sizeof y);
    const shd_arrays_config config = config_of(&inputs, &targets, 1, numbers);
    shd_arrays *arrays;
    cr_assert_eq(shd_arrays_open(&config, &arrays), SHERD_OK, "%s", sherd_last_error());
    for (int64_t i = 0; i < 2; i++) {
        float values[3], row[2];
        int64_t counted;
        cr_assert_eq(shd_arrays_read(arrays, i, values, NULL, row, &counted), SHERD_OK, "%s", sherd_last_error());
        cr_expect_eq(values[2], 3 * i + 2);
        cr_expect_arr_eq(row, y + 2 * i, sizeof row);
        cr_expect_eq(counted, 2);
    }
    shd_arrays_close(arrays);
    /* One number a row needs no second dimension. */
    shd_sample_shape one = numbers;
    one.output_count = 1;
    write_rows("z.npy", 2, 1, 7);
    targets = "z.npy";
    const shd_arrays_config of_one = config_of(&inputs, &targets, 1, one);
    cr_assert_eq(shd_arrays_open(&of_one, &arrays), SHERD_OK, "%s", sherd_last_error());
    shd_arrays_close(arrays);
}

Test(arrays, that_do_not_fit_the_model_or_each_other_are_refused_by_file) {
    const float y[6] = {0};
    write_rows("x.npy", 2, 3, 0);
    write_rows("y.npy", 2, 1, 2);
    write_rows("three.npy", 3, 1, 0);
    write_rows("none.npy", 0, 3, 0);
    write_rows("no-targets.npy", 0, 1, 0);
    write_npy("images.npy", "|u1", "(1, 2, 2)", "abcd", 4);
    write_npy("float.npy", "<f4", "(2,)", y, 8);
    write_npy("wide.npy", "<f4", "(2, 3)", y, 24);
    cr_expect_str_eq(refusal("images.npy", "y.npy", classes),
                     "images.npy: inputs of shape [1, 2, 2] are 4 numbers a row, and model.inputs is 3");
    cr_expect_str_eq(refusal("x.npy", "float.npy", classes),
                     "float.npy: classes are whole numbers from 0 on, and these are float32; save them as int64, say");
    cr_expect_str_eq(refusal("x.npy", "x.npy", classes),
                     "x.npy: a .npy file holds one array; name two: {inputs: …, targets: …}");
    cr_expect_str_eq(refusal("x.npy", NULL, classes),
                     "x.npy: a .npy file holds one array; name two: {inputs: …, targets: …}");
    cr_expect_str_eq(refusal("x.npy", "none.npy", classes),
                     "none.npy: targets of shape [0, 3]; one class a row is needed (a row of numbers is for "
                     "model.loss: mse)");
    cr_expect_str_eq(refusal("x.npy", "wide.npy", numbers),
                     "wide.npy: targets of shape [2, 3] are 3 numbers a row, and model.outputs is 2");
    cr_expect_str_eq(refusal("x.npy", "three.npy", classes),
                     "x.npy has 2 rows of inputs, but three.npy 3 rows of targets");
    cr_expect_str_eq(refusal("none.npy", "no-targets.npy", classes),
                     "data.train: empty: there is no row in its 1 file");
    const char *inputs[] = {"x.npy", "x.npy"}, *targets = "y.npy";
    shd_arrays_config config = config_of(inputs, &targets, 2, classes);
    config.targets_count = 1;
    shd_arrays *arrays = NULL;
    cr_expect_eq(shd_arrays_open(&config, &arrays), SHERD_DATA);
    cr_expect_str_eq(sherd_last_error(), "data.train: 2 files of inputs, but 1 of targets; they are paired in order");
}

Test(arrays, refuse_a_class_that_the_model_does_not_have_when_it_is_read) {
    const char *inputs = "x.npy", *targets = "y.npy";
    float values[3];
    int32_t label;
    int64_t counted;
    write_rows("x.npy", 2, 3, 0);
    write_rows("y.npy", 2, 1, 3); /* 3, 4 */
    const shd_arrays_config config = config_of(&inputs, &targets, 1, classes);
    shd_arrays *arrays;
    cr_assert_eq(shd_arrays_open(&config, &arrays), SHERD_OK);
    cr_expect_eq(shd_arrays_read(arrays, 0, values, &label, NULL, &counted), SHERD_OK);
    cr_expect_eq(shd_arrays_read(arrays, 1, values, &label, NULL, &counted), SHERD_DATA);
    cr_expect_str_eq(sherd_last_error(), "y.npy: the class of row 1 is 4; with model.outputs 4 they are 0 to 3, and "
                                         "data.ignored_label may name one that counts for nothing");
    cr_expect_eq(shd_arrays_sample(arrays), SHERD_DATA);
    shd_arrays_close(arrays);
}

/* In fp16 such an input would be infinite, and each of its steps skipped. */
Test(arrays, refuse_inputs_that_are_infinite_in_fp16_as_they_are_read) {
    const float x[] = {1, 32759.9f, -3, 1, 2, -32760}, y[] = {1e30f, 1, 1e30f, 1};
    const char *inputs = "x.npy", *targets = "y.npy";
    write_npy("x.npy", "<f4", "(2, 3)", x, sizeof x);
    write_npy("y.npy", "<f4", "(2, 2)", y, sizeof y);
    for (int limited = 0; limited < 2; limited++) {
        float values[3], row[2];
        int64_t counted;
        shd_sample_shape shape = numbers;
        shape.input_scale = 2;
        shape.input_limit = limited ? 65520 : 0;
        const shd_arrays_config config = config_of(&inputs, &targets, 1, shape);
        shd_arrays *arrays;
        cr_assert_eq(shd_arrays_open(&config, &arrays), SHERD_OK);
        cr_expect_eq(shd_arrays_read(arrays, 0, values, NULL, row, &counted), SHERD_OK);
        cr_expect_eq(shd_arrays_read(arrays, 1, values, NULL, row, &counted), limited ? SHERD_DATA : SHERD_OK);
        if (limited)
            cr_expect_str_eq(sherd_last_error(),
                             "x.npy: element 2 of row 1 is -65520 with data.input_scale, and fp16 ends at 65504; lower "
                             "data.input_scale, or take train.precision: bf16");
        shd_arrays_close(arrays);
    }
}

/* Without an ignored class: whole numbers at the ends of what files can hold. */
Test(arrays, refuse_every_label_that_is_no_class_where_none_is_ignored) {
    static const int64_t odd[] = {INT64_MIN, INT64_MIN + 1, INT32_MIN, -100, -1, 4, INT64_C(1) << 32, INT64_MAX};
    const char *inputs = "x.npy", *targets = "y.npy";
    shd_sample_shape shape = classes;
    shape.ignored_label = INT64_MIN;
    write_rows("x.npy", 1, 3, 0);
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        float values[3];
        int32_t label;
        int64_t counted;
        write_npy("y.npy", "<i8", "(1,)", &odd[i], sizeof odd[i]);
        const shd_arrays_config config = config_of(&inputs, &targets, 1, shape);
        shd_arrays *arrays;
        cr_assert_eq(shd_arrays_open(&config, &arrays), SHERD_OK);
        cr_expect_eq(shd_arrays_read(arrays, 0, values, &label, NULL, &counted), SHERD_DATA, "%lld", (long long)odd[i]);
        shd_arrays_close(arrays);
    }
}

Test(arrays, have_another_fingerprint_when_inputs_or_targets_change) {
    uint64_t hashes[4];
    for (int i = 0; i < 4; i++) {
        const char *inputs = "x.npy", *targets = "y.npy";
        write_rows("x.npy", 2, 3, i == 1);
        write_rows("y.npy", 2, 1, i == 2);
        const shd_arrays_config config = config_of(&inputs, &targets, 1, classes);
        shd_arrays *arrays;
        cr_assert_eq(shd_arrays_open(&config, &arrays), SHERD_OK);
        hashes[i] = shd_arrays_summarize(arrays).fingerprint;
        shd_arrays_close(arrays);
    }
    cr_expect_neq(hashes[0], hashes[1]);
    cr_expect_neq(hashes[0], hashes[2]);
    cr_expect_eq(hashes[0], hashes[3]);
}
