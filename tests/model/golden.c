#include "golden.h"

#include <criterion/criterion.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static unsigned char *read_file(const char *name, const char *file, int64_t *bytes) {
    char path[1024];
    snprintf(path, sizeof path, "%s/%s/%s", GOLDEN_DIR, name, file);
    FILE *f = fopen(path, "rb");
    cr_assert(f, "%s is not there", path);
    fseek(f, 0, SEEK_END);
    *bytes = ftell(f);
    rewind(f);
    unsigned char *data = malloc((size_t)*bytes);
    cr_assert_eq(fread(data, 1, (size_t)*bytes, f), (size_t)*bytes);
    fclose(f);
    return data;
}

static json_t *read_json(const char *name, const char *file) {
    int64_t bytes;
    char *text = (char *)read_file(name, file, &bytes);
    json_t *value = json_loadb(text, (size_t)bytes, 0, NULL);
    cr_assert(value, "%s/%s is no JSON", name, file);
    free(text);
    return value;
}

static int64_t integer(const json_t *object, const char *key) {
    return json_integer_value(json_object_get(object, key));
}

static void read_case(golden *g, const char *name) {
    json_t *root = read_json(name, "case.json");
    const json_t *m = json_object_get(root, "model"), *data = json_object_get(root, "data");
    bool llama = strcmp(json_string_value(json_object_get(m, "family")), "llama") == 0;
    g->config = (shd_model_config){
        .family = llama ? SHD_MODEL_LLAMA : SHD_MODEL_GPT2,
        .vocab_size = integer(m, "vocab"),
        .context = integer(m, "context"),
        .d_model = integer(m, "d_model"),
        .n_layer = integer(m, "n_layer"),
        .n_head = integer(m, "n_head"),
        .n_kv_head = integer(m, "n_kv_head"),
        .d_ff = integer(m, "d_ff"),
        .rope_theta = json_number_value(json_object_get(m, "rope_theta")),
        .tied_embeddings = json_is_true(json_object_get(m, "tied")),
        .micro_batch = 1,
        .threads = 1,
    };
    g->global_batch = integer(json_object_get(root, "train"), "global_batch");
    g->ignored_token = json_object_get(data, "ignored_token") ? integer(data, "ignored_token") : -1;
    size_t i;
    json_t *pattern;
    json_array_foreach(json_object_get(root, "frozen"), i, pattern) g->frozen[i] = strdup(json_string_value(pattern));
    g->config.frozen = (const char *const *)g->frozen;
    g->config.frozen_count = (int32_t)json_array_size(json_object_get(root, "frozen"));

    const char *format = json_string_value(json_object_get(data, "format"));
    int64_t bytes, width = strcmp(format, "u32") == 0 ? 4 : 2, header = strcmp(format, "llmc") == 0 ? 1024 : 0;
    unsigned char *file = read_file(name, "tokens.bin", &bytes);
    g->token_count = (bytes - header) / width;
    g->tokens = calloc((size_t)g->token_count, sizeof *g->tokens);
    for (int64_t t = 0; t < g->token_count; t++) memcpy(&g->tokens[t], file + header + t * width, (size_t)width);
    free(file);
    json_decref(root);
}

static void read_expected(golden *g, const char *name) {
    json_t *root = read_json(name, "expected.json");
    const json_t *f64 = json_object_get(root, "f64");
    g->loss = json_real_value(json_array_get(json_object_get(f64, "loss"), 0));
    g->grad_norm = json_real_value(json_array_get(json_object_get(f64, "grad_norm"), 0));
    json_decref(root);
}

static void describe(const void *user, int32_t index, shd_stored_tensor *out) {
    *out = ((const golden *)user)->stored[index];
}

static sherd_status read_elements(const void *user, int32_t index, int64_t first, int64_t count, float *values) {
    memcpy(values, ((const golden *)user)->data[index] + first * 4, (size_t)count * 4);
    return SHERD_OK;
}

static void read_weights(golden *g, const char *name) {
    int64_t bytes;
    uint64_t header;
    g->file = read_file(name, "init.safetensors", &bytes);
    memcpy(&header, g->file, 8);
    json_t *root = json_loadb((char *)g->file + 8, (size_t)header, 0, NULL);
    cr_assert(root);
    g->stored = calloc(json_object_size(root), sizeof *g->stored);
    g->data = calloc(json_object_size(root), sizeof *g->data);
    const char *key;
    json_t *value;
    json_object_foreach(root, key, value) {
        const json_t *shape = json_object_get(value, "shape");
        int64_t *lengths = calloc(json_array_size(shape) + 1, sizeof *lengths);
        for (size_t i = 0; i < json_array_size(shape); i++) lengths[i] = json_integer_value(json_array_get(shape, i));
        int64_t offset = json_integer_value(json_array_get(json_object_get(value, "data_offsets"), 0));
        g->data[g->stored_count] = g->file + 8 + header + offset;
        g->stored[g->stored_count++] = (shd_stored_tensor){
            .name = strdup(key), .dtype = "F32", .dim_count = (int32_t)json_array_size(shape), .shape = lengths};
    }
    json_decref(root);
    g->source = (shd_weight_source){
        .label = name, .tensor_count = g->stored_count, .describe = describe, .read = read_elements, .user = g};
}

void golden_open(golden *g, const char *name) {
    *g = (golden){.stored_count = 0};
    read_case(g, name);
    read_expected(g, name);
    read_weights(g, name);
}

void golden_close(golden *g) {
    for (int32_t i = 0; i < g->stored_count; i++) {
        free((char *)g->stored[i].name);
        free((int64_t *)g->stored[i].shape);
    }
    for (int32_t i = 0; i < GOLDEN_MAX_FROZEN; i++) free(g->frozen[i]);
    free(g->stored);
    free(g->data);
    free(g->file);
    free(g->tokens);
}
