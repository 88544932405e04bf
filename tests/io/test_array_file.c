#include "io/array_file.h"
#include "tests/io/make_job.h"
#include "tests/io/npy_files.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

TestSuite(array_file, .init = enter_fresh_folder, .fini = leave_fresh_folder);

static shd_array_file opened(const char *path) {
    shd_array_file file;
    cr_assert_eq(shd_array_file_open(path, "inputs", NULL, &file), SHERD_OK, "%s", sherd_last_error());
    return file;
}

static const char *refusal(const char *path) {
    shd_array_file file;
    cr_expect_eq(shd_array_file_open(path, "inputs", NULL, &file), SHERD_DATA, "%s", path);
    cr_expect_eq(file.file.descriptor, -1);
    return sherd_last_error();
}

/* --- types -------------------------------------------------------------------------------------------------------- */

/* Bits of each type and what they mean, by hand. */
static const struct {
    const char *code, *text;
    unsigned char bits[16];
    double values[2];
} types[] = {
    {"|b1", "bool", {1, 0}, {1, 0}},
    {"|b1", "bool", {0, 200}, {0, 1}},
    {"|u1", "uint8", {255, 7}, {255, 7}},
    {"|i1", "int8", {255, 7}, {-1, 7}},
    {"<u2", "uint16", {0x34, 0x12, 0xff, 0xff}, {0x1234, 65535}},
    {"<i2", "int16", {0x34, 0x12, 0xff, 0xff}, {0x1234, -1}},
    {"<u4", "uint32", {1, 0, 1, 0, 0xff, 0xff, 0xff, 0xff}, {65537, 4294967295.0}},
    {"<i4", "int32", {1, 0, 1, 0, 0xfe, 0xff, 0xff, 0xff}, {65537, -2}},
    {"<u8", "uint64", {5, 0, 0, 0, 1, 0, 0, 0, 9}, {4294967301.0, 9}},
    {"<i8", "int64", {5, 0, 0, 0, 1, 0, 0, 0, 0xfd, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, {4294967301.0, -3}},
    {"<f2", "float16", {0x00, 0x3e, 0x01, 0x80}, {1.5, -0x1p-24}},
    {"<f4", "float32", {0, 0, 0xc0, 0x3f, 0, 0, 0, 0xc1}, {1.5, -8}},
    {"<f8", "float64", {0, 0, 0, 0, 0, 0, 0xf8, 0x3f, 0, 0, 0, 0, 0, 0, 0x20, 0xc0}, {1.5, -8}},
};

Test(array_file, reads_every_type_that_numpy_writes) {
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        float values[2];
        char *end;
        int64_t bytes = strtol(types[i].code + 2, &end, 10);
        write_npy("a.npy", types[i].code, "(2,)", types[i].bits, (size_t)(2 * bytes));
        shd_array_file file = opened("a.npy");
        cr_expect_str_eq(shd_array_type_text(file.type), types[i].text);
        cr_expect_eq(shd_array_type_bytes(file.type), bytes);
        cr_assert_eq(shd_array_file_read(&file, 0, 2, 1, values), SHERD_OK, "%s", sherd_last_error());
        cr_expect_eq(values[0], (float)types[i].values[0], "%s: %g", types[i].text, (double)values[0]);
        cr_expect_eq(values[1], (float)types[i].values[1], "%s: %g", types[i].text, (double)values[1]);
        cr_assert_eq(shd_array_file_read(&file, 1, 1, 0.5, values), SHERD_OK);
        cr_expect_eq(values[0], (float)(types[i].values[1] / 2));
        if (shd_array_type_is_integer(file.type)) {
            int64_t integers[2];
            cr_assert_eq(shd_array_file_read_integers(&file, 0, 2, integers), SHERD_OK);
            cr_expect_eq(integers[0], (int64_t)types[i].values[0]);
            cr_expect_eq(integers[1], (int64_t)types[i].values[1]);
        }
        shd_array_file_close(&file);
    }
}

