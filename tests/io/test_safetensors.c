#include "files.h"
#include "runtime/base/memory.h"
#include "runtime/base/random.h"
#include "tests/support/find_tensor.h"

#include <criterion/criterion.h>
#include <float.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

/* Writes a file by hand: header text as given, `data_bytes` bytes 0, 1, 2, … */
static void put_file(const char *path, const char *header, int64_t data_bytes) {
    uint64_t length = strlen(header);
    FILE *file = fopen(path, "wb");
    for (int i = 0; i < 8; i++) fputc((int)(length >> 8 * i & 0xFF), file);
    fwrite(header, 1, length, file);
    for (int64_t i = 0; i < data_bytes; i++) fputc((int)(i & 0xFF), file);
    cr_assert_eq(fclose(file), 0);
}

static const char *refusal(const char *path, sherd_status expected) {
    shd_safetensors *file = NULL;
    sherd_status status = shd_safetensors_open(path, &file);
    cr_assert_eq(status, expected, "%d: %s", status, status ? sherd_last_error() : "opened");
    cr_assert_null(file);
    cr_assert(strstr(sherd_last_error(), path), "\"%s\" does not name the file", sherd_last_error());
    return sherd_last_error();
}

Test(safetensors, reads_a_file_written_by_hand) {
    char *folder = make_folder(), *path = path_in(folder, "a.safetensors");
    put_file(path,
             "{\"b\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[8,24]},\"__metadata__\":{\"format\":\"pt\"},"
             "\"a/"
             "é\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[4,8]},\"empty\":{\"dtype\":\"I64\",\"shape\":[3,0],"
             "\"data_offsets\":[8,8]},"
             "\"u\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}   ",
             24);
    shd_safetensors *file = NULL;
    cr_assert_eq(shd_safetensors_open(path, &file), SHERD_OK, "%s", sherd_last_error());
    cr_assert_eq(shd_safetensors_count(file), 4);
    static const char *order[] = {"u", "a/é", "empty", "b"};
    for (int32_t i = 0; i < 4; i++) {
        cr_assert_str_eq(shd_safetensors_at(file, i)->name, order[i]);
        cr_assert_eq(find_tensor(file, order[i]), shd_safetensors_at(file, i));
    }
    cr_assert_null(find_tensor(file, "c"));
    cr_assert_null(find_tensor(file, "__metadata__"));
    const shd_safetensors_entry *b = find_tensor(file, "b");
    cr_assert(b->dtype == SHD_SAFETENSORS_F32 && b->dim_count == 2 && b->shape[0] == 2 && b->shape[1] == 2);
    cr_assert_eq(b->element_count, 4);
    cr_assert_eq(find_tensor(file, "empty")->element_count, 0);
    cr_assert_eq(find_tensor(file, "a/é")->element_count, 1);
    float values[2];
    cr_assert_eq(shd_safetensors_read(file, b, 1, 2, values), SHERD_OK);
    static const unsigned char expected[] = {12, 13, 14, 15, 16, 17, 18, 19};
    cr_assert_eq(memcmp(values, expected, 8), 0);
    cr_assert_eq(shd_safetensors_read(file, b, 3, 2, values), SHERD_ARGUMENT);
    cr_assert_eq(shd_safetensors_read(file, b, INT64_MAX, 2, values), SHERD_ARGUMENT);
    cr_assert_eq(shd_safetensors_read(file, b, -1, 1, values), SHERD_ARGUMENT);
    cr_assert_eq(shd_safetensors_read(file, find_tensor(file, "u"), 0, 1, values), SHERD_DATA);
    cr_assert(strstr(sherd_last_error(), "tensor u is U8"));
    shd_safetensors_close(file);
    shd_safetensors_close(NULL);
    cr_assert_eq(shd_memory_held(SHD_MEMORY_OBJECTS), 0);
    remove_folder(folder);
}

/* The value of a half by the definition of its fields. */
static double half_value(unsigned half, int exponent_bits) {
    int mantissa_bits = 15 - exponent_bits, bias = (1 << (exponent_bits - 1)) - 1;
    int exponent = (int)(half >> mantissa_bits & ((1u << exponent_bits) - 1)),
        mantissa = (int)(half & ((1u << mantissa_bits) - 1));
    double sign = half & 0x8000 ? -1 : 1;
    if (exponent == (1 << exponent_bits) - 1) return mantissa ? NAN : sign * INFINITY;
    if (exponent == 0) return sign * ldexp(mantissa, 1 - bias - mantissa_bits);
    return sign * ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
}

