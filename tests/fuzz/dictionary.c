/* Prints a libFuzzer dictionary: the words of a format, so that the fuzzer need not guess them letter by letter.
 *
 * usage: PROGRAM job|safetensors|arrays|checkpoint|metrics. The job's words come from its schema, the dtypes from the reader. */
#include "io/array_type.h"
#include "io/checkpoint.h"
#include "io/job_keys.h"
#include "io/safetensors.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* clang-format off */
static const char *const yaml_words[] = {
    "- ", ": ", "? ", "[", "]", "{", "}", ", ", "\n", "\n  ", "# ", "'", "\"", "|", ">", "|-", ">+", "&a ", "*a",
    "!!int ", "<<", "---\n", "...\n", "~", "null", "true", "yes", "%YAML 1.2\n", "\r", "\\n", "\\0", "\\e",
    "\\x7f", "\\N", "\\L", "\\uffff", ".inf", ".nan", "0x1f", "1e308", "2e-5", "08", "./", "../", "/", "@", "`",
    "\xc2\x85", "\xe2\x80\xa8", "9223372036854775808", NULL};
static const char *const json_words[] = {
    "{", "}", "[", "]", ":", ",", "\"", "null", "true", "false", "0", "-1", "1e308", "9223372036854775807",
    "4611686018427387904", "2147483648", "0.5", "\\u0041", "\\u0000", "\\ud83d\\ude00", "\\n", "\\\"",
    "[[[[[[[[", "\n", NULL};
static const char *const safetensors_words[] = {
    "\"__metadata__\":{", "\"dtype\":\"", "\"shape\":[", "\"data_offsets\":[", NULL};
static const char *const checkpoint_words[] = {
    "SHERDCKP", "SHERDEND", "\"version\":2", "\"step\":3", "\"time\":\"", "2026-01-31T12:34:56Z", "\"mesh\":{", "\"ranks\":2",
    "\"replicas\":1", "\"stage\":3", "\"precision\":\"", "\"blocks\":[", "\"tensor\":\"", "\"first\":", "\"count\":", "\"offset\":",
    "\"transform\":\"none\"", "\"transform\":\"rotate-planes-zstd\"", "\"xxh3\":\"", "\"optimizer\":", "\"updates\":", "\"name\":\"",
    "\"states\":[", "\"states\":{", "\"state_dtype\":\"int8\"", "\"dtype\":\"fp32\"", "\"dtype\":\"bf16\"", "\"dtype\":\"int8\"",
    "\"elements\":", "\"ranges\":[[0,0,", "\"parameter\":{", "\"tensors\":[", "\"shape\":[", "\"frozen\":", "\"raw\":", "\"stored\":",
    "\"loss_scale\":{", "\"requires\":[\"", "\"files\":[", "\"note\":{", "\"bytes\":", "\"rank-00000.bin\"", "\"rank-00001.bin\"",
    "????????????????", NULL};
static const char *const metrics_words[] = {
    "{\"step\":", "\"loss\":", "\"nan\"", "}\n", "{\"step\":1}\n", "{\"step\":200}\n", NULL};
/* clang-format on */

static void print_word(const char *before, const char *word, const char *after) {
    const char *parts[] = {before, word, after};
    putchar('"');
    for (int i = 0; i < 3; i++)
        for (const char *at = parts[i]; *at; at++) {
            unsigned char byte = (unsigned char)*at;
            if (byte == '"' || byte == '\\' || byte < 0x20 || byte > 0x7e)
                printf("\\x%02x", byte);
            else
                putchar(byte);
        }
    puts("\"");
}

static void print_all(const char *const *words) {
    for (; *words; words++) print_word("", *words, "");
}

static void print_bounds(const shd_job_key *key) {
    char digits[32];
    if (key->kind != SHD_KIND_INT && key->kind != SHD_KIND_INTS && key->kind != SHD_KIND_INT_OR_AUTO &&
        key->kind != SHD_KIND_INT_OR_NULL && key->kind != SHD_KIND_SIGNED_OR_NULL)
        return;
    snprintf(digits, sizeof digits, "%" PRId64, key->low);
    print_word("", digits, "");
    snprintf(digits, sizeof digits, "%" PRId64, key->high);
    print_word("", digits, "");
}

static void print_key(const shd_job_key *key) {
    print_word("", key->name, ": ");
    print_word("", key->path, "=");
    if (key->words) print_all(key->words);
    if (key->fallback) print_word("", key->fallback, "");
    print_bounds(key);
}

static void print_job(void) {
    int32_t count;
    const shd_job_section *sections = shd_job_sections(&count);
    for (int32_t i = 0; i < count; i++) print_word("\n", sections[i].name, ":\n  ");
    const shd_job_key *keys = shd_job_keys(&count);
    for (int32_t i = 0; i < count; i++) print_key(&keys[i]);
    keys = shd_job_group_keys(&count);
    for (int32_t i = 0; i < count; i++) print_key(&keys[i]);
    puts("\"\\x00\""); /* begins a setting */
    print_all(yaml_words);
}

static void print_json(void) { print_all(json_words); }

static void print_safetensors(void) {
    print_all(safetensors_words);
    for (int i = 0; i < SHD_SAFETENSORS_DTYPES; i++)
        print_word("\"", shd_safetensors_dtype_text((shd_safetensors_dtype)i), "\"");
    print_json();
}

static void print_arrays(void) {
    static const char *const words[] = {
        "'descr'", "'fortran_order'", "'shape'", "False", "True", "|", "<", ">", "(", ",)", ": ", ", ", "{", "}", "[",
        NULL};
    print_all(words);
#define CODE(name, bits, npy, safetensors) print_word("'", npy, "'");
    SHD_ARRAY_TYPE_MAP(CODE)
#undef CODE
    print_safetensors();
}

static void print_checkpoint(void) {
    print_all(checkpoint_words);
    print_word("\"state\":\"", SHD_CHECKPOINT_PARAMETER, "\"");
    print_json();
}

static void print_metrics(void) {
    print_all(metrics_words);
    print_json();
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        void (*print)(void);
    } kinds[] = {{"job", print_job},
                 {"safetensors", print_safetensors},
                 {"arrays", print_arrays},
                 {"checkpoint", print_checkpoint},
                 {"metrics", print_metrics}};
    for (size_t i = 0; argc == 2 && i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(argv[1], kinds[i].name) == 0) {
            kinds[i].print();
            return 0;
        }
    fprintf(stderr, "usage: %s job|safetensors|checkpoint|metrics\n", argv[0]);
    return 2;
}
