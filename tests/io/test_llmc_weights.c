#include "io/llmc_weights.h"
#include "runtime/base/memory.h"
#include "tests/io/files.h"
#include "tests/io/llmc_files.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const llmc_file small = {
    .version = 3, .context = 7, .vocab_size = 13, .n_layer = 3, .n_head = 2, .d_model = 6, .padded_vocab_size = 16};

static char *write_llmc(const char *folder, const llmc_file *shape) {
    size_t bytes;
    char *content = make_llmc(shape, &bytes), *path = path_in(folder, "gpt2.bin");
    write_whole(path, content, bytes);
    free(content);
    return path;
}

/* The tensors of a layer as llm.c lists them, with rows and columns of what it stores, in widths. */
static const struct {
    const char *name;
    int rows, columns;
} stored[] = {{"ln_1.weight", 1, 0},      {"ln_1.bias", 1, 0},          {"attn.c_attn.weight", 3, 1},
              {"attn.c_attn.bias", 3, 0}, {"attn.c_proj.weight", 1, 1}, {"attn.c_proj.bias", 1, 0},
              {"ln_2.weight", 1, 0},      {"ln_2.bias", 1, 0},          {"mlp.c_fc.weight", 4, 1},
              {"mlp.c_fc.bias", 4, 0},    {"mlp.c_proj.weight", 1, 4},  {"mlp.c_proj.bias", 1, 0}};

static const shd_llmc_tensor *find(const shd_llmc_weights *file, const char *name) {
    for (int32_t i = 0; i < shd_llmc_weights_count(file); i++)
        if (!strcmp(shd_llmc_weights_at(file, i)->name, name)) return shd_llmc_weights_at(file, i);
    cr_assert_fail("there is no %s", name);
    return NULL;
}

/* Tensor `name`, whose data begin at element `at`, [rows, columns] as stored, is read turned (or as it is). */
static void check_values(const shd_llmc_weights *file, const char *name, int64_t at, int64_t rows, int64_t columns,
                         bool turned) {
    const shd_llmc_tensor *tensor = find(file, name);
    float values[1000];
    cr_assert_eq(tensor->dim_count, columns ? 2 : 1);
    cr_assert_eq(tensor->shape[0], turned ? columns : rows, "%s", name);
    if (columns) cr_assert_eq(tensor->shape[1], turned ? rows : columns);
    const int64_t count = rows * (columns ? columns : 1);
    cr_assert_eq(tensor->element_count, count);
    const int64_t portions[] = {1, 3, 17, count};
    for (size_t p = 0; p < sizeof portions / sizeof *portions; p++) {
        const int64_t portion = portions[p];
        for (int64_t first = 0; first < count; first += portion)
            cr_assert_eq(shd_llmc_weights_read(file, tensor, first, portion < count - first ? portion : count - first,
                                               values + first),
                         SHERD_OK, "%s", sherd_last_error());
        for (int64_t i = 0; i < count; i++) {
            int64_t from = turned ? i % rows * columns + i / rows : i;
            cr_assert_eq(values[i], llmc_value(at + from), "%s[%d] in portions of %d", name, (int)i, (int)portion);
        }
    }
    cr_assert_eq(shd_llmc_weights_read(file, tensor, 0, 0, values), SHERD_OK);
    cr_assert_eq(shd_llmc_weights_read(file, tensor, count, 1, values), SHERD_ARGUMENT);
    cr_assert_eq(shd_llmc_weights_read(file, tensor, -1, 1, values), SHERD_ARGUMENT);
    cr_assert_eq(shd_llmc_weights_read(file, tensor, 1, INT64_MAX, values), SHERD_ARGUMENT);
}

