/* The reader of llm.c's GPT-2 weights. Input: the header's words from the version on, as text; after a newline the values. The
 * magic is put before them, and the length that the header asks for is made where it is near. An input that begins with a NUL
 * byte is, behind it, a whole file.
 *
 * Every tensor of a file that opens lies in it, next to the others, and has the values of its bytes, read at once or
 * element by element. */
#include "io/llmc_weights.h"
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

enum { HEADER_BYTES = 1024, MOST_BYTES = 1 << 16 };

static uint32_t bits_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* The stored element `index` of a tensor. */
static float stored_at(const fuzz_text *file, const shd_llmc_weights *opened, const shd_llmc_tensor *tensor,
                       int64_t index) {
    const size_t bytes = shd_llmc_weights_shape(opened)->dtype == SHERD_BF16 ? 2 : 4;
    const size_t at = (size_t)tensor->offset_bytes + (size_t)index * bytes;
    fuzz_check(at >= HEADER_BYTES && at + bytes <= file->length);
    float value = 0;
    memcpy((char *)&value + (4 - bytes), file->bytes + at, bytes);
    return value;
}

static void check_tensor(const fuzz_text *file, const shd_llmc_weights *opened, const shd_llmc_tensor *tensor) {
    const int64_t rows = tensor->shape[0], columns = tensor->dim_count > 1 ? tensor->shape[1] : 1;
    fuzz_check(rows > 0 && columns > 0 && tensor->element_count == rows * columns);
    float *values = malloc((size_t)tensor->element_count * sizeof *values), one;
    fuzz_check(values);
    fuzz_check(shd_llmc_weights_read(opened, tensor, 0, tensor->element_count, values) == SHERD_OK);
    for (int64_t i = 0; i < tensor->element_count; i++) {
        const int64_t from = tensor->turned ? i % columns * rows + i / columns : i;
        fuzz_check(bits_of(values[i]) == bits_of(stored_at(file, opened, tensor, from)));
    }
    for (int64_t i = 0; i < 3; i++) {
        const int64_t at = tensor->element_count * i / 3;
        fuzz_check(shd_llmc_weights_read(opened, tensor, at, 1, &one) == SHERD_OK &&
                   bits_of(one) == bits_of(values[at]));
    }
    fuzz_check_refusal(shd_llmc_weights_read(opened, tensor, tensor->element_count, 1, &one), SHERD_ARGUMENT);
    fuzz_check_refusal(shd_llmc_weights_read(opened, tensor, 1, INT64_MAX, &one), SHERD_ARGUMENT);
    free(values);
}

/* What a header asks for, when it is so little that an input can be filled up to it. */
static size_t length_of(const int32_t *words) {
    for (int i = 2; i < 8; i++)
        if (words[i] < 0 || words[i] > 64) return 0;
    const int64_t c = words[6];
    const int64_t count = (int64_t)(words[7] + words[2]) * c + words[4] * (12 * c * c + 13 * c) + 2 * c;
    const int64_t bytes = HEADER_BYTES + count * (words[1] == 5 ? 2 : 4);
    return bytes <= MOST_BYTES ? (size_t)bytes : 0;
}

static void make_file(fuzz_text *file, const uint8_t *data, size_t bytes) {
    const uint8_t *newline = memchr(data, '\n', bytes);
    const size_t line = newline ? (size_t)(newline - data) : bytes;
    char text[200] = "", *at = text;
    int32_t words[HEADER_BYTES / 4] = {20240326};
    memcpy(text, data, line < sizeof text ? line : sizeof text - 1);
    for (int i = 1; i < 8; i++) words[i] = (int32_t)strtol(at, &at, 10);
    fuzz_add(file, words, sizeof words);
    if (newline) fuzz_add(file, newline + 1, bytes - line - 1);
    static const char zeros[MOST_BYTES];
    const size_t wanted = length_of(words);
    /* One byte less or more stays as it is. */
    if (wanted > file->length + 1) fuzz_add(file, zeros, wanted - file->length);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    static const char *path;
    if (!path) path = fuzz_path("gpt2.bin");
    fuzz_text file = {0};
    if (bytes > 0 && data[0] == 0)
        fuzz_add(&file, data + 1, bytes - 1);
    else if (bytes > 0)
        make_file(&file, data, bytes);
    fuzz_write(path, file.bytes, file.length);
    shd_llmc_weights *opened = NULL;
    (void)shd_llmc_weights_recognize(path);
    sherd_status status = shd_llmc_weights_open(path, &opened);
    if (status != SHERD_OK) {
        fuzz_check_refusal(status, SHERD_DATA);
    } else {
        for (int32_t i = 0; i < shd_llmc_weights_count(opened); i++)
            check_tensor(&file, opened, shd_llmc_weights_at(opened, i));
        fuzz_note_accepted();
    }
    shd_llmc_weights_close(opened);
    fuzz_check_released();
    free(file.bytes);
    return 0;
}
