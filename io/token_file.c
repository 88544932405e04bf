#define XXH_STATIC_LINKING_ONLY /* the streaming state on the stack */
#include "io/token_file.h"

#include "io/npy.h"
#include "runtime/base/arith.h"
#include "runtime/base/memory.h"
#include "runtime/base/status.h"

#include <endian.h>
#include <string.h>
#include <strings.h>
#include <xxhash.h>

/* --- opening ------------------------------------------------------------------------------------------------------ */

/* Reads exactly `bytes` at `offset`. */
static sherd_status read_at(shd_token_file *file, int64_t offset, int64_t bytes, void *out) {
    return shd_data_file_read(&file->file, offset, bytes, out);
}

static bool ends_in(const char *path, const char *ending) {
    size_t length = strlen(path), tail = strlen(ending);
    return length > tail && strcasecmp(path + length - tail, ending) == 0;
}

static uint32_t header_word(const unsigned char *header, int index) {
    uint32_t word;
    memcpy(&word, header + 4 * index, sizeof word);
    return le32toh(word);
}

static sherd_status find_format(shd_token_file *file) {
    unsigned char start[4];
    if (file->file.bytes >= (int64_t)sizeof start) {
        SHD_TRY(read_at(file, 0, sizeof start, start));
        if (header_word(start, 0) == SHD_LLMC_MAGIC) {
            file->format = SHD_FORMAT_LLMC;
            return SHERD_OK;
        }
    }
    static const struct {
        const char *ending;
        shd_job_format format;
    } endings[] = {{".txt", SHD_FORMAT_TEXT},
                   {".text", SHD_FORMAT_TEXT},
                   {".md", SHD_FORMAT_TEXT},
                   {".u16", SHD_FORMAT_U16},
                   {".u32", SHD_FORMAT_U32}};
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++)
        if (ends_in(file->file.path, endings[i].ending)) {
            file->format = endings[i].format;
            return SHERD_OK;
        }
    return shd_fail(SHERD_DATA,
                    "%s: neither an llmc header nor a name in .txt, .text, .md, .u16 or .u32 tells its format; set "
                    "data.format to llmc, u16, u32 or text",
                    file->file.path);
}

static sherd_status read_llmc_header(shd_token_file *file) {
    unsigned char header[24];
    if (file->file.bytes < SHD_LLMC_HEADER_BYTES)
        return shd_fail(SHERD_DATA, "%s: %lld bytes are too few for an llmc header of %d; is data.format right?",
                        file->file.path, (long long)file->file.bytes, SHD_LLMC_HEADER_BYTES);
    SHD_TRY(read_at(file, 0, sizeof header, header));
    int32_t magic = (int32_t)header_word(header, 0), version = (int32_t)header_word(header, 1);
    int32_t count = (int32_t)header_word(header, 2);
    if (magic != SHD_LLMC_MAGIC)
        return shd_fail(SHERD_DATA, "%s: bad llmc header: magic %d, expected %d; is data.format right?",
                        file->file.path, magic, SHD_LLMC_MAGIC);
    if (version != SHD_LLMC_VERSION)
        return shd_fail(SHERD_DATA, "%s: bad llmc header: version %d, expected %d (uint16 tokens)", file->file.path,
                        version, SHD_LLMC_VERSION);
    int64_t held = (file->file.bytes - SHD_LLMC_HEADER_BYTES) / 2;
    if (count < 0 || file->file.bytes != SHD_LLMC_HEADER_BYTES + 2 * (int64_t)count)
        return shd_fail(SHERD_DATA,
                        "%s: bad llmc header: %d tokens promised, the file holds %lld; it is damaged or cut short",
                        file->file.path, count, (long long)held);
    file->token_count = count;
    file->has_checksum = header_word(header, 3) == SHD_TOKEN_CHECKSUM_MARK;
    if (file->has_checksum) file->checksum = (uint64_t)header_word(header, 5) << 32 | header_word(header, 4);
    return SHERD_OK;
}

/* With a format that has no header, an array's header would pass for tokens. */
static sherd_status refuse_array(shd_token_file *file) {
    unsigned char start[SHD_NPY_MAGIC_BYTES] = {0};
    SHD_TRY(read_at(file, 0, shd_min(SHD_NPY_MAGIC_BYTES, file->file.bytes), start));
    if (!shd_npy_is(start)) return SHERD_OK;
    return shd_fail(SHERD_DATA,
                    "%s: a .npy array and no token file; write its ids alone: a.astype('<u2').tofile('tokens.u16')",
                    file->file.path);
}

