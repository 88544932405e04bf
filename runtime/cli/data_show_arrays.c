#include "runtime/cli/data_show_arrays.h"

#include "io/array_file.h"
#include "io/npy.h"
#include "io/safetensors.h"
#include "runtime/cli/options.h"
#include "runtime/cli/verdict.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>

/* One array, read to its end; a tensor has a name. */
typedef struct shown_array {
    const char *name; /* NULL in a .npy file */
    const shd_array_file *file;
    shd_array_scan scan;
    json_t *first; /* its first numbers, a list */
} shown_array;

/* --- output ------------------------------------------------------------------------------------------------------- */

static json_t *number_json(double value) {
    if (isfinite(value))
        return value == floor(value) && fabs(value) < 0x1p53 ? json_integer((json_int_t)value) : json_real(value);
    return json_string(isnan(value) ? "nan" : value > 0 ? "inf" : "-inf");
}

static json_t *array_json(const shown_array *array) {
    const shd_array_file *file = array->file;
    json_t *shape = json_array();
    for (int32_t d = 0; d < file->dim_count; d++) json_array_append_new(shape, json_integer(file->shape[d]));
    json_t *json = json_pack("{s:s, s:o, s:o, s:o, s:I, s:O}", "type", shd_array_type_text(file->type), "shape", shape,
                             "lowest", number_json(array->scan.lowest), "highest", number_json(array->scan.highest),
                             "not_finite", (json_int_t)array->scan.not_finite_count, "first", array->first);
    if (array->name) json_object_set_new(json, "name", json_string(array->name));
    return json;
}

static void print_array(const shown_array *array) {
    const shd_array_file *file = array->file;
    char shape[SHD_ARRAY_SHAPE_BYTES];
    shd_array_shape_text(file, shape);
    if (array->name) printf("tensor     %s\n", array->name);
    printf("type       %s\nshape      %s: %" PRId64 " rows of %" PRId64 "\n", shd_array_type_text(file->type), shape,
           file->row_count, file->row_elements);
    if (file->row_count * file->row_elements == 0) return;
    printf("numbers    %.9g to %.9g\n", array->scan.lowest, array->scan.highest);
    if (array->scan.not_finite_count > 0)
        printf("not finite %" PRId64 " (NaN or infinite; training refuses them)\n", array->scan.not_finite_count);
    printf("first     ");
    for (size_t i = 0; i < json_array_size(array->first); i++) {
        const json_t *value = json_array_get(array->first, i);
        if (json_is_string(value))
            printf(" %s", json_string_value(value));
        else
            printf(" %.9g", json_number_value(value));
    }
    putchar('\n');
}

/* --- reading ------------------------------------------------------------------------------------------------------ */

static sherd_status read_array(shd_array_file *file, int64_t count, shown_array *out) {
    double value;
    int64_t there = file->row_count * file->row_elements;
    sherd_status status = shd_array_file_scan(file, &out->scan);
    for (int64_t i = 0; i < count && i < there && status == SHERD_OK; i++) {
        status = shd_array_file_read_doubles(file, i, 1, &value);
        if (status == SHERD_OK) json_array_append_new(out->first, number_json(value));
    }
    return status;
}

/* Adds the array to `list`, or prints it without one. */
static sherd_status show_array(const char *path, const char *name, int64_t count, json_t *list) {
    shd_array_file file;
    sherd_status status = shd_array_file_open(path, name, NULL, &file);
    if (status != SHERD_OK) return status;
    shown_array array = {.name = name, .file = &file, .first = json_array()};
    status = read_array(&file, count, &array);
    if (status == SHERD_OK && list) json_array_append_new(list, array_json(&array));
    if (status == SHERD_OK && !list) print_array(&array);
    json_decref(array.first);
    shd_array_file_close(&file);
    return status;
}

/* A tensor that cannot be trained on: a single number, a type of 8-bit floats. */
static void show_other(const shd_safetensors_entry *entry, json_t *list) {
    const char *type = shd_safetensors_dtype_text(entry->dtype);
    if (list)
        json_array_append_new(list, json_pack("{s:s, s:s, s:I}", "name", entry->name, "type", type, "elements",
                                              (json_int_t)entry->element_count));
    else
        printf("tensor     %s\ntype       %s, %" PRId64 " elements; no array to train on\n", entry->name, type,
               entry->element_count);
}

static sherd_status show_tensors(const char *path, int64_t count, json_t *list) {
    shd_safetensors *opened;
    sherd_status status = shd_safetensors_open(path, &opened);
    if (status != SHERD_OK) return status;
    for (int32_t i = 0; status == SHERD_OK && i < shd_safetensors_count(opened); i++) {
        const shd_safetensors_entry *entry = shd_safetensors_at(opened, i);
        status = show_array(path, entry->name, count, list);
        if (status != SHERD_DATA) continue;
        show_other(entry, list);
        status = SHERD_OK;
    }
    shd_safetensors_close(opened);
    return status;
}

static int print_json(const char *path, bool npy, int64_t bytes, json_t *list) {
    json_t *json =
        json_pack("{s:s, s:s, s:I}", "file", path, "format", npy ? "npy" : "safetensors", "bytes", (json_int_t)bytes);
    if (npy)
        json_object_update(json, json_array_get(list, 0));
    else
        json_object_set(json, "tensors", list);
    int written = json_dumpf(json, stdout, JSON_INDENT(2));
    json_decref(json);
    if (written != 0) {
        shd_say_error("cannot write JSON");
        return SHD_EXIT_FAILED;
    }
    putchar('\n');
    return SHD_EXIT_DONE;
}

static sherd_status look(const char *path, bool *npy, int64_t *bytes) {
    unsigned char start[SHD_NPY_MAGIC_BYTES];
    shd_data_file file;
    sherd_status status = shd_data_file_open(path, "data file", NULL, &file);
    if (status == SHERD_OK) status = shd_data_file_read(&file, 0, sizeof start, start);
    *npy = status == SHERD_OK && shd_npy_is(start);
    *bytes = file.bytes;
    shd_data_file_close(&file);
    return status;
}

int shd_show_arrays(const char *path, int64_t count, bool json) {
    bool npy;
    int64_t bytes;
    json_t *list = json ? json_array() : NULL;
    sherd_status status = look(path, &npy, &bytes);
    if (status == SHERD_OK && !json)
        printf("file       %s\nformat     %s\nbytes      %" PRId64 "\n", path, npy ? "npy" : "safetensors", bytes);
    if (status == SHERD_OK) status = npy ? show_array(path, NULL, count, list) : show_tensors(path, count, list);
    int code = shd_status_exit_code(status);
    if (status != SHERD_OK)
        shd_say_error("%s", sherd_last_error());
    else if (json)
        code = print_json(path, npy, bytes, list);
    json_decref(list);
    return code;
}