Test(array_file, reads_integers_beyond_53_bits_as_they_are_and_refuses_those_beyond_64) {
    const uint64_t bits[] = {0x7fffffffffffffff, 0x8000000000000000};
    int64_t values[2];
    write_npy("a.npy", "<u8", "(2, 1)", bits, sizeof bits);
    shd_array_file file = opened("a.npy");
    cr_assert_eq(shd_array_file_read_integers(&file, 0, 1, values), SHERD_OK);
    cr_expect_eq(values[0], INT64_MAX);
    cr_expect_eq(shd_array_file_read_integers(&file, 0, 2, values), SHERD_DATA);
    cr_expect_str_eq(sherd_last_error(), "a.npy: element 1 is 9223372036854775808, beyond 64 bits with a sign");
    shd_array_file_close(&file);
}

Test(array_file, refuses_what_is_no_finite_number_in_single_precision) {
    const double numbers[] = {1, 2, 3, 1e300, 5, INFINITY}, nan = NAN;
    float values[6];
    write_npy("a.npy", "<f8", "(2, 3)", numbers, sizeof numbers);
    shd_array_file file = opened("a.npy");
    cr_assert_eq(shd_array_file_read(&file, 0, 3, 1, values), SHERD_OK);
    cr_expect_eq(shd_array_file_read(&file, 0, 6, 1, values), SHERD_DATA);
    cr_expect_str_eq(sherd_last_error(),
                     "a.npy: element 0 of row 1 is 1e+300, which is no finite number in single precision");
    cr_assert_eq(shd_array_file_read(&file, 3, 1, 1e-300, values), SHERD_OK);
    cr_expect_eq(values[0], 1);
    cr_expect_eq(shd_array_file_read(&file, 5, 1, 1, values), SHERD_DATA);
    shd_array_file_close(&file);
    write_npy("b.npy", "<f8", "(1,)", &nan, sizeof nan);
    file = opened("b.npy");
    cr_expect_eq(shd_array_file_read(&file, 0, 1, 1, values), SHERD_DATA);
    shd_array_file_close(&file);
}

/* More elements than are read at once, at borders of every kind. */
Test(array_file, reads_any_run_of_a_long_array) {
    enum { COUNT = 17 * 257 * 5 };
    int16_t *data = malloc(COUNT * sizeof *data);
    float *values = malloc(COUNT * sizeof *values);
    for (int i = 0; i < COUNT; i++) data[i] = (int16_t)(i * 7919);
    write_npy("a.npy", "<i2", "(4369, 5)", data, COUNT * sizeof *data);
    shd_array_file file = opened("a.npy");
    cr_assert_eq(file.row_count, 4369);
    cr_assert_eq(file.row_elements, 5);
    static const int64_t runs[][2] = {{0, COUNT}, {1, COUNT - 1}, {8191, 2}, {8192, 8192}, {COUNT, 0}, {COUNT - 1, 1}};
    for (size_t r = 0; r < sizeof runs / sizeof *runs; r++) {
        cr_assert_eq(shd_array_file_read(&file, runs[r][0], runs[r][1], 2, values), SHERD_OK);
        for (int64_t i = 0; i < runs[r][1]; i++) cr_assert_eq(values[i], 2 * (float)data[runs[r][0] + i]);
    }
    cr_assert_eq(shd_array_file_read(&file, COUNT - 1, 2, 1, values), SHERD_DATA);
    shd_array_file_close(&file);
    free(data);
    free(values);
}

/* --- headers ------------------------------------------------------------------------------------------------------ */

Test(array_file, takes_every_version_and_shape_that_numpy_writes) {
    static const struct {
        int version;
        const char *header;
        int64_t rows, row_elements;
    } cases[] = {
        {1, "{'descr': '|u1', 'fortran_order': False, 'shape': (6,), }", 6, 1},
        {2, "{'descr': '|u1', 'fortran_order': False, 'shape': (3, 2), }", 3, 2},
        {3, "{'descr': '|u1', 'fortran_order': False, 'shape': (1, 2, 3), }", 1, 6},
        {1, "{'shape': (6, 1), 'fortran_order': False, 'descr': '|u1'}", 6, 1},
        {1, "{\"descr\":\"|u1\",\"fortran_order\":False,\"shape\":(2,3)}", 2, 3},
        {1, "  { 'descr' : '|u1' , 'fortran_order' : False , 'shape' : ( 2 , 3 , ) , } ", 2, 3},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        float value;
        write_npy_header("a.npy", cases[i].version, cases[i].header, "abcdef", 6);
        shd_array_file file = opened("a.npy");
        cr_expect_eq(file.row_count, cases[i].rows, "%s", cases[i].header);
        cr_expect_eq(file.row_elements, cases[i].row_elements, "%s", cases[i].header);
        cr_expect_eq(shd_array_file_read(&file, 5, 1, 1, &value), SHERD_OK);
        cr_expect_eq(value, 'f');
        shd_array_file_close(&file);
    }
    write_npy("none.npy", "<f4", "(0, 3)", NULL, 0);
    shd_array_file file = opened("none.npy");
    cr_expect_eq(file.row_count, 0);
    cr_expect_eq(file.row_elements, 3);
    char shape[SHD_ARRAY_SHAPE_BYTES];
    shd_array_shape_text(&file, shape);
    cr_expect_str_eq(shape, "[0, 3]");
    shd_array_file_close(&file);
}

