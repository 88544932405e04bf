/* Loading initial weights: names, prefixes, dtypes, slices, and everything that does not fit. */
#include "harness.h"

#include "runtime/model/load.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const shd_model_config tiny = {.family = SHD_MODEL_GPT2,
                                      .vocab_size = 5,
                                      .context = 4,
                                      .d_model = 6,
                                      .n_layer = 2,
                                      .n_head = 3,
                                      .tied_embeddings = true,
                                      .micro_batch = 1,
                                      .threads = 1};

/* A file in memory: the model's own tensors, then what a test adds. */
enum { MAX_STORED = 64, MAX_ELEMENTS = 4096 };
typedef struct store {
    shd_stored_tensor tensors[MAX_STORED];
    char names[MAX_STORED][96];
    int64_t shapes[MAX_STORED][4];
    float data[MAX_STORED][MAX_ELEMENTS];
    int64_t read_count; /* elements */
    int64_t *reads;     /* points to it, since a source is const */
    shd_weight_source source;
    shd_model *model;
} store;

static void describe(const void *user, int32_t index, shd_stored_tensor *out) {
    *out = ((const store *)user)->tensors[index];
}

static sherd_status read_elements(const void *user, int32_t index, int64_t first, int64_t count, float *values) {
    const store *s = user;
    *s->reads += count;
    memcpy(values, s->data[index] + first, (size_t)count * sizeof *values);
    return SHERD_OK;
}

static float value_of(int64_t tensor, int64_t element) { return (float)tensor + (float)element / 64; }

static int64_t put(store *s, const char *name, int32_t dim_count, const int64_t *shape) {
    int64_t index = s->source.tensor_count++, count = 1;
    snprintf(s->names[index], sizeof s->names[index], "%s", name);
    for (int32_t i = 0; i < dim_count; i++) count *= s->shapes[index][i] = shape[i];
    for (int64_t i = 0; i < count && i < MAX_ELEMENTS; i++) s->data[index][i] = value_of(index, i);
    s->tensors[index] = (shd_stored_tensor){.name = s->names[index],
                                            .dtype = index % 2 ? "F32" : "BF16",
                                            .dim_count = dim_count,
                                            .shape = s->shapes[index]};
    return index;
}

static store *store_open(const shd_model_config *config, const char *prefix) {
    store *s = calloc(1, sizeof *s);
    cr_assert_eq(shd_model_create(config, &s->model), SHERD_OK);
    s->source =
        (shd_weight_source){.label = "weights.safetensors", .describe = describe, .read = read_elements, .user = s};
    s->reads = &s->read_count;
    const sherd_model *d = shd_model_describe(s->model);
    for (int32_t t = 0; t < d->tensor_count; t++) {
        char name[96];
        bool output = strcmp(d->tensors[t].name, "lm_head.weight") == 0;
        snprintf(name, sizeof name, "%s%s", output ? "" : prefix, d->tensors[t].name);
        put(s, name, d->tensors[t].dim_count, d->tensors[t].shape);
    }
    return s;
}

static void store_close(store *s) {
    shd_model_destroy(s->model);
    free(s);
}

/* Slices of three elements from every tensor, and not an element more than that is read. */
static void check_loads(store *s, bool tied_twice) {
    shd_weights *weights = NULL;
    cr_assert_eq(shd_weights_create(s->model, &s->source, &weights), SHERD_OK, "%s", sherd_last_error());
    const sherd_model *d = shd_model_describe(s->model);
    for (int32_t t = 0; t < d->tensor_count; t++) {
        float slice[3];
        cr_assert_eq(shd_weights_fill(weights, t, 2, 3, slice), SHERD_OK, "%s", sherd_last_error());
        for (int i = 0; i < 3; i++) cr_assert_eq(slice[i], value_of(t, 2 + i), "%s", d->tensors[t].name);
    }
    cr_assert_eq(s->read_count, 3 * (d->tensor_count + tied_twice), "%ld elements read", (long)s->read_count);
    shd_weights_destroy(weights);
}

static void check_refused(store *s, const char *message) {
    shd_weights *weights = NULL;
    cr_assert_eq(shd_weights_create(s->model, &s->source, &weights), SHERD_DATA, "accepted, but: %s", message);
    cr_assert_null(weights);
    cr_assert(strstr(sherd_last_error(), message), "\"%s\" does not say \"%s\"", sherd_last_error(), message);
}

Test(load, reads_slices_with_and_without_the_prefix) {
    shd_model_config untied = tiny;
    untied.tied_embeddings = false;
    const shd_model_config *configs[] = {&tiny, &untied};
    for (int c = 0; c < 2; c++)
        for (int prefixed = 0; prefixed < 2; prefixed++) {
            store *s = store_open(configs[c], prefixed ? "transformer." : "");
            check_loads(s, false);
            store_close(s);
        }
}

