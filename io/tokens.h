/* A token file, cut into training sequences.
 *
 * llmc: 256 little-endian int32 (magic 20240520, version 1, token count), then uint16 · u16, u32: bare little-endian
 * numbers · text: bytes as tokens. Sequence j is tokens [jT, jT + T), its targets the same shifted by one; there are S
 * = (tokens - 1) / T of them.
 *
 * Files are read with pread, not mapped: a file that is cut short under a mapping kills the process, and tokens are
 * widened into a batch anyway (docs/decisions/0006-token-files.md). Ids are checked when they are read. */
#ifndef SHD_IO_TOKENS_H
#define SHD_IO_TOKENS_H

#include "io/job.h"

/* A vocabulary of 256 tokens is taken for one of bytes, one of 257 for bytes and a token that ends a text. */
enum { SHD_BYTE_TOKENS = 256 };
static inline bool shd_vocabulary_is_bytes(int64_t vocab_size) {
    return vocab_size == SHD_BYTE_TOKENS || vocab_size == SHD_BYTE_TOKENS + 1;
}

typedef struct shd_tokens shd_tokens;

typedef struct shd_tokens_config {
    const char *path;
    shd_job_format format; /* AUTO: llmc by its magic; else by the name's end: .txt .text .md, .u16, .u32 */
    int64_t vocab_size;    /* every id is below it */
    int64_t context;       /* T */
    int64_t ignored_token; /* targets with this id become -1; -1: none */
} shd_tokens_config;

/* Opens the file and checks header and length. Owns: `config->path` is copied; close *out with shd_tokens_close.
 * Fails: DATA (the file and what is wrong with it), MEMORY. */
sherd_status shd_tokens_open(const shd_tokens_config *config, shd_tokens **out);
/* Accepts NULL. */
void shd_tokens_close(shd_tokens *tokens);

int64_t shd_tokens_count(const shd_tokens *tokens);
int64_t shd_tokens_sequence_count(const shd_tokens *tokens);

/* Reads sequence `index` in [0, S): T inputs, T targets, and into *counted how many targets are not ignored. Allocates
 * nothing.
 * Fails: DATA (an id not below vocab_size, with its byte offset; a file that has become shorter), IO. Threads: one at a
 * time. */
sherd_status shd_tokens_read(shd_tokens *tokens, int64_t index, int32_t *inputs, int32_t *targets, int64_t *counted);

/* Reads a few sequences, the first and the last among them, for what shd_tokens_read refuses: a vocabulary that does not
 * fit shows at once. Fails: DATA, IO, MEMORY. */
sherd_status shd_tokens_sample(shd_tokens *tokens);

/* A hash of format, token count and 64 samples spread over the file, to tell that data has changed. Fails: DATA, IO. */
sherd_status shd_tokens_fingerprint(shd_tokens *tokens, uint64_t *out);

#endif