Test(safetensors, widens_every_half_exactly) {
    char *folder = make_folder(), *path = path_in(folder, "halves.safetensors");
    const char *header = "{\"h\":{\"dtype\":\"F16\",\"shape\":[65536],\"data_offsets\":[0,131072]},"
                         "\"b\":{\"dtype\":\"BF16\",\"shape\":[256,256],\"data_offsets\":[131072,262144]}}";
    put_file(path, header, 0);
    FILE *out = fopen(path, "ab");
    for (int tensor = 0; tensor < 2; tensor++)
        for (int half = 0; half < 65536; half++) fputc(half & 0xFF, out), fputc(half >> 8, out);
    fclose(out);
    shd_safetensors *file = NULL;
    cr_assert_eq(shd_safetensors_open(path, &file), SHERD_OK, "%s", sherd_last_error());
    static float values[65536];
    for (int tensor = 0; tensor < 2; tensor++) {
        const shd_safetensors_entry *entry = find_tensor(file, tensor ? "b" : "h");
        cr_assert_eq(shd_safetensors_read(file, entry, 0, 65536, values), SHERD_OK);
        for (unsigned half = 0; half < 65536; half++) {
            double expected = half_value(half, tensor ? 8 : 5);
            if (isnan(expected))
                cr_assert(isnan(values[half]));
            else
                cr_assert(values[half] == expected && !signbit(values[half]) == !signbit(expected),
                          "%s %04x: %a, not %a", entry->name, half, values[half], expected);
        }
        cr_assert_eq(shd_safetensors_read(file, entry, 17, 5000, values), SHERD_OK);
        cr_assert(values[4999] == half_value(5016, tensor ? 8 : 5));
    }
    shd_safetensors_close(file);
    remove_folder(folder);
}

Test(safetensors, refuses_every_defect_and_names_file_and_tensor) {
    static const struct {
        const char *header;
        int64_t data_bytes;
        const char *says;
    } rows[] = {
        {"", 0, "does not begin with {"},
        {" {}", 0, "does not begin with {"},
        {"[]", 0, "does not begin with {"},
        {"{", 0, "line 1, column 1"},
        {"{} x", 0, "end of file expected"},
        {"{}", 1, "the last 1 bytes belong to no tensor"},
        {"{\"__metadata__\":3}", 0, "__metadata__"},
        {"{\"__metadata__\":{\"k\":3}}", 0, "\"__metadata__\": \"k\" must be a text"},
        {"{\"a\":1}", 0, "tensor a"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},\"a\":{\"dtype\":\"F32\",\"shape\":[1],"
         "\"data_offsets\":[4,8]}}",
         8, "duplicate"},
        {"{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "duplicate"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, "tensor a: it must be described"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"offsets\":[0,4]}}", 4, "tensor a: \"data_offsets\""},
        {"{\"a\":{\"dtype\":\"F33\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4,
         "tensor a: the dtype \"F33\" is unknown"},
        {"{\"a\":{\"dtype\":32,\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "tensor a: \"dtype\" must be a text"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":1,\"data_offsets\":[0,4]}}", 4, "tensor a: \"shape\" must be a list"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1.0],\"data_offsets\":[0,4]}}", 4, "tensor a: dimension 0"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1,-1],\"data_offsets\":[0,4]}}", 4, "tensor a: dimension 1"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]}}", 0,
         "tensor a: the shape has more"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904],\"data_offsets\":[0,0]}}", 0,
         "tensor a: 4611686018427387904 elements"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[18446744073709551616],\"data_offsets\":[0,0]}}", 0, "too big integer"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}", 4,
         "tensor a: 2 elements of F32 do not fill the 4 bytes"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]}}", 4,
         "tensor a: \"data_offsets\" must be two integers"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,8]}}", 4,
         "tensor a: \"data_offsets\" must be two integers"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]}}", 4,
         "tensor a: the data_offsets 4, 0 are no range"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[-4,0]}}", 4, "tensor a: the data_offsets -4, 0"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 7,
         "tensor a: its data ends at byte 8, but the file holds 7"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},\"b\":{\"dtype\":\"F32\",\"shape\":[1],"
         "\"data_offsets\":[0,4]}}",
         4, "tensor b: its data begins at byte 0, but what lies before it, tensor a ends at 4"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},\"b\":{\"dtype\":\"F32\",\"shape\":[1],"
         "\"data_offsets\":[8,12]}}",
         12, "tensor b: its data begins at byte 8"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}", 8, "tensor a: its data begins at byte 4"},
        {"{\"a\\u0000b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "JSON"},
        {"{\"\xff\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "0xff"},
    };
    char *folder = make_folder(), *path = path_in(folder, "bad.safetensors");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        put_file(path, rows[i].header, rows[i].data_bytes);
        const char *cause = refusal(path, SHERD_DATA);
        cr_assert(strstr(cause, rows[i].says), "row %zu: \"%s\"", i, cause);
    }
    cr_assert_eq(shd_memory_held(SHD_MEMORY_OBJECTS), 0);
    remove_folder(folder);
}

