#include "io/npy.h"

#include "io/array_file.h"
#include "runtime/base/arith.h"
#include "runtime/base/status.h"

#include <stdio.h>
#include <string.h>

/* A header is longer than a few hundred bytes for records only. */
enum { PREFIX_BYTES = 12, HEADER_BYTES = 4096, WORD_BYTES = 80 };

static const unsigned char magic[SHD_NPY_MAGIC_BYTES] = {0x93, 'N', 'U', 'M', 'P', 'Y'};

bool shd_npy_is(const unsigned char start[SHD_NPY_MAGIC_BYTES]) { return memcmp(start, magic, sizeof magic) == 0; }

/* What is left of the dictionary's text. */
typedef struct cursor {
    const char *path;
    const char *at, *end;
} cursor;

static sherd_status bad_header(const cursor *c, const char *what) {
    return shd_fail(SHERD_DATA, "%s: bad .npy header: %s; it is damaged, or not written by NumPy", c->path, what);
}

static void skip_space(cursor *c) {
    while (c->at < c->end && (*c->at == ' ' || *c->at == '\n' || *c->at == '\t')) c->at++;
}

/* Takes `sign`, and the space around it, if it comes next. */
static bool take(cursor *c, char sign) {
    skip_space(c);
    if (c->at == c->end || *c->at != sign) return false;
    c->at++;
    skip_space(c);
    return true;
}

/* A text in quotes, without escapes. */
static sherd_status take_text(cursor *c, char out[WORD_BYTES]) {
    skip_space(c);
    char quote = c->at < c->end ? *c->at : 0;
    if (quote != '\'' && quote != '"') return bad_header(c, "a text in quotes is missing");
    size_t length = 0;
    for (c->at++; c->at < c->end && *c->at != quote; c->at++) {
        if (*c->at < ' ' || *c->at > '~' || *c->at == '\\' || length == WORD_BYTES - 1)
            return bad_header(c, "a text is too long or has odd characters");
        out[length++] = *c->at;
    }
    if (c->at == c->end) return bad_header(c, "a text has no end");
    c->at++;
    out[length] = 0;
    return SHERD_OK;
}

static bool take_word(cursor *c, const char *word) {
    size_t length = strlen(word);
    if ((size_t)(c->end - c->at) < length || memcmp(c->at, word, length) != 0) return false;
    c->at += length;
    return true;
}

/* --- the three keys ----------------------------------------------------------------------------------------------- */

static sherd_status refuse_type(const cursor *c, const char *code) {
    if (code[0] == '>')
        return shd_fail(SHERD_DATA, "%s: its numbers are '%s', big-endian; save it as little-endian: a.astype('<%s')",
                        c->path, code, code + 1);
    const char *kind = strchr("c", code[1])    ? "complex numbers"
                       : strchr("SU", code[1]) ? "texts"
                       : strchr("O", code[1])  ? "Python objects"
                       : strchr("mM", code[1]) ? "times"
                                               : "of a type that is not known here";
    return shd_fail(SHERD_DATA, "%s: its elements are '%s', %s; save numbers: a.astype('float32'), say", c->path, code,
                    kind);
}

static sherd_status take_type(cursor *c, shd_array_type *out) {
    static const char *const codes[SHD_ARRAY_TYPES] = {
#define CODE(name, bits, npy, safetensors) [SHD_ARRAY_##name] = npy,
        SHD_ARRAY_TYPE_MAP(CODE)
#undef CODE
    };
    char code[WORD_BYTES];
    if (c->at < c->end && (*c->at == '[' || *c->at == '('))
        return shd_fail(SHERD_DATA, "%s: its elements are records; save each field as an array of its own", c->path);
    SHD_TRY(take_text(c, code));
    if (strlen(code) < 2) return bad_header(c, "descr is no type");
    for (int i = 0; i < SHD_ARRAY_TYPES; i++)
        if (*codes[i] && strcmp(code, codes[i]) == 0) {
            *out = (shd_array_type)i;
            return SHERD_OK;
        }
    return refuse_type(c, code);
}

static sherd_status take_order(cursor *c) {
    if (take_word(c, "False")) return SHERD_OK;
    if (!take_word(c, "True")) return bad_header(c, "fortran_order is neither True nor False");
    return shd_fail(SHERD_DATA, "%s: it is in Fortran order; save it in C order: numpy.ascontiguousarray(a)", c->path);
}

static sherd_status take_length(cursor *c, int64_t *out) {
    int64_t value = 0;
    const char *first = c->at;
    for (; c->at < c->end && *c->at >= '0' && *c->at <= '9'; c->at++)
        if (!shd_mul_checked(value, 10, &value) || !shd_add_checked(value, *c->at - '0', &value))
            return bad_header(c, "a length in shape is too large");
    if (c->at == first) return bad_header(c, "shape holds something else than whole numbers");
    *out = value;
    return SHERD_OK;
}

