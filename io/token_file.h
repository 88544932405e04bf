/* One token file: a header or none, then token ids.
 *
 * llmc: 256 little-endian int32 (magic 20240520, version 1, token count), then uint16 · u16, u32: bare little-endian
 * numbers · text: bytes as tokens. `sherd data pack` fills three more words of an llmc header, which other readers
 * skip: word 3 is SHD_TOKEN_CHECKSUM_MARK, words 4 and 5 are the low and high half of the XXH3 (64 bits) of all token
 * bytes. */
#ifndef SHD_IO_TOKEN_FILE_H
#define SHD_IO_TOKEN_FILE_H

#include "io/data_file.h"
#include "io/job.h"

enum {
    SHD_LLMC_HEADER_BYTES = 1024,
    SHD_LLMC_MAGIC = 20240520,
    SHD_LLMC_VERSION = 1,
    SHD_TOKEN_CHECKSUM_MARK = 0x33485858 /* "XXH3" */
};

typedef struct shd_token_file {
    shd_data_file file;
    shd_job_format format;
    int64_t first_byte;  /* of token 0 */
    int64_t token_bytes; /* of one token */
    int64_t token_count;
    bool has_checksum;
    uint64_t checksum; /* as the header states it */
} shd_token_file;

/* Opens the file and checks header and length; `format` AUTO: llmc by its magic, else by the name's end: .txt .text
 * .md, .u16, .u32. A file without tokens is fine. `group`: as for a shd_data_file, *out is filled in
 * place. Fails: DATA (the file and what is wrong with it), IO. */
sherd_status shd_token_file_open(const char *path, shd_job_format format, shd_open_files *group, shd_token_file *out);
/* Gives the descriptor back; the file can be read as before. */
void shd_token_file_close(shd_token_file *file);

/* Reads ids [first, first + count). Allocates nothing.
 * Fails: DATA (the file has changed its length, with the byte), IO. Threads: one at a time. */
sherd_status shd_token_file_read(shd_token_file *file, int64_t first, int64_t count, uint32_t *out);

/* Continues `hash` over format, token count and `samples` KiB spread over the file, to tell that data has changed.
 * Fails: as reading. */
sherd_status shd_token_file_fingerprint(shd_token_file *file, int32_t samples, uint64_t *hash);

/* What a walk over all tokens finds. */
typedef struct shd_token_scan {
    uint32_t lowest, highest; /* ids; 0 and 0 of an empty file */
    uint64_t checksum;        /* XXH3 of the token bytes */
} shd_token_scan;
/* Fails: as reading, MEMORY. */
sherd_status shd_token_file_scan(shd_token_file *file, shd_token_scan *out);

/* Fills the first words of a header; the rest is zero. */
void shd_llmc_header_make(int32_t token_count, uint64_t checksum, unsigned char out[SHD_LLMC_HEADER_BYTES]);

#endif
