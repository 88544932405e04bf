/* A source of training sequences: token files in a given order (shards), cut into sequences.
 *
 * A sequence has T inputs and, shifted by one, T targets. Without a separator each file is cut by itself: sequence j of
 * a file is tokens [jT, jT + T], and what its tail leaves, or a file shorter than T + 1, is dropped. With one, files
 * are joined and sequences are cut from the whole: so documents are packed and only the last tail is dropped. Texts
 * are documents: the separator is put between a text and its neighbours, where neither brings it along. Other formats
 * hold their separators, and their files may be cut anywhere.
 *
 * Ids are checked when they are read. Few files are open at once, however many there are. */
#ifndef SHD_IO_TOKENS_H
#define SHD_IO_TOKENS_H

#include "io/job.h"
#include "io/source.h"

/* A vocabulary of 256 tokens is taken for one of bytes, one of 257 for bytes and a token that ends a text. */
enum { SHD_BYTE_TOKENS = 256 };
static inline bool shd_vocabulary_is_bytes(int64_t vocab_size) {
    return vocab_size == SHD_BYTE_TOKENS || vocab_size == SHD_BYTE_TOKENS + 1;
}

typedef struct shd_tokens shd_tokens;

typedef struct shd_tokens_config {
    const char *key;          /* of the job, for messages: "data.train" */
    const char *const *paths; /* files and globs (file_list.h) */
    int32_t path_count;
    shd_job_format format;
    int64_t vocab_size;    /* every id is below it */
    int64_t context;       /* T */
    int64_t ignored_token; /* targets with this id become -1; -1: none */
    int64_t separator;     /* -1: none */
    int32_t open_files;    /* at once, at most; 0: 64 */
} shd_tokens_config;

/* Opens the files and checks headers and lengths. Owns: texts are copied; close *out with shd_tokens_close.
 * Fails: DATA (the file and what is wrong with it; no sequence in any file), IO, MEMORY. */
sherd_status shd_tokens_open(const shd_tokens_config *config, shd_tokens **out);
/* Accepts NULL. */
void shd_tokens_close(shd_tokens *tokens);

shd_source_summary shd_tokens_summarize(const shd_tokens *tokens);

/* Reads sequence `index` in [0, S): T inputs, T targets, and into *counted how many targets are not ignored. Allocates
 * nothing.
 * Fails: DATA (an id not below vocab_size, with its file and byte offset; a file whose length has changed), IO.
 * Threads: one at a time. */
sherd_status shd_tokens_read(shd_tokens *tokens, int64_t index, int32_t *inputs, int32_t *targets, int64_t *counted);

/* Where sequence `index` begins. Threads: any. */
shd_source_place shd_tokens_locate(const shd_tokens *tokens, int64_t index);

/* Reads a few sequences, the first and the last among them, for what shd_tokens_read refuses: a vocabulary that does
 * not fit shows at once. Fails: DATA, IO, MEMORY. */
sherd_status shd_tokens_sample(shd_tokens *tokens);
/* Reads every token of every file, also those in no sequence, and holds the files' checksums, where they state one,
 * against them. *summed_count: files that state one. Fails: DATA (an id not below vocab_size, with its file and byte
 * offset; a checksum), IO, MEMORY. */
sherd_status shd_tokens_scan(shd_tokens *tokens, int64_t *summed_count);

#endif
