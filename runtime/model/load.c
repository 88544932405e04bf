/* Matches stored tensors with a model's, and reads slices of them. */
#include "runtime/model/load.h"
#include "runtime/base/arith.h"
#include "runtime/base/memory.h"
#include "runtime/base/status.h"
#include "runtime/model/units.h"

#include <fnmatch.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char output_name[] = "lm_head.weight";

struct shd_weights {
    const shd_model *model;
    shd_weight_source source; /* label is a copy */
    int32_t *stored;          /* the source's index, by the model's tensor index */
    int32_t output;           /* of a stored output matrix that must equal the tied token table; else MISSING */
};

enum { MISSING = -1 };

/* All that is wrong, in one message; what no longer fits is counted. */
typedef struct report {
    char text[1600];
    size_t used;
    int64_t count, hidden;
} report;

__attribute__((format(printf, 2, 3))) static void report_add(report *r, const char *format, ...) {
    char line[320];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    r->count++;
    size_t length = strlen(line) + 2;
    if (r->hidden || r->used + length >= sizeof r->text) {
        r->hidden++;
        return;
    }
    snprintf(r->text + r->used, sizeof r->text - r->used, "%s%s", r->used ? "; " : "", line);
    r->used = strlen(r->text);
}

static sherd_status report_status(const report *r, const char *label) {
    if (r->count == 0) return SHERD_OK;
    if (r->hidden)
        return shd_fail(SHERD_DATA, "%s does not fit the model: %s; and %" PRId64 " more", label, r->text, r->hidden);
    return shd_fail(SHERD_DATA, "%s does not fit the model: %s", label, r->text);
}

/* The stored name as the model has it. */
static const char *plain_name(const shd_model *model, const char *stored) {
    const char *prefix = model->family->stored_prefix;
    size_t length = prefix ? strlen(prefix) : 0;
    return prefix && strncmp(stored, prefix, length) == 0 ? stored + length : stored;
}

static bool is_ignored(const shd_model *model, const char *name) {
    for (int32_t i = 0; i < SHD_MAX_IGNORED && model->family->ignored[i]; i++)
        if (fnmatch(model->family->ignored[i], name, 0) == 0) return true;
    return false;
}

static void shape_text(int32_t dim_count, const int64_t *shape, char *text, size_t bytes) {
    size_t used = (size_t)snprintf(text, bytes, "[");
    for (int32_t i = 0; i < dim_count && used < bytes; i++)
        used += (size_t)snprintf(text + used, bytes - used, "%s%" PRId64, i ? ", " : "", shape[i]);
    if (used < bytes) snprintf(text + used, bytes - used, "]");
}

/* Does `stored` hold what tensor `wanted` needs? */
static void check_stored(const shd_stored_tensor *stored, const sherd_tensor *wanted, report *r) {
    bool same = stored->dim_count == wanted->dim_count;
    for (int32_t i = 0; same && i < wanted->dim_count; i++) same = stored->shape[i] == wanted->shape[i];
    if (!same) {
        char have[96], want[96];
        shape_text(stored->dim_count, stored->shape, have, sizeof have);
        shape_text(wanted->dim_count, wanted->shape, want, sizeof want);
        report_add(r, "%.128s has shape %s, not %s", stored->name, have, want);
    } else if (strcmp(stored->dtype, "F32") && strcmp(stored->dtype, "F16") && strcmp(stored->dtype, "BF16")) {
        report_add(r, "%.128s is stored as %.16s, not F32, F16 or BF16", stored->name, stored->dtype);
    }
}

/* Tensor indices by name, for bisection. */
typedef struct name_index {
    const char *name;
    int32_t tensor;
} name_index;

static int compare_names(const void *a, const void *b) {
    return strcmp(((const name_index *)a)->name, ((const name_index *)b)->name);
}