Test(safetensors, refuses_a_zero_byte_wherever_it_stands_in_the_header) {
    static const char header[] = "{\"a\": {\"dtype\": \"F32\", \"shape\": [1, 1], \"data_offsets\": [0, 4]}} ";
    char *folder = make_folder(), *path = path_in(folder, "bad.safetensors"),
         file[8 + sizeof header + 4] = {sizeof header};
    for (size_t at = 0; at < sizeof header; at++) {
        memcpy(file + 8, header, at);
        file[8 + at] = 0;
        memcpy(file + 8 + at + 1, header + at, sizeof header - 1 - at);
        write_whole(path, file, sizeof file);
        const char *cause = refusal(path, SHERD_DATA);
        cr_assert(at == 0 || strstr(cause, "JSON: a zero byte after"), "at %zu: %s", at, cause);
    }
    remove_folder(folder);
}

Test(safetensors, refuses_lengths_that_cannot_be) {
    char *folder = make_folder(), *path = path_in(folder, "bad.safetensors");
    static const unsigned char prefixes[][8] = {{3, 0, 0, 0, 0, 0, 0, 0},
                                                {0, 0, 0, 0, 0, 0, 0, 0x80},
                                                {255, 255, 255, 255, 255, 255, 255, 255},
                                                {1, 225, 245, 5, 0, 0, 0, 0}};
    for (size_t i = 0; i < 4; i++) {
        FILE *file = fopen(path, "wb");
        fwrite(prefixes[i], 1, 8, file);
        fwrite("{}", 1, 2, file);
        fclose(file);
        if (i == 3) cr_assert_eq(truncate(path, 200000000), 0); /* long enough, but above the format's bound */
        cr_assert(strstr(refusal(path, SHERD_DATA), "its header would have"));
    }
    for (int bytes = 0; bytes < 8; bytes++) {
        cr_assert_eq(truncate(path, bytes), 0);
        cr_assert(strstr(refusal(path, SHERD_DATA), "it has only"));
    }
    remove_folder(folder);
}

Test(safetensors, tells_what_cannot_be_opened) {
    char *folder = make_folder(), *path = path_in(folder, "none");
    cr_assert(strstr(refusal(path, SHERD_IO), "No such file"));
    refusal(folder, SHERD_IO);
    remove_folder(folder);
}

