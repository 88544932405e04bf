/* The safetensors reader. Input: the header, up to the first newline, then the data; a header's length is put before it.
 * An input that begins with a NUL byte is, behind it, a whole file.
 *
 * Every tensor of a file that opens lies in it, and has the values of its bytes, read at once or element by element. */
#include "io/safetensors.h"
#include "tests/fuzz/fuzz.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Element `index` of an F32, F16 or BF16 tensor, by arithmetic instead of shifts. */
static float decode(const shd_safetensors_entry *entry, const char *file, int64_t index) {
    float value;
    uint16_t half;
    if (entry->dtype == SHD_SAFETENSORS_F32) {
        memcpy(&value, file + entry->offset_bytes + 4 * index, sizeof value);
        return value;
    }
    memcpy(&half, file + entry->offset_bytes + 2 * index, sizeof half);
    int exponent_bits = entry->dtype == SHD_SAFETENSORS_F16 ? 5 : 8, mantissa_bits = 15 - exponent_bits;
    int exponent = half >> mantissa_bits & ((1 << exponent_bits) - 1), mantissa = half & ((1 << mantissa_bits) - 1);
    int bias = (1 << (exponent_bits - 1)) - 1;
    if (exponent == (1 << exponent_bits) - 1)
        value = mantissa ? NAN : INFINITY;
    else if (exponent == 0)
        value = (float)ldexp(mantissa, 1 - bias - mantissa_bits);
    else
        value = (float)ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
    return half & 0x8000 ? -value : value;
}

static bool same(float a, float b) { return isnan(a) ? isnan(b) : a == b && signbit(a) == signbit(b); }

static void check_values(const shd_safetensors *opened, const shd_safetensors_entry *entry, const char *file) {
    float *values = malloc((size_t)entry->element_count * sizeof *values + 1), one;
    fuzz_check(values);
    fuzz_check(shd_safetensors_read(opened, entry, 0, entry->element_count, values) == SHERD_OK);
    for (int64_t i = 0; i < entry->element_count; i++) fuzz_check(same(values[i], decode(entry, file, i)));
    for (int64_t i = 0; i < entry->element_count && i < 3; i++) {
        fuzz_check(shd_safetensors_read(opened, entry, i, 1, &one) == SHERD_OK);
        fuzz_check(same(one, values[i]));
    }
    fuzz_check_refusal(shd_safetensors_read(opened, entry, entry->element_count, 1, &one), SHERD_ARGUMENT);
    fuzz_check_refusal(shd_safetensors_read(opened, entry, 1, INT64_MAX, &one), SHERD_ARGUMENT);
    free(values);
    fuzz_note_accepted();
}

static void check_entry(const shd_safetensors *opened, const shd_safetensors_entry *entry, const char *file,
                        size_t bytes) {
    fuzz_check(entry->offset_bytes >= 8 && entry->offset_bytes <= (int64_t)bytes && entry->element_count >= 0);
    int64_t product = 1;
    for (int32_t d = 0; d < entry->dim_count; d++) product *= entry->shape[d];
    fuzz_check(product == entry->element_count);
    bool floats = entry->dtype == SHD_SAFETENSORS_F32 || entry->dtype == SHD_SAFETENSORS_F16 ||
                  entry->dtype == SHD_SAFETENSORS_BF16;
    fuzz_check(entry->element_count <= (int64_t)bytes);
    float one;
    if (floats)
        check_values(opened, entry, file);
    else if (entry->element_count > 0)
        fuzz_check_refusal(shd_safetensors_read(opened, entry, 0, 1, &one), SHERD_DATA);
}

static void add_length(fuzz_text *file, uint64_t length) {
    unsigned char prefix[8];
    for (int i = 0; i < 8; i++) prefix[i] = (unsigned char)(length >> 8 * i);
    fuzz_add(file, prefix, sizeof prefix);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    static const char *path;
    if (!path) path = fuzz_path("model.safetensors");
    fuzz_text file = {0};
    if (bytes > 0 && data[0] == 0) {
        fuzz_add(&file, data + 1, bytes - 1);
    } else {
        const uint8_t *newline = bytes > 0 ? memchr(data, '\n', bytes) : NULL;
        size_t header_bytes = newline ? (size_t)(newline - data) : bytes;
        add_length(&file, header_bytes);
        fuzz_add(&file, data, header_bytes);
        if (newline) fuzz_add(&file, newline + 1, bytes - header_bytes - 1);
    }
    fuzz_write(path, file.bytes, file.length);
    shd_safetensors *opened = NULL;
    sherd_status status = shd_safetensors_open(path, &opened);
    if (status != SHERD_OK) {
        fuzz_check_refusal(status, SHERD_DATA);
    } else {
        for (int32_t i = 0; i < shd_safetensors_count(opened); i++)
            check_entry(opened, shd_safetensors_at(opened, i), file.bytes, file.length);
    }
    shd_safetensors_close(opened);
    fuzz_check_released();
    free(file.bytes);
    return 0;
}