Test(load, ignores_buffers_and_a_tied_output_matrix_that_equals_the_token_table) {
    store *s = store_open(&tiny, "transformer.");
    put(s, "transformer.h.0.attn.bias", 4, (int64_t[]){1, 1, 4, 4});
    put(s, "h.1.attn.masked_bias", 0, NULL);
    int64_t output = put(s, "lm_head.weight", 2, (int64_t[]){5, 6});
    memcpy(s->data[output], s->data[0], sizeof s->data[0]);
    check_loads(s, true);
    store_close(s);
}

Test(load, finds_an_output_matrix_that_is_not_tied) {
    store *s = store_open(&tiny, "");
    int64_t output = put(s, "lm_head.weight", 2, (int64_t[]){5, 6});
    memcpy(s->data[output], s->data[0], sizeof s->data[0]);
    s->data[output][7] = nextafterf(s->data[output][7], 9);
    shd_weights *weights;
    float values[30];
    cr_assert_eq(shd_weights_create(s->model, &s->source, &weights), SHERD_OK);
    cr_assert_eq(shd_weights_fill(weights, 0, 0, 7, values), SHERD_OK);
    cr_assert_eq(shd_weights_fill(weights, 0, 8, 22, values), SHERD_OK);
    cr_assert_eq(shd_weights_fill(weights, 0, 0, 30, values), SHERD_DATA);
    cr_assert(strstr(sherd_last_error(), "lm_head.weight differs from wte.weight at element 7"), "%s",
              sherd_last_error());
    cr_assert(strstr(sherd_last_error(), "model.tied_embeddings must be false"));
    shd_weights_destroy(weights);
    store_close(s);
}

Test(load, names_all_that_does_not_fit_in_one_message) {
    store *s = store_open(&tiny, "");
    snprintf(s->names[3], sizeof s->names[3], "h.7.ln_1.bias");
    s->shapes[4][1] = 6;
    s->tensors[5].dim_count = 2;
    s->shapes[5][1] = 1;
    s->tensors[6].dtype = "I64";
    check_refused(s, "weights.safetensors does not fit the model: ");
    check_refused(s, "h.7.ln_1.bias has no place in the model");
    check_refused(s, "h.0.attn.c_attn.weight has shape [6, 6], not [6, 18]");
    check_refused(s, "h.0.attn.c_attn.bias has shape [18, 1], not [18]");
    check_refused(s, "h.0.attn.c_proj.weight is stored as I64, not F32, F16 or BF16");
    check_refused(s, "h.0.ln_1.bias is missing");
    store_close(s);
}

Test(load, counts_what_no_message_can_hold) {
    shd_model_config deep = tiny;
    deep.n_layer = 40;
    store *s = store_open(&tiny, "");
    shd_model_destroy(s->model);
    cr_assert_eq(shd_model_create(&deep, &s->model), SHERD_OK);
    check_refused(s, "h.2.ln_1.weight is missing");
    check_refused(s, " more");
    int hidden = 0, shown = 0;
    const char *and = strstr(sherd_last_error(), "; and ");
    cr_assert_eq(sscanf(and, "; and %d more", &hidden), 1);
    for (const char *at = sherd_last_error(); (at = strstr(at, " is missing")); at++) shown++;
    cr_assert_eq(shown + hidden, 38 * 12);
    store_close(s);
}

Test(load, refuses_a_tensor_stored_under_both_names) {
    store *s = store_open(&tiny, "");
    put(s, "transformer.wpe.weight", 2, (int64_t[]){4, 6});
    check_refused(s, "wpe.weight is there twice, with and without a prefix");
    store_close(s);
}

Test(load, hints_at_tied_embeddings_when_the_output_matrix_is_missing) {
    shd_model_config untied = tiny;
    untied.tied_embeddings = false;
    store *s = store_open(&untied, "");
    s->source.tensor_count--;
    check_refused(s, "lm_head.weight is missing (was it trained with model.tied_embeddings: true?)");
    store_close(s);
}

static sherd_status fail_to_read(const void *user, int32_t index, int64_t first, int64_t count, float *values) {
    (void)user, (void)index, (void)first, (void)count, (void)values;
    return SHERD_IO;
}

Test(load, passes_a_failed_read_on) {
    store *s = store_open(&tiny, "");
    s->source.read = fail_to_read;
    shd_weights *weights;
    float value;
    cr_assert_eq(shd_weights_create(s->model, &s->source, &weights), SHERD_OK);
    cr_assert_eq(shd_weights_fill(weights, 3, 0, 1, &value), SHERD_IO);
    shd_weights_destroy(weights);
    store_close(s);
}