/* Writes 257 × 17, a scalar, an empty and a 1-element tensor in portions of `portion`, and gives the file's path. */
static char *write_sample(const char *folder, int64_t portion) {
    static const int64_t matrix[] = {257, 17}, empty[] = {4, 0}, one[] = {1};
    const shd_safetensors_spec specs[] = {
        {"h.0.w", 2, matrix}, {"scalar", 0, NULL}, {"empty", 2, empty}, {"one \"é\"", 1, one}};
    char *path = path_in(folder, "sample.safetensors");
    enum { COUNT = 257 * 17 + 2 };
    float values[COUNT];
    shd_random_normal(4, 0, COUNT, 1, values);
    shd_safetensors_writer *writer = NULL;
    cr_assert_eq(shd_safetensors_writer_create(path, SHERD_FP32, specs, 4, &writer), SHERD_OK, "%s",
                 sherd_last_error());
    for (int64_t at = 0; at < COUNT; at += portion)
        cr_assert_eq(shd_safetensors_writer_append(writer, values + at, at + portion < COUNT ? portion : COUNT - at),
                     SHERD_OK);
    cr_assert_eq(shd_safetensors_writer_append(writer, values, 1), SHERD_ARGUMENT);
    cr_assert_neq(access(path, F_OK), 0, "in place before it is finished");
    cr_assert_eq(shd_safetensors_writer_finish(writer), SHERD_OK, "%s", sherd_last_error());
    shd_safetensors_writer_destroy(writer);
    return path;
}

Test(safetensors, reads_back_what_it_wrote_in_any_portions) {
    char *folder = make_folder();
    size_t first_bytes = 0;
    char *first = NULL;
    for (int64_t portion = 1; portion <= 5000; portion = portion * 17) {
        char *path = write_sample(folder, portion);
        size_t bytes;
        char *content = read_whole(path, &bytes);
        if (!first) first = content, first_bytes = bytes;
        cr_assert(bytes == first_bytes && memcmp(content, first, bytes) == 0);
        unlink(path);
    }
    char *path = write_sample(folder, 100);
    shd_safetensors *file = NULL;
    cr_assert_eq(shd_safetensors_open(path, &file), SHERD_OK, "%s", sherd_last_error());
    cr_assert_eq(shd_safetensors_at(file, 0)->offset_bytes % 8, 0, "data is not aligned");
    float expected[257 * 17 + 2], values[257 * 17];
    shd_random_normal(4, 0, 257 * 17 + 2, 1, expected);
    const shd_safetensors_entry *w = find_tensor(file, "h.0.w");
    cr_assert(w->dim_count == 2 && w->shape[0] == 257 && w->shape[1] == 17);
    cr_assert_eq(shd_safetensors_read(file, w, 0, w->element_count, values), SHERD_OK);
    cr_assert_eq(memcmp(values, expected, sizeof values), 0);
    cr_assert_eq(shd_safetensors_read(file, find_tensor(file, "scalar"), 0, 1, values), SHERD_OK);
    cr_assert_eq(values[0], expected[257 * 17]);
    cr_assert_eq(shd_safetensors_read(file, find_tensor(file, "one \"é\""), 0, 1, values), SHERD_OK);
    cr_assert_eq(values[0], expected[257 * 17 + 1]);
    const shd_safetensors_entry *empty = find_tensor(file, "empty");
    cr_assert(empty->dim_count == 2 && empty->shape[0] == 4 && empty->shape[1] == 0);
    /* A file that shrinks under the reader is an error, not a signal. */
    cr_assert_eq(truncate(path, 600), 0);
    cr_assert_eq(shd_safetensors_read(file, w, 0, w->element_count, values), SHERD_DATA);
    cr_assert(strstr(sherd_last_error(), path));
    shd_safetensors_close(file);
    remove_folder(folder);
}

