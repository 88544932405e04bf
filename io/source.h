/* What a source of training data holds, be it of tokens (tokens.h) or of arrays (arrays.h). */
#ifndef SHD_IO_SOURCE_H
#define SHD_IO_SOURCE_H

#include <sherd/status.h>
#include <stdint.h>

typedef struct shd_source_summary {
    int32_t file_count;
    int32_t short_count;    /* files of tokens that hold no sequence; 0 with a separator */
    int64_t token_count;    /* separators between files included; of arrays samples */
    int64_t sequence_count; /* S > 0, or samples */
    int64_t dropped_count;  /* tokens in no sequence */
    uint64_t fingerprint;   /* a hash of formats, sizes and samples spread over the files */
} shd_source_summary;

/* Where a sequence or sample lies. */
typedef struct shd_source_place {
    const char *file; /* borrowed from the source */
    int64_t index; /* in the file, from 0: of the sequence, or the sample's row; of packed documents the number of the
                         sequence in all files together */
    int64_t
        token; /* of a sequence: where its first token is in the file, which one that begins with a separator between
                         two files follows at its end; -1: a sample */
} shd_source_place;

/* How many places of a source are looked at for its fingerprint: spread over all files, but a few in each. */
static inline int32_t shd_source_samples(int32_t file_count) { return 64 / file_count > 4 ? 64 / file_count : 4; }

#endif