Test(llmc_weights, reads_every_element_from_where_it_lies) {
    char *folder = make_folder();
    for (int32_t version = 3; version <= 5; version += 2) {
        llmc_file shape = small;
        shape.version = version;
        const char *path = write_llmc(folder, &shape);
        cr_assert(shd_llmc_weights_recognize(path));
        shd_llmc_weights *file;
        cr_assert_eq(shd_llmc_weights_open(path, &file), SHERD_OK, "%s", sherd_last_error());
        const shd_llmc_shape *found = shd_llmc_weights_shape(file);
        cr_assert(found->dtype == (version == 5 ? SHERD_BF16 : SHERD_FP32) && found->context == 7 &&
                  found->vocab_size == 13 && found->padded_vocab_size == 16 && found->n_layer == 3 &&
                  found->n_head == 2 && found->d_model == 6);
        cr_assert_eq(shd_llmc_weights_count(file), 4 + 12 * 3);
        check_values(file, "wte.weight", 0, 13, 6, false);
        check_values(file, "wpe.weight", 16 * 6, 7, 6, false);
        int64_t at = (16 + 7) * 6;
        for (size_t k = 0; k < sizeof stored / sizeof *stored; k++)
            for (int layer = 0; layer < 3; layer++) {
                char name[64];
                snprintf(name, sizeof name, "h.%d.%s", layer, stored[k].name);
                const int rows = stored[k].rows * 6, columns = stored[k].columns * 6;
                check_values(file, name, at, rows, columns, columns > 0);
                at += rows * (columns ? columns : 1);
            }
        check_values(file, "ln_f.weight", at, 6, 0, false);
        check_values(file, "ln_f.bias", at + 6, 6, 0, false);
        /* A file that shrinks under the reader is an error, not a signal. */
        float value;
        cr_assert_eq(truncate(path, 1030), 0);
        cr_assert_eq(shd_llmc_weights_read(file, find(file, "ln_f.bias"), 0, 1, &value), SHERD_DATA);
        shd_llmc_weights_close(file);
    }
    shd_llmc_weights_close(NULL);
    cr_assert_eq(shd_memory_held(SHD_MEMORY_OBJECTS), 0);
    remove_folder(folder);
}

Test(llmc_weights, refuses_every_defect_and_names_the_file) {
    char *folder = make_folder();
    static const struct {
        int word; /* of the header; -1: bytes are added, or with a negative value taken away */
        int32_t value;
        const char *says;
    } rows[] = {
        {0, 20240520, "it does not begin with 20240326"},
        {1, 4, "it has version 4; versions 3 (float32) and 5 (bfloat16) can be read"},
        {1, 0, "version 0"},
        {1, 5, "bytes; a model as its header says takes"},
        {2, 0, "context 0, which is not from 1 to 16777216"},
        {3, -1, "vocabulary -1, which"},
        {4, 4097, "layers 4097, which"},
        {4, 2, "bytes; a model as its header says takes"},
        {5, 0, "heads 0, which"},
        {6, 1 << 21, "width 2097152, which"},
        {7, 12, "a padded vocabulary of 12, below the vocabulary's 13"},
        {-1, 1, "bytes; a model as its header says takes"},
        {-1, -1, "bytes; a model as its header says takes"},
        {-1, -100000, "its header alone 1024"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        size_t bytes;
        char *content = make_llmc(&small, &bytes), *path = path_in(folder, "bad.bin");
        content = realloc(content, bytes + 1);
        if (rows[i].word >= 0) memcpy(content + 4 * rows[i].word, &rows[i].value, 4);
        int64_t length = rows[i].word >= 0 ? (int64_t)bytes : (int64_t)bytes + rows[i].value;
        write_whole(path, content, length < 0 ? 100 : (size_t)length);
        free(content);
        shd_llmc_weights *file = NULL;
        cr_assert_eq(shd_llmc_weights_open(path, &file), SHERD_DATA, "row %zu", i);
        cr_assert(!file && strstr(sherd_last_error(), path) && strstr(sherd_last_error(), rows[i].says), "row %zu: %s",
                  i, sherd_last_error());
        cr_assert_eq(shd_llmc_weights_recognize(path), rows[i].word != 0 && length > 0);
    }
    shd_llmc_weights *file;
    cr_assert_eq(shd_llmc_weights_open(path_in(folder, "none"), &file), SHERD_IO);
    cr_assert_not(shd_llmc_weights_recognize(path_in(folder, "none")));
    cr_assert_not(shd_llmc_weights_recognize(folder));
    remove_folder(folder);
}