/* Against the definition of the types: no other value of the type is nearer. */
Test(safetensors, rounds_to_16_bits_where_it_is_told_to) {
    char *folder = make_folder(), *path = path_in(folder, "rounded");
    enum { COUNT = 20001 };
    static float values[COUNT], found[COUNT];
    static const int64_t shape[] = {COUNT};
    const shd_safetensors_spec spec = {"w", 1, shape};
    shd_random_normal(9, 0, COUNT, 1, values);
    for (int exponent_bits = 5; exponent_bits <= 8; exponent_bits += 3) {
        const bool half = exponent_bits == 5;
        shd_safetensors_writer *writer = NULL;
        cr_assert_eq(shd_safetensors_writer_create(path, half ? SHERD_FP16 : SHERD_BF16, &spec, 1, &writer), SHERD_OK);
        cr_assert_eq(shd_safetensors_writer_append(writer, values, 17), SHERD_OK);
        cr_assert_eq(shd_safetensors_writer_append(writer, values + 17, COUNT - 17), SHERD_OK);
        cr_assert_eq(shd_safetensors_writer_finish(writer), SHERD_OK);
        shd_safetensors_writer_destroy(writer);
        shd_safetensors *file = NULL;
        cr_assert_eq(shd_safetensors_open(path, &file), SHERD_OK, "%s", sherd_last_error());
        const shd_safetensors_entry *entry = shd_safetensors_at(file, 0);
        cr_assert_eq(entry->dtype, half ? SHD_SAFETENSORS_F16 : SHD_SAFETENSORS_BF16);
        cr_assert_eq(shd_safetensors_read(file, entry, 0, COUNT, found), SHERD_OK);
        for (int i = 0; i < COUNT; i++) {
            unsigned bits;
            memcpy(&bits, &found[i], sizeof bits);
            int exponent;
            (void)frexp(values[i], &exponent);
            double step = ldexp(1, exponent - (16 - exponent_bits));
            if (half && step < ldexp(1, -24)) step = ldexp(1, -24);
            cr_assert(fabs((double)found[i] - values[i]) <= step / 2, "%a became %a", values[i], found[i]);
            cr_assert_eq(bits & (half ? 0x1fffu : 0xffffu), 0);
        }
        shd_safetensors_close(file);
    }
    remove_folder(folder);
}

Test(safetensors, an_unfinished_file_leaves_the_old_one_and_nothing_else) {
    char *folder = make_folder(), *path = write_sample(folder, 5000),
         *partial = path_in(folder, "sample.safetensors.partial");
    size_t before_bytes, after_bytes;
    char *before = read_whole(path, &before_bytes);
    static const int64_t shape[] = {3};
    const shd_safetensors_spec spec = {"w", 1, shape};
    shd_safetensors_writer *writer = NULL;
    cr_assert_eq(shd_safetensors_writer_create(path, SHERD_FP32, &spec, 1, &writer), SHERD_OK);
    cr_assert_eq(access(partial, F_OK), 0);
    float values[3] = {0};
    cr_assert_eq(shd_safetensors_writer_append(writer, values, 2), SHERD_OK);
    cr_assert_eq(shd_safetensors_writer_finish(writer), SHERD_STATE);
    cr_assert(strstr(sherd_last_error(), "1 elements have not been written"));
    shd_safetensors_writer_destroy(writer);
    shd_safetensors_writer_destroy(NULL);
    cr_assert_neq(access(partial, F_OK), 0);
    char *after = read_whole(path, &after_bytes);
    cr_assert(before_bytes == after_bytes && memcmp(before, after, after_bytes) == 0);
    remove_folder(folder);
}

Test(safetensors, refuses_to_write_what_cannot_be_read) {
    char *folder = make_folder(), *path = path_in(folder, "x");
    static const int64_t one[] = {1}, negative[] = {-1}, huge[] = {(int64_t)1 << 40, (int64_t)1 << 40},
                         large[] = {(int64_t)1 << 61};
    const shd_safetensors_spec rows[][2] = {
        {{"a", 1, one}, {"a", 1, one}},       {{"b", 1, one}, {"__metadata__", 1, one}},
        {{"c", 1, one}, {"c2", 1, negative}}, {{"d", 1, one}, {"d2", 2, huge}},
        {{"e", 1, one}, {"e2", 1, large}},    {{"f", 1, one}, {"\xff", 1, one}}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        shd_safetensors_writer *writer = NULL;
        cr_assert_eq(shd_safetensors_writer_create(path, SHERD_FP32, rows[i], 2, &writer), SHERD_ARGUMENT, "row %zu",
                     i);
        cr_assert_null(writer);
        /* A cause shows what is no UTF-8 as a question mark. */
        const char *shown = rows[i][1].name[0] == '\xff' ? "tensor ? " : rows[i][1].name;
        cr_assert(strstr(sherd_last_error(), shown), "row %zu: %s", i, sherd_last_error());
    }
    cr_assert_eq(count_files(folder), 0);
    remove_folder(folder);
}