#define OF(type)     "{'descr': '" type "', 'fortran_order': False, 'shape': (1,), }"
#define SHAPED(text) "{'descr': '|u1', 'fortran_order': False, 'shape': " text ", }"

static const struct {
    const char *header, *says;
} bad_headers[] = {
    {OF(">f4"), "its numbers are '>f4', big-endian; save it as little-endian: a.astype('<f4')"},
    {OF("<c8"), "its elements are '<c8', complex numbers; save numbers: a.astype('float32'), say"},
    {OF("<U1"), "its elements are '<U1', texts; save numbers: a.astype('float32'), say"},
    {OF("|O"), "its elements are '|O', Python objects; save numbers: a.astype('float32'), say"},
    {OF("<M8[s]"), "its elements are '<M8[s]', times; save numbers: a.astype('float32'), say"},
    {OF("<f16"), "its elements are '<f16', of a type that is not known here; save numbers: a.astype('float32'), say"},
    {OF("f"), "bad .npy header: descr is no type; it is damaged, or not written by NumPy"},
    {OF(""), "bad .npy header: descr is no type; it is damaged, or not written by NumPy"},
    {"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }",
     "its elements are records; save each field as an array of its own"},
    {"{'descr': '|u1', 'fortran_order': True, 'shape': (1, 1), }",
     "it is in Fortran order; save it in C order: numpy.ascontiguousarray(a)"},
    {"{'descr': '|u1', 'fortran_order': 0, 'shape': (1,), }",
     "bad .npy header: fortran_order is neither True nor False; it is damaged, or not written by NumPy"},
    {SHAPED("(2,)"), "its shape needs 2 bytes, and 1 are there; it is damaged or cut short"},
    {SHAPED("(0,)"), "its shape needs 0 bytes, and 1 are there; it is damaged or cut short"},
    {SHAPED("()"), "a single number; an array of rows is needed"},
    {SHAPED("(1)"), "bad .npy header: shape is no tuple; it is damaged, or not written by NumPy"},
    {SHAPED("[1]"), "bad .npy header: shape is no tuple; it is damaged, or not written by NumPy"},
    {SHAPED("(1,,)"),
     "bad .npy header: shape holds something else than whole numbers; it is damaged, or not written by NumPy"},
    {SHAPED("(-1,)"),
     "bad .npy header: shape holds something else than whole numbers; it is damaged, or not written by NumPy"},
    {SHAPED("(1 1,)"), "bad .npy header: shape is no tuple; it is damaged, or not written by NumPy"},
    {SHAPED("(9223372036854775808,)"),
     "bad .npy header: a length in shape is too large; it is damaged, or not written by NumPy"},
    {SHAPED("(4294967296, 4294967296, 0)"), "its shape is too large to be true; it is damaged"},
    {SHAPED("(1, 1, 1, 1, 1, 1, 1, 1, 1)"), "it has more than 8 dimensions; reshape it"},
    {"{'descr': '|u1', 'fortran_order': False, }",
     "bad .npy header: descr, fortran_order or shape is missing; it is damaged, or not written by NumPy"},
    {"{'descr': '|u1', 'descr': '|u1', 'fortran_order': False, 'shape': (1,), }",
     "bad .npy header: its keys are not descr, fortran_order and shape, each once; it is damaged, or not written by "
     "NumPy"},
    {"{'descr': '|u1', 'fortran_order': False, 'shape': (1,), 'more': 1}",
     "bad .npy header: its keys are not descr, fortran_order and shape, each once; it is damaged, or not written by "
     "NumPy"},
    {"{'descr': '|u1' 'fortran_order': False, 'shape': (1,), }",
     "bad .npy header: a ',' is missing; it is damaged, or not written by NumPy"},
    {"{'descr' '|u1', 'fortran_order': False, 'shape': (1,), }",
     "bad .npy header: a ':' is missing; it is damaged, or not written by NumPy"},
    {"{'descr': '|u1, }", "bad .npy header: a text has no end; it is damaged, or not written by NumPy"},
    {"{'descr': '|u1\x01', }",
     "bad .npy header: a text is too long or has odd characters; it is damaged, or not written by NumPy"},
    {"{'descr': 7, }", "bad .npy header: a text in quotes is missing; it is damaged, or not written by NumPy"},
    {"('descr')", "bad .npy header: it is no dictionary; it is damaged, or not written by NumPy"},
    {"", "bad .npy header: it is no dictionary; it is damaged, or not written by NumPy"},
    {OF("|u1") " x", "bad .npy header: something follows the dictionary; it is damaged, or not written by NumPy"},
};

