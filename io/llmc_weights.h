/* GPT-2 weights as llm.c stores them: 256 int32 of header, then all parameters without gaps, little-endian.
 *
 * Header: magic 20240326; version 3 (float32) or 5 (bfloat16); context, vocabulary, layers, heads, width, and the rows
 * of the token table, which is padded with rows that mean nothing. Then one kind of parameter after the other, of every
 * layer each (llm.c, write_tensors in train_gpt2.py). Its matrices are [out, in], where GPT-2's are [in, out] here:
 * reads turn them, in pieces, so that memory does not grow with them.
 *
 * The reader trusts nothing: after a successful open every tensor lies in the file, which ends with the last one. */
#ifndef SHD_IO_LLMC_WEIGHTS_H
#define SHD_IO_LLMC_WEIGHTS_H

#include <sherd/dtype.h>
#include <sherd/status.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct shd_llmc_weights shd_llmc_weights;

/* A tensor under its name and in its shape in our gpt2: "h.0.attn.c_attn.weight". */
typedef struct shd_llmc_tensor {
    char name[48];
    int32_t dim_count;
    int64_t shape[2];
    int64_t element_count;
    int64_t offset_bytes; /* in the file */
    bool turned;          /* stored as [shape[1], shape[0]] */
} shd_llmc_tensor;

/* What the header says of the model. */
typedef struct shd_llmc_shape {
    sherd_dtype dtype; /* FP32 or BF16 */
    int64_t context, vocab_size, padded_vocab_size, n_layer, n_head, d_model;
} shd_llmc_shape;

/* Whether the file at `path` begins as one. False for what cannot be read. */
bool shd_llmc_weights_recognize(const char *path);

/* Opens `path` and checks header and length. Owns: the caller closes *out. Fails: IO, DATA (what is wrong, with the
 * file), MEMORY. */
sherd_status shd_llmc_weights_open(const char *path, shd_llmc_weights **out);
/* Accepts NULL. */
void shd_llmc_weights_close(shd_llmc_weights *file);

const shd_llmc_shape *shd_llmc_weights_shape(const shd_llmc_weights *file);
int32_t shd_llmc_weights_count(const shd_llmc_weights *file);
/* Borrowed from the file. */
const shd_llmc_tensor *shd_llmc_weights_at(const shd_llmc_weights *file, int32_t index);

/* Elements [first, first + count) of a tensor, row-major in its shape, widened. Fails: ARGUMENT (there are no such
 * elements), DATA (a file that has become shorter), IO. Threads: any. */
sherd_status shd_llmc_weights_read(const shd_llmc_weights *file, const shd_llmc_tensor *tensor, int64_t first,
                                   int64_t count, float *out);

#endif
