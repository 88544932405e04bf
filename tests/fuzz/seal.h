/* The files of a checkpoint made from fuzzed text, with checksums that are right. */
#ifndef TESTS_FUZZ_SEAL_H
#define TESTS_FUZZ_SEAL_H

#include "tests/fuzz/fuzz.h"

#include <stdint.h>

/* The file of `rank` of step 3: its index up to the first newline, then what is stored of its blocks, one behind the
 * other without the zeros between them, each as long as its "bytes" say. Blanks for "offset" and "xxh3" in the index
 * become those of the blocks. *index_hash is what a manifest has of it. */
void seal_rank_file(fuzz_text *out, const uint8_t *data, size_t bytes, int32_t rank, uint64_t *index_hash);

/* A manifest from the text before its seal. */
void seal_manifest(fuzz_text *out, const char *body, size_t bytes);

#endif