Test(array_file, refuses_every_bad_header_with_the_reason) {
    for (size_t i = 0; i < sizeof bad_headers / sizeof *bad_headers; i++) {
        char says[256];
        bool blanks = strstr(bad_headers[i].says, "no end");
        write_npy_header("a.npy", 1, bad_headers[i].header, "x", 1);
        snprintf(says, sizeof says, "a.npy: %s", bad_headers[i].says);
        /* The text runs into the line end that NumPy puts behind the header. */
        if (blanks)
            cr_expect(strstr(refusal("a.npy"), "a text is too long or has odd characters"), "%s", sherd_last_error());
        else
            cr_expect_str_eq(refusal("a.npy"), says, "%s", sherd_last_error());
    }
}

Test(array_file, refuses_files_that_are_cut_or_no_arrays) {
    write_npy_header("a.npy", 4, OF("|u1"), "x", 1);
    cr_expect_str_eq(refusal("a.npy"), "a.npy: version 4.0 of the .npy format is not known; 1.0, 2.0 and 3.0 are");
    write_file("b.npy", "\x93NUMPY\x01\0\x76\0{", 11);
    cr_expect_str_eq(refusal("b.npy"), "b.npy: its header has 118 bytes, but the file 11; it is damaged or cut short");
    static const unsigned char zeros[70000] = {0x93, 'N', 'U', 'M', 'P', 'Y', 2, 0, 0, 0, 1};
    write_file("c.npy", zeros, sizeof zeros);
    cr_expect_str_eq(refusal("c.npy"), "c.npy: a header of 65536 bytes is not that of an array of numbers");
    write_text("d.npz", "PK\x03\x04 and so on");
    cr_expect_str_eq(refusal("d.npz"), "d.npz: a zip archive, as .npz files are; unpack it and name the .npy files");
    write_text("e.csv", "1,2,3\n4,5,6\n");
    cr_expect_str_eq(refusal("e.csv"), "e.csv: neither a .npy nor a safetensors file");
    write_text("f", "");
    cr_expect_str_eq(refusal("f"), "f: neither a .npy nor a safetensors file");
    cr_expect_str_eq(refusal("none"), "none: cannot open the data file: No such file or directory");
    cr_expect_str_eq(refusal("/"), "/: not a regular file; a data file is one");
}

/* --- safetensors -------------------------------------------------------------------------------------------------- */

static void write_safetensors(const char *path, const char *header, const void *data, size_t bytes) {
    size_t length = strlen(header);
    unsigned char *file = calloc(8 + length + bytes, 1);
    file[0] = (unsigned char)length;
    file[1] = (unsigned char)(length >> 8);
    memcpy(file + 8, header, length);
    memcpy(file + 8 + length, data, bytes);
    write_file(path, file, 8 + length + bytes);
    free(file);
}