static void match(shd_weights *weights, const name_index *names, report *r) {
    const shd_model *model = weights->model;
    const shd_weight_source *source = &weights->source;
    const sherd_tensor *tensors = model->description.tensors;
    for (int32_t i = 0; i < source->tensor_count; i++) {
        shd_stored_tensor stored;
        source->describe(source->user, i, &stored);
        name_index key = {.name = plain_name(model, stored.name)};
        const name_index *found =
            bsearch(&key, names, (size_t)model->description.tensor_count, sizeof *names, compare_names);
        if (found && weights->stored[found->tensor] != MISSING) {
            report_add(r, "%.128s is there twice, with and without a prefix", key.name);
        } else if (found) {
            weights->stored[found->tensor] = i;
            check_stored(&stored, &tensors[found->tensor], r);
        } else if (model->config.tied_embeddings && strcmp(key.name, output_name) == 0) {
            weights->output = i;
            check_stored(&stored, &tensors[model->output_tensor], r);
        } else if (!is_ignored(model, key.name)) {
            report_add(r, "%.128s has no place in the model", stored.name);
        }
    }
    for (int32_t t = 0; t < model->description.tensor_count; t++) {
        if (weights->stored[t] != MISSING) continue;
        bool output = strcmp(tensors[t].name, output_name) == 0;
        report_add(r, "%s is missing%s", tensors[t].name,
                   output ? " (was it trained with model.tied_embeddings: true?)" : "");
    }
}

static sherd_status match_all(shd_weights *weights, const shd_weight_source *source) {
    int32_t count = weights->model->description.tensor_count;
    char *label = shd_strdup(source->label);
    name_index *names = shd_alloc((size_t)count, sizeof *names);
    weights->source = *source;
    weights->source.label = label;
    weights->output = MISSING;
    weights->stored = shd_alloc((size_t)count, sizeof *weights->stored);
    if (!label || !names || !weights->stored) {
        shd_free(names);
        return shd_fail(SHERD_MEMORY, "no memory to match %d tensors", count);
    }
    for (int32_t i = 0; i < count; i++) {
        weights->stored[i] = MISSING;
        names[i] = (name_index){weights->model->tensors[i].name, i};
    }
    qsort(names, (size_t)count, sizeof *names, compare_names);
    report found = {.used = 0};
    match(weights, names, &found);
    shd_free(names);
    return report_status(&found, source->label);
}

sherd_status shd_weights_create(const shd_model *model, const shd_weight_source *source, shd_weights **out) {
    shd_weights *weights = shd_alloc(1, sizeof *weights);
    if (!weights) return shd_fail(SHERD_MEMORY, "no memory to load weights");
    weights->model = model;
    sherd_status status = match_all(weights, source);
    if (status != SHERD_OK) {
        shd_weights_destroy(weights);
        return status;
    }
    *out = weights;
    return SHERD_OK;
}

void shd_weights_destroy(shd_weights *weights) {
    if (!weights) return;
    shd_free(weights->stored);
    shd_free((char *)weights->source.label);
    shd_free(weights);
}

/* The output matrix of a tied model must hold the token table's values: checked slice by slice, as they are read. */
static sherd_status check_tied(const shd_weights *weights, int64_t first, int64_t count, const float *values) {
    const shd_weight_source *source = &weights->source;
    enum { PORTION = 1024 };
    float output[PORTION];
    for (int64_t done = 0; done < count; done += PORTION) {
        int64_t portion = shd_min(PORTION, count - done);
        SHD_TRY(source->read(source->user, weights->output, first + done, portion, output));
        for (int64_t i = 0; i < portion; i++) {
            if (memcmp(&output[i], &values[done + i], sizeof *output) == 0) continue;
            return shd_fail(SHERD_DATA,
                            "%s: %s differs from %s at element %" PRId64
                            ", so its embeddings are not tied: model.tied_embeddings must be false",
                            source->label, output_name, weights->model->tensors[weights->model->output_tensor].name,
                            first + done + i);
        }
    }
    return SHERD_OK;
}

sherd_status shd_weights_fill(void *user, int32_t tensor, int64_t first, int64_t count, float *values) {
    const shd_weights *weights = user;
    const shd_weight_source *source = &weights->source;
    SHD_TRY(source->read(source->user, weights->stored[tensor], first, count, values));
    if (tensor != weights->model->output_tensor || weights->output == MISSING) return SHERD_OK;
    return check_tied(weights, first, count, values);
}