Test(safetensors, takes_the_place_of_regular_files_only) {
    char *folder = make_folder(), *path = path_in(folder, "pipe");
    cr_assert_eq(mkfifo(path, 0600), 0);
    static const int64_t shape[] = {3};
    const shd_safetensors_spec spec = {"w", 1, shape};
    const char *const places[] = {path, folder, "/dev/null"};
    for (int i = 0; i < 3; i++) {
        shd_safetensors_writer *writer = NULL;
        cr_assert_eq(shd_safetensors_writer_create(places[i], SHERD_FP32, &spec, 1, &writer), SHERD_ARGUMENT);
        cr_assert(strstr(sherd_last_error(), places[i]) && strstr(sherd_last_error(), "no regular file"));
        cr_assert_null(writer);
    }
    struct stat about;
    cr_assert(stat(path, &about) == 0 && S_ISFIFO(about.st_mode));
    remove_folder(folder);
}

Test(safetensors, a_full_disk_is_an_io_error_with_path_and_cause) {
    char *folder = make_folder(), *path = path_in(folder, "full.safetensors");
    static const int64_t shape[] = {1 << 16};
    const shd_safetensors_spec spec = {"w", 1, shape};
    shd_safetensors_writer *writer = NULL;
    cr_assert_eq(shd_safetensors_writer_create(path, SHERD_FP32, &spec, 1, &writer), SHERD_OK);
    signal(SIGXFSZ, SIG_IGN);
    const struct rlimit limit = {1 << 12, 1 << 12};
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    static float values[1 << 16];
    cr_assert_eq(shd_safetensors_writer_append(writer, values, 1 << 16), SHERD_IO);
    cr_assert(strstr(sherd_last_error(), path) && strstr(sherd_last_error(), "File too large"), "%s",
              sherd_last_error());
    shd_safetensors_writer_destroy(writer);
    cr_assert_eq(count_files(folder), 0);
    char *missing = path_in(folder, "no/such/x");
    cr_assert_eq(shd_safetensors_writer_create(missing, SHERD_FP32, &spec, 1, &writer), SHERD_IO);
    cr_assert(strstr(sherd_last_error(), missing));
    remove_folder(folder);
}

/* Random damage: flips, cuts, repeated pieces. Whatever opens must be readable in full; nothing may crash. */
Test(safetensors, survives_random_damage) {
    char *folder = make_folder(), *path = write_sample(folder, 5000);
    size_t bytes;
    char *good = read_whole(path, &bytes), *bad = take(2 * bytes);
    size_t header_bytes = 8 + (unsigned char)good[0] + 256u * (unsigned char)good[1];
    int opened = 0, refused = 0;
    for (uint64_t round = 0; round < 4000; round++) {
        uint32_t r[4];
        memcpy(bad, good, bytes);
        size_t length = bytes;
        for (uint64_t hit = 0; hit <= round % 3; hit++) {
            shd_philox(77, round, hit, r);
            size_t at = r[0] % (r[3] % 8 ? header_bytes : bytes);
            switch (r[1] % 5) {
            case 0: bad[at] ^= (char)(1 << r[2] % 8); break;
            case 1: bad[at] = (char)r[2]; break;
            case 2: bad[at] = "0123456789-[]{},:\"\\e."[r[2] % 21]; break;
            case 3: length = length > 9 ? length - r[2] % (length < 64 ? length : 64) : length; break;
            default: memmove(bad + at, bad + r[2] % header_bytes, r[2] % 40 < bytes - at ? r[2] % 40 : 0); break;
            }
        }
        write_whole(path, bad, length);
        shd_safetensors *file = NULL;
        if (shd_safetensors_open(path, &file) != SHERD_OK) {
            refused++;
            cr_assert(strstr(sherd_last_error(), path));
            continue;
        }
        opened++;
        for (int32_t i = 0; i < shd_safetensors_count(file); i++) {
            const shd_safetensors_entry *entry = shd_safetensors_at(file, i);
            float *values = malloc((size_t)entry->element_count * 4 + 1);
            sherd_status status = shd_safetensors_read(file, entry, 0, entry->element_count, values);
            cr_assert(status == SHERD_OK || status == SHERD_DATA);
            free(values);
        }
        shd_safetensors_close(file);
    }
    cr_assert(opened > 50 && refused > 1000, "%d opened, %d refused", opened, refused);
    cr_assert_eq(shd_memory_held(SHD_MEMORY_OBJECTS), 0);
    remove_folder(folder);
}
