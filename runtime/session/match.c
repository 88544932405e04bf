/* Whether a checkpoint is one of this job: the same tensors, by name and shape, and what the optimizer needs of them. How
 * it was split, and in which types it was computed, does not matter. */
#include "runtime/base/pattern.h"
#include "runtime/base/status.h"
#include "runtime/session/setup.h"
#include "runtime/session/slices.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* --- lists of what does not fit, the first few of each ------------------------------------------------------------ */

enum { SHOWN = 4, LIST_BYTES = 400 };

typedef struct text_list {
    char text[LIST_BYTES];
    int32_t count;
} text_list;

static void add(text_list *list, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void add(text_list *list, const char *format, ...) {
    size_t used = strlen(list->text);
    if (list->count++ >= SHOWN || used + 3 > sizeof list->text) return;
    if (used > 0) used += (size_t)snprintf(list->text + used, sizeof list->text - used, ", ");
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(list->text + used, sizeof list->text - used, format, arguments);
    va_end(arguments);
}

/* "; it lacks a, b, c, d and 3 more" */
static void append(char *out, size_t bytes, const char *before, const text_list *list, const char *behind) {
    size_t used = strlen(out);
    if (list->count == 0) return;
    used += (size_t)snprintf(out + used, bytes - used, "%s%s%s", used > 0 ? "; " : "", before, list->text);
    if (used < bytes && list->count > SHOWN)
        used += (size_t)snprintf(out + used, bytes - used, " and %" PRId32 " more", list->count - SHOWN);
    if (used < bytes) snprintf(out + used, bytes - used, "%s", behind);
}

/* "[3, 4]" */
typedef struct shape_name {
    char text[96];
} shape_name;

static shape_name name_shape(const sherd_tensor *tensor) {
    shape_name name = {"["};
    for (int32_t d = 0; d < tensor->dim_count; d++)
        snprintf(name.text + strlen(name.text), sizeof name.text - strlen(name.text), "%s%lld", d ? ", " : "",
                 (long long)tensor->shape[d]);
    snprintf(name.text + strlen(name.text), sizeof name.text - strlen(name.text), "]");
    return name;
}

/* --- tensors ------------------------------------------------------------------------------------------------------ */

bool shd_load_skips(const sherd_load *load, const char *name) {
    for (int32_t i = 0; load && i < load->skip_pattern_count; i++)
        if (shd_pattern_matches(load->skip_patterns[i], name)) return true;
    return false;
}

/* The index of a name in a list that has most in the order in which they are asked for; -1: it is not there. */
static int32_t find(const sherd_tensor *tensors, int32_t count, const char *name, int32_t likely) {
    if (likely < count && strcmp(tensors[likely].name, name) == 0) return likely;
    for (int32_t t = 0; t < count; t++)
        if (strcmp(tensors[t].name, name) == 0) return t;
    return -1;
}

static bool is_shaped_alike(const sherd_tensor *a, const sherd_tensor *b) {
    return a->dim_count == b->dim_count &&
           (a->dim_count == 0 || memcmp(a->shape, b->shape, (size_t)a->dim_count * sizeof *a->shape) == 0);
}

typedef struct differences {
    text_list missing, unknown, shapes, stateless;
    bool thawed; /* some without state were frozen when it was saved */
} differences;

static void compare_tensors(const shd_checkpoint_manifest *saved, const shd_plan *plan, const sherd_load *load,
                            differences *found) {
    for (int32_t t = 0; t < plan->tensor_count; t++) {
        const sherd_tensor *here = &plan->tensors[t];
        if (shd_load_skips(load, here->name)) continue;
        int32_t index = find(saved->tensors, saved->tensor_count, here->name, t);
        if (index < 0)
            add(&found->missing, "%s", here->name);
        else if (!is_shaped_alike(&saved->tensors[index], here))
            add(&found->shapes, "%s %s instead of %s", here->name, name_shape(&saved->tensors[index]).text,
                name_shape(here).text);
    }
    for (int32_t t = 0; t < saved->tensor_count; t++)
        if (!shd_load_skips(load, saved->tensors[t].name) &&
            find(plan->tensors, plan->tensor_count, saved->tensors[t].name, t) < 0)
            add(&found->unknown, "%s", saved->tensors[t].name);
}

/* --- optimizer state ---------------------------------------------------------------------------------------------- */

static int32_t find_state(const shd_checkpoint_manifest *saved, const char *name) {
    for (int32_t s = 0; s < saved->state_count; s++)
        if (strcmp(saved->state_names[s], name) == 0) return s;
    return -1;
}

static sherd_status compare_optimizers(const char *path, const shd_checkpoint_manifest *saved,
                                       const sherd_optimizer *optimizer) {
    const char *name = shd_optimizer_name(optimizer);
    if (strcmp(saved->optimizer, name) != 0)
        return shd_fail(SHERD_DATA,
                        "%s: saved with optimizer.name: %s, but this job has %s; go on with optimizer.name: %s, or "
                        "start anew with checkpoint.resume: never",
                        path, saved->optimizer, name, saved->optimizer);
    bool same = saved->state_count == shd_optimizer_states(optimizer);
    for (int32_t s = 0; same && s < saved->state_count; s++)
        same = find_state(saved, shd_optimizer_states_name(optimizer, s)) >= 0;
    if (same) return SHERD_OK;
    return shd_fail(SHERD_DATA,
                    "%s: saved with %d values of optimizer state for each parameter, but this job has %d; set "
                    "optimizer.momentum as it was",
                    path, saved->state_count, shd_optimizer_states(optimizer));
}

static void compare_states(const shd_checkpoint_manifest *saved, const sherd_optimizer *optimizer, const shd_plan *plan,
                           const sherd_load *load, differences *found) {
    for (int32_t t = 0; t < plan->tensor_count; t++) {
        int32_t index = find(saved->tensors, saved->tensor_count, plan->tensors[t].name, t);
        if (index < 0 || shd_load_skips(load, plan->tensors[t].name)) continue;
        bool whole = true;
        for (int32_t s = 0; s < saved->state_count; s++) {
            int32_t saved_state = find_state(saved, shd_optimizer_states_name(optimizer, s));
            int64_t there = saved->values[(int64_t)index * (1 + saved->state_count) + 1 + saved_state].element_count;
            int64_t here = shd_state_values(plan, t, s);
            whole = whole && (here == 0 || there == here);
        }
        if (whole) continue;
        add(&found->stateless, "%s", plan->tensors[t].name);
        found->thawed = found->thawed || saved->tensors[index].frozen;
    }
}

/* --- all ---------------------------------------------------------------------------------------------------------- */

sherd_status shd_checkpoint_fits(const shd_checkpoint *checkpoint, const sherd_options *options, const shd_plan *plan,
                                 const sherd_load *load) {
    const shd_checkpoint_manifest *saved = shd_checkpoint_content(checkpoint);
    const char *path = shd_checkpoint_path(checkpoint);
    bool weights_only = load && load->weights_only;
    differences found = {0};
    compare_tensors(saved, plan, load, &found);
    char text[1600] = "";
    append(text, sizeof text, "it lacks ", &found.missing, "");
    append(text, sizeof text, "it has ", &found.unknown, ", which this job does not know");
    append(text, sizeof text, "it has ", &found.shapes, "");
    if (*text) return shd_fail(SHERD_DATA, "%s: saved by another model: %s", path, text);
    if (weights_only) return SHERD_OK;
    SHD_TRY(compare_optimizers(path, saved, &options->optimizer));
    compare_states(saved, &options->optimizer, plan, load, &found);
    if (found.stateless.count == 0) return SHERD_OK;
    append(text, sizeof text, "it has no optimizer state of this job's kind for ", &found.stateless, "");
    return shd_fail(SHERD_DATA, "%s: %s%s; load its weights only, or set that as it was", path, text,
                    found.thawed                            ? ", which was frozen then"
                    : options->optimizer.kind == SHERD_MUON ? ", which another optimizer of optimizer.groups had then"
                                                            : "");
}
