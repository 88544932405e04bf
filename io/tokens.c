#include "io/tokens.h"

#include "runtime/base/arith.h"
#include "runtime/base/memory.h"
#include "runtime/base/status.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

enum { LLMC_HEADER_BYTES = 1024, LLMC_MAGIC = 20240520, LLMC_VERSION = 1 };

struct shd_tokens {
    char *path;
    int file;
    shd_job_format format;
    int64_t file_bytes;
    int64_t first_byte;  /* of token 0 */
    int64_t token_bytes; /* of one token */
    int64_t token_count, vocab_size, context, ignored_token;
    unsigned char *raw; /* context + 1 tokens as in the file */
};

/* --- opening ------------------------------------------------------------------------------------------------------ */

/* Reads exactly `bytes` at `offset`. */
static sherd_status read_at(const shd_tokens *tokens, int64_t offset, int64_t bytes, void *out) {
    for (int64_t done = 0; done < bytes;) {
        ssize_t got = pread(tokens->file, (char *)out + done, (size_t)(bytes - done), offset + done);
        if (got == 0)
            return shd_fail(
                SHERD_DATA,
                "%s: ends at byte %lld, it had %lld bytes when the job started; do not change it during a run",
                tokens->path, (long long)(offset + done), (long long)tokens->file_bytes);
        if (got < 0 && errno != EINTR)
            return shd_fail(SHERD_IO, "%s: cannot read at byte %lld: %s", tokens->path, (long long)(offset + done),
                            strerror(errno));
        if (got > 0) done += got;
    }
    return SHERD_OK;
}

static bool ends_in(const char *path, const char *ending) {
    size_t length = strlen(path), tail = strlen(ending);
    return length > tail && strcasecmp(path + length - tail, ending) == 0;
}

static int32_t header_word(const unsigned char *header, int index) {
    uint32_t word;
    memcpy(&word, header + 4 * index, sizeof word);
    return (int32_t)le32toh(word);
}

