/* The files of a checkpoint made from fuzzed text, with checksums that are right. */
#ifndef TESTS_FUZZ_SEAL_H
#define TESTS_FUZZ_SEAL_H

#include "tests/fuzz/fuzz.h"

/* A rank file from its header up to the first newline and its values behind it. Blanks for "xxh3" in the header become
 * the checksums of the slices that it describes. *header_hash is what a manifest has of it. */
void seal_rank_file(fuzz_text *out, const uint8_t *data, size_t bytes, uint64_t *header_hash);

/* A manifest from the text before its seal. */
void seal_manifest(fuzz_text *out, const char *body, size_t bytes);

#endif
