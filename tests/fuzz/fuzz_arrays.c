/* The readers of array files. Input: 0 for a .npy file, else safetensors, then
 *   .npy: the version, then the header up to the first newline, then the data; magic and the header's length are put before
 *         it, and blanks are added as NumPy adds them;
 *   else: the whole file.
 *
 * A file that opens has the shape that its numbers fill, each of which is read alike alone and with the others, as a
 * number, a float and a whole number; and a source of its rows has them in order. */
#include "io/array_file.h"
#include "io/arrays.h"
#include "tests/fuzz/fuzz.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_NUMBERS = 4096 };

static bool same(double a, double b) { return isnan(a) ? isnan(b) : a == b; }

static void check_numbers(shd_array_file *file, int64_t count) {
    double *values = malloc((size_t)count * sizeof *values + 1), one;
    float single;
    int64_t integer;
    fuzz_check(values);
    fuzz_check(shd_array_file_read_doubles(file, 0, count, values) == SHERD_OK);
    for (int64_t i = 0; i < count; i++) {
        fuzz_check(shd_array_file_read_doubles(file, i, 1, &one) == SHERD_OK && same(one, values[i]));
        sherd_status status = shd_array_file_read(file, i, 1, 1, &single);
        if (isfinite((float)one))
            fuzz_check(status == SHERD_OK && single == (float)one);
        else
            fuzz_check_refusal(status, SHERD_DATA);
        if (!shd_array_type_is_integer(file->type)) continue;
        status = shd_array_file_read_integers(file, i, 1, &integer);
        if (one < 0x1p63)
            fuzz_check(status == SHERD_OK && (double)integer == one);
        else if (status != SHERD_OK)
            fuzz_check_refusal(status, SHERD_DATA);
    }
    shd_array_scan scan;
    fuzz_check(shd_array_file_scan(file, &scan) == SHERD_OK);
    for (int64_t i = 0; i < count; i++)
        fuzz_check(!isfinite(values[i]) || (scan.lowest <= values[i] && values[i] <= scan.highest));
    fuzz_note_accepted();
    free(values);
}

/* A source of the file's rows, and of their first numbers as what they are to give. */
static void check_source(const char *path, shd_array_file *file) {
    static const char *targets;
    if (!targets) targets = fuzz_path("targets.npy");
    static const char header[] = "\x93NUMPY\x01\0\x38\0{'descr':'|u1','fortran_order':False,'shape':(2,)}     \n\0\1";
    fuzz_write(targets, header, sizeof header - 1);
    const shd_arrays_config config = {.key = "data.train",
                                      .inputs = &path,
                                      .inputs_count = 1,
                                      .targets = &targets,
                                      .targets_count = 1,
                                      .shape = {.input_count = file->row_elements,
                                                .output_count = 2,
                                                .classes = true,
                                                .ignored_label = INT64_MIN,
                                                .input_scale = 1},
                                      .open_files = 1};
    shd_arrays *arrays = NULL;
    sherd_status status = shd_arrays_open(&config, &arrays);
    if (file->row_count != 2 || file->row_elements == 0) {
        if (status != SHERD_OK) fuzz_check_refusal(status, SHERD_DATA);
        shd_arrays_close(arrays);
        return;
    }
    fuzz_check(status == SHERD_OK && shd_arrays_summarize(arrays).sequence_count == 2);
    float *inputs = malloc((size_t)file->row_elements * sizeof *inputs);
    for (int64_t row = 0; row < 2; row++) {
        int32_t label;
        int64_t counted;
        status = shd_arrays_read(arrays, row, inputs, &label, NULL, &counted);
        if (status != SHERD_OK)
            fuzz_check_refusal(status, SHERD_DATA);
        else
            fuzz_check(label == row && counted == 1);
    }
    free(inputs);
    shd_arrays_close(arrays);
}

static void put_file(const char *path, const uint8_t *data, size_t bytes) {
    fuzz_text file = {0};
    if (bytes > 1 && data[0] == 0) {
        const uint8_t *newline = memchr(data + 2, '\n', bytes - 2);
        size_t length = newline ? (size_t)(newline - data) - 2 : bytes - 2, prefix = data[1] == 1 ? 10 : 12;
        size_t padded = (prefix + length + 1 + 63) / 64 * 64 - prefix;
        unsigned char start[12] = {0x93, 'N', 'U', 'M', 'P', 'Y', data[1], 0};
        for (size_t i = 8; i < prefix; i++) start[i] = (unsigned char)(padded >> 8 * (i - 8));
        fuzz_add(&file, start, prefix);
        fuzz_add(&file, data + 2, length);
        while (file.length < prefix + padded - 1) fuzz_add(&file, " ", 1);
        fuzz_add(&file, "\n", 1);
        if (newline) fuzz_add(&file, newline + 1, bytes - length - 3);
    } else if (bytes > 0) {
        fuzz_add(&file, data + 1, bytes - 1);
    }
    fuzz_write(path, file.bytes, file.length);
    free(file.bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    static const char *path;
    if (!path) path = fuzz_path("inputs.npy");
    put_file(path, data, bytes);
    shd_array_file file;
    sherd_status status = shd_array_file_open(path, "inputs", NULL, &file);
    if (status != SHERD_OK) {
        fuzz_check_refusal(status, SHERD_DATA);
    } else {
        uint64_t hash = 0;
        int64_t count = file.row_count * file.row_elements;
        fuzz_check(count >= 0 && count * shd_array_type_bytes(file.type) <= file.file.bytes - file.first_byte);
        fuzz_check(shd_array_file_fingerprint(&file, 4, &hash) == SHERD_OK);
        if (count <= MOST_NUMBERS) check_numbers(&file, count);
        check_source(path, &file);
        shd_array_file_close(&file);
    }
    fuzz_check_released();
    return 0;
}