static sherd_status find_format(shd_tokens *tokens) {
    unsigned char start[4];
    if (tokens->file_bytes >= (int64_t)sizeof start) {
        SHD_TRY(read_at(tokens, 0, sizeof start, start));
        if (header_word(start, 0) == LLMC_MAGIC) {
            tokens->format = SHD_FORMAT_LLMC;
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
        if (ends_in(tokens->path, endings[i].ending)) {
            tokens->format = endings[i].format;
            return SHERD_OK;
        }
    return shd_fail(SHERD_DATA,
                    "%s: neither an llmc header nor a name in .txt, .text, .md, .u16 or .u32 tells its format; set "
                    "data.format to llmc, u16, u32 or text",
                    tokens->path);
}

static sherd_status read_llmc_header(shd_tokens *tokens) {
    unsigned char header[12];
    if (tokens->file_bytes < LLMC_HEADER_BYTES)
        return shd_fail(SHERD_DATA, "%s: %lld bytes are too few for an llmc header of %d; is data.format right?",
                        tokens->path, (long long)tokens->file_bytes, LLMC_HEADER_BYTES);
    SHD_TRY(read_at(tokens, 0, sizeof header, header));
    int32_t magic = header_word(header, 0), version = header_word(header, 1), count = header_word(header, 2);
    if (magic != LLMC_MAGIC)
        return shd_fail(SHERD_DATA, "%s: bad llmc header: magic %d, expected %d; is data.format right?", tokens->path,
                        magic, LLMC_MAGIC);
    if (version != LLMC_VERSION)
        return shd_fail(SHERD_DATA, "%s: bad llmc header: version %d, expected %d (uint16 tokens)", tokens->path,
                        version, LLMC_VERSION);
    int64_t held = (tokens->file_bytes - LLMC_HEADER_BYTES) / 2;
    if (count < 0 || tokens->file_bytes != LLMC_HEADER_BYTES + 2 * (int64_t)count)
        return shd_fail(SHERD_DATA,
                        "%s: bad llmc header: %d tokens promised, the file holds %lld; it is damaged or cut short",
                        tokens->path, count, (long long)held);
    tokens->token_count = count;
    return SHERD_OK;
}

static sherd_status read_layout(shd_tokens *tokens) {
    if (tokens->format == SHD_FORMAT_AUTO) SHD_TRY(find_format(tokens));
    tokens->token_bytes = tokens->format == SHD_FORMAT_U32 ? 4 : tokens->format == SHD_FORMAT_TEXT ? 1 : 2;
    if (tokens->format == SHD_FORMAT_LLMC) {
        tokens->first_byte = LLMC_HEADER_BYTES;
        SHD_TRY(read_llmc_header(tokens));
    } else {
        if (tokens->file_bytes % tokens->token_bytes != 0)
            return shd_fail(
                SHERD_DATA,
                "%s: %lld bytes are no whole number of %lld-byte tokens; it is damaged, or data.format is wrong",
                tokens->path, (long long)tokens->file_bytes, (long long)tokens->token_bytes);
        tokens->token_count = tokens->file_bytes / tokens->token_bytes;
    }
    if (tokens->token_count < tokens->context + 1)
        return shd_fail(SHERD_DATA, "%s: %s%lld tokens are too few; model.context %lld needs at least %lld",
                        tokens->path, tokens->token_count == 0 ? "empty: " : "", (long long)tokens->token_count,
                        (long long)tokens->context, (long long)tokens->context + 1);
    return SHERD_OK;
}

static sherd_status open_file(shd_tokens *tokens) {
    tokens->file = open(tokens->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (tokens->file < 0)
        return shd_fail(SHERD_DATA, "%s: cannot open the token file: %s", tokens->path, strerror(errno));
    struct stat about;
    if (fstat(tokens->file, &about) != 0 || !S_ISREG(about.st_mode))
        return shd_fail(SHERD_DATA, "%s: not a regular file; a token file is one", tokens->path);
    tokens->file_bytes = about.st_size;
    SHD_TRY(read_layout(tokens));
    tokens->raw = shd_alloc((size_t)tokens->context + 1, (size_t)tokens->token_bytes);
    return tokens->raw ? SHERD_OK : shd_fail(SHERD_MEMORY, "%s: out of memory", tokens->path);
}

sherd_status shd_tokens_open(const shd_tokens_config *config, shd_tokens **out) {
    shd_tokens *tokens = shd_alloc(1, sizeof *tokens);
    if (!tokens) return shd_fail(SHERD_MEMORY, "%s: out of memory", config->path);
    *tokens = (shd_tokens){.file = -1,
                           .format = config->format,
                           .vocab_size = config->vocab_size,
                           .context = config->context,
                           .ignored_token = config->ignored_token};
    tokens->path = shd_strdup(config->path);
    sherd_status status = tokens->path ? open_file(tokens) : shd_fail(SHERD_MEMORY, "%s: out of memory", config->path);
    if (status != SHERD_OK) {
        shd_tokens_close(tokens);
        return status;
    }
    *out = tokens;
    return SHERD_OK;
}

void shd_tokens_close(shd_tokens *tokens) {
    if (!tokens) return;
    if (tokens->file >= 0) close(tokens->file);
    shd_free(tokens->raw);
    shd_free(tokens->path);
    shd_free(tokens);
}

int64_t shd_tokens_count(const shd_tokens *tokens) { return tokens->token_count; }

int64_t shd_tokens_sequence_count(const shd_tokens *tokens) { return (tokens->token_count - 1) / tokens->context; }

/* --- reading ------------------------------------------------------------------------------------------------------ */

/* Token `i` of the raw buffer. */
static uint32_t raw_token(const shd_tokens *tokens, int64_t i) {
    const unsigned char *at = tokens->raw + i * tokens->token_bytes;
    uint16_t half;
    uint32_t word;
    switch (tokens->token_bytes) {
    case 1: return *at;
    case 2: memcpy(&half, at, sizeof half); return le16toh(half);
    default: memcpy(&word, at, sizeof word); return le32toh(word);
    }
}

sherd_status shd_tokens_read(shd_tokens *tokens, int64_t index, int32_t *inputs, int32_t *targets, int64_t *counted) {
    int64_t context = tokens->context;
    int64_t offset = tokens->first_byte + index * context * tokens->token_bytes;
    SHD_TRY(read_at(tokens, offset, (context + 1) * tokens->token_bytes, tokens->raw));
    int64_t kept = 0;
    for (int64_t i = 0; i <= context; i++) {
        uint32_t id = raw_token(tokens, i);
        if (id >= tokens->vocab_size)
            return shd_fail(SHERD_DATA, "%s: token %u at byte %lld is not below model.vocab_size %lld", tokens->path,
                            id, (long long)(offset + i * tokens->token_bytes), (long long)tokens->vocab_size);
        bool ignored = id == tokens->ignored_token;
        if (i < context) inputs[i] = (int32_t)id;
        if (i > 0) targets[i - 1] = ignored ? -1 : (int32_t)id;
        kept += i > 0 && !ignored;
    }
    *counted = kept;
    return SHERD_OK;
}

sherd_status shd_tokens_sample(shd_tokens *tokens) {
    enum { SAMPLES = 64 };
    int64_t last = shd_tokens_sequence_count(tokens) - 1, counted;
    int64_t samples = shd_min(SAMPLES, last + 1);
    int32_t *room = shd_alloc(2 * (size_t)tokens->context, sizeof *room);
    if (!room) return shd_fail(SHERD_MEMORY, "%s: out of memory", tokens->path);
    sherd_status status = SHERD_OK;
    for (int64_t i = 0; i < samples && status == SHERD_OK; i++) {
        int64_t index = i == samples - 1 ? last : last / samples * i;
        status = shd_tokens_read(tokens, index, room, room + tokens->context, &counted);
    }
    shd_free(room);
    return status;
}

sherd_status shd_tokens_fingerprint(shd_tokens *tokens, uint64_t *out) {
    enum { SAMPLES = 64, SAMPLE_BYTES = 1024 };
    unsigned char sample[SAMPLE_BYTES];
    int64_t head[2] = {tokens->format, tokens->token_count};
    uint64_t hash = XXH3_64bits(head, sizeof head);
    int64_t last = shd_max(0, tokens->file_bytes - SAMPLE_BYTES);
    for (int64_t i = 0; i < SAMPLES; i++) {
        int64_t offset = last / (SAMPLES - 1) * i;
        if (i == SAMPLES - 1) offset = last;
        int64_t bytes = shd_min(SAMPLE_BYTES, tokens->file_bytes - offset);
        SHD_TRY(read_at(tokens, offset, bytes, sample));
        hash = XXH3_64bits_withSeed(sample, (size_t)bytes, hash);
    }
    *out = hash;
    return SHERD_OK;
}
