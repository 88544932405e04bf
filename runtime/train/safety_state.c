/* What checkpoints keep of a run's safety. */
#include "runtime/train/safety.h"

#include "io/json.h"
#include "runtime/base/status.h"

#include <math.h>

shd_safety_state shd_safety_start(const shd_job *job) {
    shd_safety_state state = {.rollback_step = -1, .lr_factor = 1};
    state.loss.size = state.grad_norm.size = (int32_t)job->run.outlier_window;
    return state;
}

/* --- writing ------------------------------------------------------------------------------------------------------ */

/* Adds a value to `object`, taking the reference, also when it fails. */
static bool add(json_t *object, const char *key, json_t *value) { return json_object_set_new(object, key, value) == 0; }

static json_t *window_json(const shd_outlier_window *window) {
    json_t *list = json_array();
    bool good = list != NULL;
    for (int32_t i = 0; good && i < window->count; i++)
        good = json_array_append_new(list, json_real(shd_outlier_window_at(window, i))) == 0;
    if (good) return list;
    json_decref(list);
    return NULL;
}

json_t *shd_safety_json(const shd_safety_state *state) {
    json_t *json = json_object(), *window = json_object();
    bool good = json && window && add(json, "skipped_in_row", json_integer(state->bad_in_row)) &&
                add(json, "rollbacks_in_row", json_integer(state->rollbacks_in_row)) &&
                add(json, "rollback_step", json_integer(state->rollback_step)) &&
                add(json, "lr_factor", json_real(state->lr_factor)) && add(window, "loss", window_json(&state->loss)) &&
                add(window, "grad_norm", window_json(&state->grad_norm)) &&
                json_object_set(json, "window", window) == 0;
    json_decref(window);
    if (good) return json;
    json_decref(json);
    return NULL;
}

/* --- reading ------------------------------------------------------------------------------------------------------ */

/* The newest values, as many as fit. */
static sherd_status read_window(const json_t *json, const char *key, shd_outlier_window *out) {
    json_t *list;
    SHD_TRY(shd_json_array(json, key, &list));
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *value = json_array_get(list, i);
        if (!json_is_number(value)) return shd_fail(SHERD_DATA, "\"%s\" must be a list of numbers", key);
        shd_outlier_window_add(out, json_number_value(value));
    }
    return SHERD_OK;
}

static sherd_status read_factor(const json_t *json, double *out) {
    double value = json_number_value(json_object_get(json, "lr_factor"));
    if (!(value > 0 && value <= 1)) return shd_fail(SHERD_DATA, "\"lr_factor\" must be a number above 0, up to 1");
    *out = value;
    return SHERD_OK;
}

sherd_status shd_safety_read(const json_t *json, const shd_job *job, shd_safety_state *out) {
    shd_safety_state state = shd_safety_start(job);
    if (json) {
        const json_t *window = json_object_get(json, "window");
        SHD_TRY(shd_json_int(json, "skipped_in_row", 0, INT64_MAX, &state.bad_in_row));
        SHD_TRY(shd_json_int(json, "rollbacks_in_row", 0, INT64_MAX, &state.rollbacks_in_row));
        SHD_TRY(shd_json_int(json, "rollback_step", -1, INT64_MAX, &state.rollback_step));
        SHD_TRY(read_factor(json, &state.lr_factor));
        SHD_TRY(read_window(window, "loss", &state.loss));
        SHD_TRY(read_window(window, "grad_norm", &state.grad_norm));
    }
    *out = state;
    return SHERD_OK;
}