Test(array_file, takes_the_named_tensor_of_a_safetensors_file) {
    const uint16_t halves[] = {0x3f80, 0xc000, 0x4040, 0x3c00, 7, 9};
    float values[3];
    int64_t integers[2];
    write_safetensors("a.safetensors",
                      "{\"inputs\":{\"dtype\":\"BF16\",\"shape\":[3,1],\"data_offsets\":[0,6]},"
                      "\"x\":{\"dtype\":\"F16\",\"shape\":[],\"data_offsets\":[6,8]},"
                      "\"targets\":{\"dtype\":\"I16\",\"shape\":[2],\"data_offsets\":[8,12]}}",
                      halves, sizeof halves);
    shd_array_file file = opened("a.safetensors");
    cr_expect_eq(file.row_count, 3);
    cr_assert_eq(shd_array_file_read(&file, 0, 3, 1, values), SHERD_OK);
    cr_expect_eq(values[0], 1);
    cr_expect_eq(values[1], -2);
    cr_expect_eq(values[2], 3);
    shd_array_file_close(&file);
    cr_assert_eq(shd_array_file_open("a.safetensors", "targets", NULL, &file), SHERD_OK);
    cr_assert_eq(shd_array_file_read_integers(&file, 0, 2, integers), SHERD_OK);
    cr_expect_eq(integers[0], 7);
    cr_expect_eq(integers[1], 9);
    shd_array_file_close(&file);
    cr_assert_eq(shd_array_file_open("a.safetensors", "x", NULL, &file), SHERD_DATA);
    cr_expect_str_eq(sherd_last_error(), "a.safetensors: a single number; an array of rows is needed");
    cr_assert_eq(shd_array_file_open("a.safetensors", "labels", NULL, &file), SHERD_DATA);
    cr_expect_str_eq(sherd_last_error(), "a.safetensors: it has no tensor 'labels'; it has inputs, x, targets");
    write_safetensors("b.safetensors", "{\"inputs\":{\"dtype\":\"F8_E4M3\",\"shape\":[1],\"data_offsets\":[0,1]}}",
                      halves, 1);
    cr_expect_str_eq(refusal("b.safetensors"),
                     "b.safetensors: the numbers of tensor 'inputs' are F8_E4M3; save them as F32, say");
}

/* --- change ------------------------------------------------------------------------------------------------------- */

Test(array_file, has_another_fingerprint_when_type_shape_or_numbers_change) {
    static const struct {
        const char *type, *shape;
        char data[9];
    } cases[] = {{"<i4", "(2,)", "abcdefgh"},
                 {"<f4", "(2,)", "abcdefgh"},
                 {"<i4", "(2, 1)", "abcdefgh"},
                 {"<i4", "(1, 2)", "abcdefgh"},
                 {"<i4", "(2,)", "abcdefgi"}};
    uint64_t hashes[5] = {0}, again = 0;
    for (int i = 0; i < 5; i++) {
        write_npy("a.npy", cases[i].type, cases[i].shape, cases[i].data, 8);
        shd_array_file file = opened("a.npy");
        cr_assert_eq(shd_array_file_fingerprint(&file, 4, &hashes[i]), SHERD_OK);
        for (int j = 0; j < i; j++) cr_expect_neq(hashes[i], hashes[j], "%d and %d", i, j);
        shd_array_file_close(&file);
    }
    write_npy("b.npy", "<i4", "(2,)", "abcdefgh", 8);
    shd_array_file file = opened("b.npy");
    cr_assert_eq(shd_array_file_fingerprint(&file, 4, &again), SHERD_OK);
    cr_expect_eq(again, hashes[0]);
    shd_array_file_close(&file);
}

Test(array_file, refuses_a_file_that_changes_its_length) {
    float value;
    write_npy("a.npy", "|u1", "(9,)", "123456789", 9);
    shd_array_file file = opened("a.npy");
    cr_assert_eq(truncate("a.npy", 130), 0);
    cr_expect_eq(shd_array_file_read(&file, 1, 1, 1, &value), SHERD_OK);
    cr_expect_eq(shd_array_file_read(&file, 8, 1, 1, &value), SHERD_DATA);
    cr_expect(strstr(sherd_last_error(), "had 137 bytes when the job started"), "%s", sherd_last_error());
    shd_array_file_close(&file);
    cr_expect_eq(shd_array_file_read(&file, 1, 1, 1, &value), SHERD_DATA);
}