static sherd_status take_shape(cursor *c, shd_npy_header *header) {
    header->dim_count = 0;
    if (!take(c, '(')) return bad_header(c, "shape is no tuple");
    while (!take(c, ')')) {
        if (header->dim_count == SHD_ARRAY_DIMS)
            return shd_fail(SHERD_DATA, "%s: it has more than %d dimensions; reshape it", c->path, SHD_ARRAY_DIMS);
        SHD_TRY(take_length(c, &header->shape[header->dim_count++]));
        bool more = take(c, ',');
        bool ends = c->at < c->end && *c->at == ')';
        if (!more && (!ends || header->dim_count == 1)) return bad_header(c, "shape is no tuple");
    }
    return SHERD_OK;
}

/* --- the whole ---------------------------------------------------------------------------------------------------- */

static sherd_status take_dictionary(cursor *c, shd_npy_header *header) {
    static const char *const names[] = {"descr", "fortran_order", "shape"};
    enum { KEYS = 3 };
    bool seen[KEYS] = {false};
    char name[WORD_BYTES];
    if (!take(c, '{')) return bad_header(c, "it is no dictionary");
    while (!take(c, '}')) {
        SHD_TRY(take_text(c, name));
        int key = 0;
        while (key < KEYS && strcmp(name, names[key]) != 0) key++;
        if (key == KEYS || seen[key])
            return bad_header(c, "its keys are not descr, fortran_order and shape, each once");
        seen[key] = true;
        if (!take(c, ':')) return bad_header(c, "a ':' is missing");
        SHD_TRY(key == 0 ? take_type(c, &header->type) : key == 1 ? take_order(c) : take_shape(c, header));
        bool more = take(c, ',');
        if (!more && (c->at == c->end || *c->at != '}')) return bad_header(c, "a ',' is missing");
    }
    if (!seen[0] || !seen[1] || !seen[2]) return bad_header(c, "descr, fortran_order or shape is missing");
    return c->at == c->end ? SHERD_OK : bad_header(c, "something follows the dictionary");
}

/* Where the dictionary lies. */
static sherd_status find_dictionary(shd_data_file *file, int64_t *first, int64_t *length) {
    unsigned char prefix[PREFIX_BYTES] = {0};
    SHD_TRY(shd_data_file_read(file, 0, shd_min(PREFIX_BYTES, file->bytes), prefix));
    int major = prefix[6], minor = prefix[7];
    if (!shd_npy_is(prefix)) return shd_fail(SHERD_DATA, "%s: not a .npy file", file->path);
    if (major < 1 || major > 3 || minor != 0)
        return shd_fail(SHERD_DATA, "%s: version %d.%d of the .npy format is not known; 1.0, 2.0 and 3.0 are",
                        file->path, major, minor);
    *first = major == 1 ? 10 : 12;
    *length = (int64_t)prefix[8] | (int64_t)prefix[9] << 8;
    if (major > 1) *length |= (int64_t)prefix[10] << 16 | (int64_t)prefix[11] << 24;
    if (*first + *length > file->bytes)
        return shd_fail(SHERD_DATA, "%s: its header has %lld bytes, but the file %lld; it is damaged or cut short",
                        file->path, (long long)*length, (long long)file->bytes);
    if (*length > HEADER_BYTES)
        return shd_fail(SHERD_DATA, "%s: a header of %lld bytes is not that of an array of numbers", file->path,
                        (long long)*length);
    return SHERD_OK;
}

static sherd_status check_size(const shd_data_file *file, const shd_npy_header *header) {
    int64_t held = file->bytes - header->first_byte, wanted;
    if (!shd_array_bytes(header->type, header->dim_count, header->shape, &wanted))
        return shd_fail(SHERD_DATA, "%s: its shape is too large to be true; it is damaged", file->path);
    if (wanted == held) return SHERD_OK;
    return shd_fail(SHERD_DATA, "%s: its shape needs %lld bytes, and %lld are there; it is damaged or cut short",
                    file->path, (long long)wanted, (long long)held);
}

sherd_status shd_npy_read_header(shd_data_file *file, shd_npy_header *out) {
    char text[HEADER_BYTES];
    int64_t first = 0, length = 0;
    SHD_TRY(find_dictionary(file, &first, &length));
    SHD_TRY(shd_data_file_read(file, first, length, text));
    shd_npy_header header = {.first_byte = first + length};
    cursor c = {.path = file->path, .at = text, .end = text + length};
    SHD_TRY(take_dictionary(&c, &header));
    SHD_TRY(check_size(file, &header));
    *out = header;
    return SHERD_OK;
}