static sherd_status read_layout(shd_token_file *file) {
    SHD_TRY(refuse_array(file));
    if (file->format == SHD_FORMAT_AUTO) SHD_TRY(find_format(file));
    file->token_bytes = file->format == SHD_FORMAT_U32 ? 4 : file->format == SHD_FORMAT_TEXT ? 1 : 2;
    if (file->format == SHD_FORMAT_LLMC) {
        file->first_byte = SHD_LLMC_HEADER_BYTES;
        return read_llmc_header(file);
    }
    if (file->file.bytes % file->token_bytes != 0)
        return shd_fail(
            SHERD_DATA,
            "%s: %lld bytes are no whole number of %lld-byte tokens; it is damaged, or data.format is wrong",
            file->file.path, (long long)file->file.bytes, (long long)file->token_bytes);
    file->token_count = file->file.bytes / file->token_bytes;
    return SHERD_OK;
}

sherd_status shd_token_file_open(const char *path, shd_job_format format, shd_open_files *group, shd_token_file *out) {
    *out = (shd_token_file){.format = format};
    sherd_status status = shd_data_file_open(path, "token file", group, &out->file);
    if (status == SHERD_OK) status = read_layout(out);
    if (status != SHERD_OK) shd_token_file_close(out);
    return status;
}

void shd_token_file_close(shd_token_file *file) { shd_data_file_close(&file->file); }

/* --- reading ------------------------------------------------------------------------------------------------------ */

/* Token `index` of raw bytes. */
static uint32_t raw_token(const unsigned char *raw, int64_t index, int64_t token_bytes) {
    uint16_t half;
    uint32_t word;
    switch (token_bytes) {
    case 1: return raw[index];
    case 2: memcpy(&half, raw + 2 * index, sizeof half); return le16toh(half);
    default: memcpy(&word, raw + 4 * index, sizeof word); return le32toh(word);
    }
}

sherd_status shd_token_file_read(shd_token_file *file, int64_t first, int64_t count, uint32_t *out) {
    /* The bytes come to lie at the end of `out` and are widened from its start on: the place where an id is written
     * never reaches one that is still to be read. */
    unsigned char *raw = (unsigned char *)out + (4 - file->token_bytes) * count;
    SHD_TRY(read_at(file, file->first_byte + first * file->token_bytes, count * file->token_bytes, raw));
    for (int64_t i = 0; i < count; i++) out[i] = raw_token(raw, i, file->token_bytes);
    return SHERD_OK;
}

sherd_status shd_token_file_fingerprint(shd_token_file *file, int32_t samples, uint64_t *hash) {
    const int64_t head[] = {file->format, file->token_count};
    return shd_data_file_fingerprint(&file->file, head, 2, samples, hash);
}

sherd_status shd_token_file_scan(shd_token_file *file, shd_token_scan *out) {
    enum { BLOCK_BYTES = 1 << 20 };
    unsigned char *block = shd_alloc(1, BLOCK_BYTES);
    if (!block) return shd_fail(SHERD_MEMORY, "%s: out of memory", file->file.path);
    shd_token_scan scan = {.lowest = file->token_count ? UINT32_MAX : 0};
    XXH3_state_t hash;
    XXH3_64bits_reset(&hash);
    sherd_status status = SHERD_OK;
    for (int64_t at = file->first_byte; at < file->file.bytes && status == SHERD_OK;) {
        int64_t bytes = shd_min(BLOCK_BYTES, file->file.bytes - at);
        status = read_at(file, at, bytes, block);
        if (status != SHERD_OK) break;
        XXH3_64bits_update(&hash, block, (size_t)bytes);
        for (int64_t i = 0; i < bytes / file->token_bytes; i++) {
            uint32_t id = raw_token(block, i, file->token_bytes);
            if (id < scan.lowest) scan.lowest = id;
            if (id > scan.highest) scan.highest = id;
        }
        at += bytes;
    }
    shd_free(block);
    SHD_TRY(status);
    scan.checksum = XXH3_64bits_digest(&hash);
    *out = scan;
    return SHERD_OK;
}

/* --- writing ------------------------------------------------------------------------------------------------------ */

void shd_llmc_header_make(int32_t token_count, uint64_t checksum, unsigned char out[SHD_LLMC_HEADER_BYTES]) {
    const uint32_t words[] = {SHD_LLMC_MAGIC,          SHD_LLMC_VERSION,   (uint32_t)token_count,
                              SHD_TOKEN_CHECKSUM_MARK, (uint32_t)checksum, (uint32_t)(checksum >> 32)};
    memset(out, 0, SHD_LLMC_HEADER_BYTES);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        uint32_t word = htole32(words[i]);
        memcpy(out + 4 * i, &word, sizeof word);
    }
}
