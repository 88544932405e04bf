/* The readers of token files and of sources made of several. Input: 8 bytes that say how the source is opened, then its
 * files, "FILE" before each but the first.
 *
 * byte 0 the format · 1 the names' end · 2 context - 1, and in the highest bit whether the first file is cut while it is
 * open · 3, 4 vocab_size - 1, little-endian · 5 the ignored token, 6 the separator; 255: none · 7 how many files may be
 * open - 1, and in the highest bit whether each file is also scanned, which takes a buffer far larger than the file.
 * What opens, and every sequence, is compared with a plain reading of the whole source. */
#include "io/token_file.h"
#include "io/tokens.h"
#include "tests/fuzz/fuzz.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

enum { HEAD_BYTES = 8, FORMATS = SHD_FORMAT_TEXT + 1, CONTEXT_MAX = 128, FILES_MAX = 6, NAMES = 6 };

/* --- a plain reading ---------------------------------------------------------------------------------------------- */

typedef struct plain_file {
    const char *path;
    const uint8_t *bytes;
    size_t length;
    shd_job_format format; /* AUTO: nothing tells it */
    bool legal;
    int64_t first_byte, count;
} plain_file;

/* The source as one row of ids; `starts` are the places where a file that is cut by itself begins, and the end. */
typedef struct plain_source {
    plain_file files[FILES_MAX];
    int count;
    uint32_t *ids;
    int64_t length;
    int64_t starts[FILES_MAX + 1];
    int start_count;
} plain_source;

static uint32_t word_at(const uint8_t *bytes) {
    return bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
}

static shd_job_format find_format(shd_job_format format, const plain_file *file) {
    static const struct {
        const char *ending;
        shd_job_format format;
    } rows[] = {{".txt", SHD_FORMAT_TEXT},
                {".text", SHD_FORMAT_TEXT},
                {".md", SHD_FORMAT_TEXT},
                {".u16", SHD_FORMAT_U16},
                {".U32", SHD_FORMAT_U32}};
    if (format != SHD_FORMAT_AUTO) return format;
    if (file->length >= 4 && word_at(file->bytes) == 20240520) return SHD_FORMAT_LLMC;
    const char *dot = strrchr(file->path, '.');
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strcmp(dot, rows[i].ending) == 0) return rows[i].format;
    return SHD_FORMAT_AUTO;
}

static void measure(plain_file *file, shd_job_format format) {
    file->format = find_format(format, file);
    size_t width = file->format == SHD_FORMAT_U32 ? 4 : file->format == SHD_FORMAT_TEXT ? 1 : 2, length = file->length;
    file->first_byte = 0;
    file->count = (int64_t)(length / width);
    bool array = length >= 6 && memcmp(file->bytes, "\x93NUMPY", 6) == 0;
    file->legal = file->format != SHD_FORMAT_AUTO && length % width == 0 && !array;
    if (file->format != SHD_FORMAT_LLMC) return;
    file->first_byte = 1024;
    file->count = length >= 1024 ? word_at(file->bytes + 8) : 0;
    file->legal = length >= 1024 && word_at(file->bytes) == 20240520 && word_at(file->bytes + 4) == 1 &&
                  length == 1024 + 2 * (size_t)file->count;
}

static uint32_t decode(const plain_file *file, int64_t index) {
    const uint8_t *at = file->bytes + file->first_byte;
    switch (file->format) {
    case SHD_FORMAT_TEXT: return at[index];
    case SHD_FORMAT_U32: return word_at(at + 4 * index);
    default: return at[2 * index] | (uint32_t)at[2 * index + 1] << 8;
    }
}

/* Lays the files in a row. Where they are packed together, a separator stands between a text and its neighbours, unless
 * one of the two brings it along. */
static void lay_out(plain_source *source, int64_t separator) {
    int64_t most = FILES_MAX;
    const plain_file *before = NULL; /* the last one with tokens */
    for (int i = 0; i < source->count; i++) most += source->files[i].count;
    source->ids = malloc((size_t)most * sizeof *source->ids);
    fuzz_check(source->ids);
    for (int i = 0; i < source->count; i++) {
        const plain_file *file = &source->files[i];
        if (separator < 0 || i == 0) source->starts[source->start_count++] = source->length;
        if (file->count == 0) continue;
        bool texts = before && (before->format == SHD_FORMAT_TEXT || file->format == SHD_FORMAT_TEXT);
        if (separator >= 0 && texts && source->ids[source->length - 1] != separator && decode(file, 0) != separator)
            source->ids[source->length++] = (uint32_t)separator;
        for (int64_t k = 0; k < file->count; k++) source->ids[source->length++] = decode(file, k);
        before = file;
    }
    source->starts[source->start_count] = source->length;
}

/* --- comparing ---------------------------------------------------------------------------------------------------- */

static void check_sequence(shd_tokens *tokens, const shd_tokens_config *config, int64_t index, const uint32_t *ids) {
    int32_t inputs[CONTEXT_MAX], targets[CONTEXT_MAX];
    int64_t counted = -1, expected = 0;
    bool legal = true;
    for (int64_t i = 0; i <= config->context; i++) legal = legal && ids[i] < config->vocab_size;
    sherd_status status = shd_tokens_read(tokens, index, inputs, targets, &counted);
    if (!legal) {
        fuzz_check_refusal(status, SHERD_DATA);
        return;
    }
    fuzz_check(status == SHERD_OK);
    fuzz_note_accepted();
    for (int64_t i = 0; i < config->context; i++) {
        bool ignored = ids[i + 1] == config->ignored_token;
        fuzz_check((uint32_t)inputs[i] == ids[i]);
        fuzz_check(targets[i] == (ignored ? -1 : (int32_t)ids[i + 1]));
        expected += !ignored;
    }
    fuzz_check(counted == expected);
}

