/* GPT-2 weights as llm.c writes them, made by hand from where each number lies. */
#ifndef TESTS_IO_LLMC_FILES_H
#define TESTS_IO_LLMC_FILES_H

#include <stddef.h>
#include <stdint.h>

typedef struct llmc_file {
    int32_t version, context, vocab_size, n_layer, n_head, d_model, padded_vocab_size;
} llmc_file;

/* The file's bytes, from malloc: element i of its data, over all tensors, is llmc_value(i), exact in bf16 too. */
char *make_llmc(const llmc_file *shape, size_t *bytes);
float llmc_value(int64_t index);

#endif