/* The sequences that `source` has; each is compared when `tokens` is there. */
static int64_t walk(const plain_source *source, const shd_tokens_config *config, shd_tokens *tokens) {
    int64_t sequences = 0;
    for (int i = 0; i < source->start_count; i++)
        for (int64_t at = source->starts[i]; at + config->context < source->starts[i + 1]; at += config->context) {
            if (tokens) check_sequence(tokens, config, sequences, source->ids + at);
            sequences++;
        }
    return sequences;
}

/* The first file loses its last byte while it is open: what needs it is refused, and nothing else. */
static void check_cut(shd_tokens *tokens, const plain_source *source, int64_t sequences) {
    int32_t inputs[CONTEXT_MAX], targets[CONTEXT_MAX];
    int64_t counted;
    if (source->files[0].length == 0) return;
    fuzz_check(truncate(source->files[0].path, (off_t)source->files[0].length - 1) == 0);
    for (int64_t i = 0; i < sequences; i++) {
        sherd_status status = shd_tokens_read(tokens, i, inputs, targets, &counted);
        if (status != SHERD_OK) fuzz_check_refusal(status, SHERD_DATA);
    }
}

/* A file by itself, as `sherd data show` reads it. */
static void check_file(const plain_file *plain, shd_job_format format, bool scanned) {
    shd_token_file file;
    shd_token_scan scan;
    sherd_status status = shd_token_file_open(plain->path, format, NULL, &file);
    if (!plain->legal) {
        fuzz_check_refusal(status, SHERD_DATA);
        return;
    }
    fuzz_check(status == SHERD_OK && file.format == plain->format && file.token_count == plain->count);
    if (!scanned) {
        shd_token_file_close(&file);
        return;
    }
    fuzz_check(shd_token_file_scan(&file, &scan) == SHERD_OK);
    uint32_t lowest = plain->count ? UINT32_MAX : 0, highest = 0;
    for (int64_t i = 0; i < plain->count; i++) {
        uint32_t id = decode(plain, i);
        lowest = id < lowest ? id : lowest;
        highest = id > highest ? id : highest;
    }
    fuzz_check(scan.lowest == lowest && scan.highest == highest);
    fuzz_check(scan.checksum ==
               XXH3_64bits(plain->bytes + plain->first_byte, plain->length - (size_t)plain->first_byte));
    shd_token_file_close(&file);
}

static void check_source(const shd_tokens_config *config, plain_source *source, bool cut, bool scanned) {
    bool legal = true;
    for (int i = 0; i < source->count; i++) {
        check_file(&source->files[i], config->format, scanned);
        legal = legal && source->files[i].legal;
    }
    if (legal) lay_out(source, config->separator);
    int64_t sequences = legal ? walk(source, config, NULL) : 0;
    shd_tokens *tokens = NULL;
    sherd_status status = shd_tokens_open(config, &tokens);
    if (sequences == 0) {
        fuzz_check_refusal(status, SHERD_DATA);
        return;
    }
    fuzz_check(status == SHERD_OK);
    shd_source_summary summary = shd_tokens_summarize(tokens);
    fuzz_check(summary.file_count == source->count && summary.sequence_count == sequences);
    fuzz_check(summary.token_count == source->length);
    if (cut)
        check_cut(tokens, source, sequences);
    else
        walk(source, config, tokens);
    shd_tokens_close(tokens);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    static const char *const names[NAMES] = {"0.bin", "0.txt", "0.text", "0.md", "0.u16", "0.U32"};
    static const char *paths[NAMES][FILES_MAX];
    if (bytes < HEAD_BYTES) return 0;
    for (int i = 0; i < NAMES && !paths[NAMES - 1][0]; i++)
        for (int k = 0; k < FILES_MAX; k++) {
            char name[16] = "";
            strcat(name, names[i]);
            name[0] = (char)('0' + k);
            paths[i][k] = fuzz_path(name);
        }
    int64_t vocab_size = 1 + (data[3] | data[4] << 8);
    const shd_tokens_config config = {.key = "data.train",
                                      .paths = paths[data[1] % NAMES],
                                      .format = (shd_job_format)(data[0] % FORMATS),
                                      .context = 1 + data[2] % CONTEXT_MAX,
                                      .vocab_size = vocab_size,
                                      .ignored_token = data[5] == 255 ? -1 : data[5],
                                      .separator = data[6] == 255 ? -1 : data[6] % vocab_size,
                                      .open_files = 1 + data[7] % FILES_MAX};
    plain_source source = {0};
    const uint8_t *at = data + HEAD_BYTES, *end = data + bytes;
    for (const uint8_t *next; at && source.count < FILES_MAX; at = next ? next + 4 : NULL) {
        next = at < end ? memmem(at, (size_t)(end - at), "FILE", 4) : NULL;
        plain_file *file = &source.files[source.count];
        *file = (plain_file){config.paths[source.count], at, (size_t)((next ? next : end) - at), SHD_FORMAT_AUTO};
        measure(file, config.format);
        fuzz_write(file->path, file->bytes, file->length);
        source.count++;
    }
    shd_tokens_config counted = config;
    counted.path_count = source.count;
    check_source(&counted, &source, data[2] >= CONTEXT_MAX, data[7] >= 128);
    free(source.ids);
    fuzz_check_released();
    return 0;
}
