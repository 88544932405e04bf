/* `sherd checkpoint show`: what a checkpoint is of and what is in it, tensor by tensor. */
#include "io/checkpoint_pick.h"
#include "io/job.h"
#include "runtime/cli/advance_line.h"
#include "runtime/cli/commands.h"
#include "runtime/cli/progress.h"
#include "runtime/cli/verdict.h"
#include "runtime/train/checkpoint_contents.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { OPTION_NORMS = 256, OPTION_JSON };

static const shd_option options[] = {
    {OPTION_NORMS, "norms", NULL,
     "Read everything, and print the 2-norm and the largest magnitude of each tensor and state."},
    {OPTION_JSON, "json", NULL, "Print one JSON object."},
    {0},
};

/* What is shown. */
typedef struct show_call {
    const shd_checkpoint *checkpoint;
    const shd_checkpoint_manifest *manifest;
    const shd_value_summary *values;
    json_t *note; /* NULL: there is none */
    bool norms;
} show_call;

static const char *dtype_text(sherd_dtype dtype) {
    static const char *const texts[] = {
        [SHERD_FP32] = "fp32", [SHERD_BF16] = "bf16", [SHERD_FP16] = "fp16", [SHERD_INT8] = "int8"};
    return texts[dtype];
}

static const char *state_name(const show_call *call, int32_t state) {
    return state == 0 ? SHD_CHECKPOINT_PARAMETER : call->manifest->state_names[state - 1];
}

static int64_t value_index(const show_call *call, int32_t tensor, int32_t state) {
    return (int64_t)tensor * (1 + call->manifest->state_count) + state;
}

/* A value of the note's job; NULL where there is none. */
static const json_t *job_value(const show_call *call, const char *section, const char *key) {
    const json_t *job = json_object_get(call->note, "job");
    return json_object_get(section ? json_object_get(job, section) : job, key);
}

static int64_t tokens_seen(const show_call *call) {
    const json_t *value = json_object_get(call->note, "tokens_seen");
    return json_is_integer(value) ? (int64_t)json_integer_value(value) : -1;
}

/* --- as text ------------------------------------------------------------------------------------------------------ */

static void print_states(const show_call *call) {
    const shd_checkpoint_manifest *manifest = call->manifest;
    for (int32_t s = 0; s < manifest->state_count; s++) printf("%s%s", s ? ", " : " (", manifest->state_names[s]);
    if (manifest->state_count > 0) printf(" in %s)", dtype_text(manifest->state_dtype));
}

static void print_head(const show_call *call) {
    const shd_checkpoint_manifest *manifest = call->manifest;
    const char *name = json_string_value(job_value(call, NULL, "name"));
    const char *family = json_string_value(job_value(call, "model", "family"));
    int64_t elements = 0;
    for (int32_t t = 0; t < manifest->tensor_count; t++)
        elements += manifest->values[value_index(call, t, 0)].element_count;
    printf("%s\n", shd_checkpoint_path(call->checkpoint));
    if (name && family) printf("job     %s, %s\n", name, family);
    printf("model   %" PRId64 " parameters in %" PRId32 " tensors\n", elements, manifest->tensor_count);
    printf("state   step %" PRId64 ", %" PRId64 " update%s of %s", manifest->step, manifest->update_count,
           manifest->update_count == 1 ? "" : "s", manifest->optimizer);
    print_states(call);
    if (tokens_seen(call) >= 0) printf(", %" PRId64 " tokens seen", tokens_seen(call));
    if (manifest->loss_scale.scale > 0) printf(", loss scale %g", manifest->loss_scale.scale);
    printf("\nrun     %" PRId32 " rank%s", manifest->world_size, manifest->world_size == 1 ? "" : "s");
    if (manifest->replicas > 1) printf(" in each of %" PRId32 " replicas", manifest->replicas);
    printf(", stage %" PRId32 ", %s\n", manifest->stage, dtype_text(manifest->precision));
    char saved[32] = "", raw[16], stored[16];
    const time_t at = (time_t)manifest->time_s;
    struct tm local;
    if (localtime_r(&at, &local)) strftime(saved, sizeof saved, "%Y-%m-%d %H:%M:%S", &local);
    shd_bytes_text((double)manifest->raw_bytes, raw);
    shd_bytes_text((double)manifest->stored_bytes, stored);
    printf("files   %" PRId32 ", of %s, saved %s; values of %s: ratio %.2f\n\n", manifest->world_size, stored, saved,
           raw, (double)manifest->raw_bytes / (double)manifest->stored_bytes);
}

static void shape_text(const sherd_tensor *tensor, char *text, size_t bytes) {
    size_t used = (size_t)snprintf(text, bytes, "[");
    for (int32_t d = 0; d < tensor->dim_count && used < bytes; d++)
        used += (size_t)snprintf(text + used, bytes - used, "%s%" PRId64, d ? ", " : "", tensor->shape[d]);
    if (used < bytes) snprintf(text + used, bytes - used, "]%s", tensor->frozen ? " frozen" : "");
}

/* "0-3", "0,2": the ranks whose files hold some of it. */
static void files_text(const shd_checkpoint_value *value, int32_t world_size, char *text, size_t bytes) {
    size_t used = 0;
    text[0] = 0;
    for (int32_t rank = 0; rank < world_size && used < bytes; rank++) {
        int32_t last = rank;
        for (bool more = true; more && last < world_size;) {
            more = false;
            for (int64_t i = 0; i < value->range_count && !more; i++) more = value->ranges[i].rank == last;
            last += more;
        }
        if (last == rank) continue;
        used += (size_t)snprintf(text + used, bytes - used, last - rank > 1 ? "%s%" PRId32 "-%" PRId32 : "%s%" PRId32,
                                 used ? "," : "", rank, last - 1);
        rank = last;
    }
}

static void print_value(const show_call *call, int32_t tensor, int32_t state, int width) {
    const shd_checkpoint_value *value = &call->manifest->values[value_index(call, tensor, state)];
    const shd_value_summary *summary = &call->values[value_index(call, tensor, state)];
    char shape[120] = "", files[80], stored[16], name[300];
    if (state > 0 && value->element_count == 0) return;
    if (state == 0) shape_text(&call->manifest->tensors[tensor], shape, sizeof shape);
    snprintf(name, sizeof name, "%s%s", state ? "  " : "",
             state ? state_name(call, state) : call->manifest->tensors[tensor].name);
    files_text(value, call->manifest->world_size, files, sizeof files);
    shd_bytes_text((double)summary->stored_bytes, stored);
    printf("%-*s  %-18s  %-5s  %10s  %5.2f  %-7s", width, name, shape, dtype_text(value->dtype), stored,
           summary->stored_bytes > 0 ? (double)summary->raw_bytes / (double)summary->stored_bytes : 1, files);
    if (call->norms) printf("  %12.6g  %12.6g", summary->norm, summary->largest);
    if (summary->nonfinite_count > 0) printf("  %" PRId64 " not finite", summary->nonfinite_count);
    printf("\n");
}

static void print_text(const show_call *call) {
    int width = 12;
    for (int32_t t = 0; t < call->manifest->tensor_count; t++) {
        const int length = (int)strlen(call->manifest->tensors[t].name);
        if (length > width && length < 60) width = length;
    }
    print_head(call);
    printf("%-*s  %-18s  %-5s  %10s  %5s  %-7s%s\n", width, "tensor", "shape", "dtype", "stored", "ratio", "files",
           call->norms ? "        2-norm       largest" : "");
    for (int32_t t = 0; t < call->manifest->tensor_count; t++)
        for (int32_t s = 0; s <= call->manifest->state_count; s++) print_value(call, t, s, width);
}

/* --- as JSON ------------------------------------------------------------------------------------------------------ */

static json_t *value_json(const show_call *call, int32_t tensor, int32_t state) {
    const shd_checkpoint_value *value = &call->manifest->values[value_index(call, tensor, state)];
    const shd_value_summary *summary = &call->values[value_index(call, tensor, state)];
    json_t *ranks = json_array();
    for (int32_t rank = 0; rank < call->manifest->world_size; rank++)
        for (int64_t i = 0; i < value->range_count; i++)
            if (value->ranges[i].rank == rank) {
                json_array_append_new(ranks, json_integer(rank));
                break;
            }
    json_t *object = json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:o}", "state", state_name(call, state), "dtype",
                               dtype_text(value->dtype), "elements", (json_int_t)value->element_count, "raw_bytes",
                               (json_int_t)summary->raw_bytes, "stored_bytes", (json_int_t)summary->stored_bytes,
                               "blocks", (json_int_t)summary->block_count, "ranks", ranks);
    if (call->norms)
        json_object_update_new(object, json_pack("{s:f, s:f, s:I}", "norm", summary->norm, "largest", summary->largest,
                                                 "not_finite", (json_int_t)summary->nonfinite_count));
    return object;
}

static json_t *tensor_json(const show_call *call, int32_t tensor) {
    const sherd_tensor *described = &call->manifest->tensors[tensor];
    json_t *shape = json_array(), *values = json_array();
    for (int32_t d = 0; d < described->dim_count; d++) json_array_append_new(shape, json_integer(described->shape[d]));
    for (int32_t s = 0; s <= call->manifest->state_count; s++)
        if (s == 0 || call->manifest->values[value_index(call, tensor, s)].element_count > 0)
            json_array_append_new(values, value_json(call, tensor, s));
    return json_pack("{s:s, s:o, s:b, s:o}", "name", described->name, "shape", shape, "frozen", (int)described->frozen,
                     "values", values);
}

static void print_json(const show_call *call) {
    const shd_checkpoint_manifest *manifest = call->manifest;
    json_t *tensors = json_array();
    for (int32_t t = 0; t < manifest->tensor_count; t++) json_array_append_new(tensors, tensor_json(call, t));
    json_t *object =
        json_pack("{s:s, s:I, s:I, s:s, s:s, s:i, s:i, s:i, s:I, s:I, s:I, s:O*, s:o}", "path",
                  shd_checkpoint_path(call->checkpoint), "step", (json_int_t)manifest->step, "updates",
                  (json_int_t)manifest->update_count, "optimizer", manifest->optimizer, "precision",
                  dtype_text(manifest->precision), "world_size", (int)manifest->world_size, "replicas",
                  (int)manifest->replicas, "stage", (int)manifest->stage, "time_s", (json_int_t)manifest->time_s,
                  "raw_bytes", (json_int_t)manifest->raw_bytes, "stored_bytes", (json_int_t)manifest->stored_bytes,
                  "note", call->note, "tensors", tensors);
    char *text = json_dumps(object, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
    printf("%s\n", text ? text : "{}");
    free(text);
    json_decref(object);
}

/* --- the command -------------------------------------------------------------------------------------------------- */

static sherd_status show_open(const shd_checkpoint *checkpoint, bool norms, bool json) {
    show_call call = {
        .checkpoint = checkpoint, .manifest = shd_checkpoint_content(checkpoint), .norms = norms, .values = NULL};
    shd_value_summary *values;
    shd_advance_line line;
    shd_advance_line_init(&line, "reading");
    sherd_status status = shd_contents_read(checkpoint, norms, &line.advance, &values);
    shd_advance_line_end(&line);
    if (status != SHERD_OK) return status;
    call.values = values;
    call.note = call.manifest->note ? json_loads(call.manifest->note, 0, NULL) : NULL;
    if (json)
        print_json(&call);
    else
        print_text(&call);
    json_decref(call.note);
    shd_contents_free(values);
    return SHERD_OK;
}

static int show(const char *path, bool norms, bool json) {
    shd_checkpoint *checkpoint = NULL;
    sherd_status status = shd_checkpoint_pick(path, &checkpoint);
    if (status == SHERD_OK) status = show_open(checkpoint, norms, json);
    shd_checkpoint_close(checkpoint);
    if (status != SHERD_OK) shd_say_error("%s", sherd_last_error());
    return shd_status_exit_code(status);
}

static int run(const shd_command *command, int argc, char **argv) {
    const char *path = NULL;
    bool norms = false, json = false;
    shd_arguments arguments = shd_arguments_begin(command, argc, argv);
    for (int id; (id = shd_arguments_next(&arguments)) != SHD_ARGUMENT_END;) switch (id) {
        case OPTION_NORMS: norms = true; break;
        case OPTION_JSON: json = true; break;
        case SHD_ARGUMENT_OPERAND:
            if (path) return shd_usage_error(command, "one checkpoint at a time: %s is a second one", arguments.value);
            path = arguments.value;
            break;
        default: return arguments.exit_code;
        }
    if (!path) return shd_usage_error(command, "no checkpoint is given");
    return show(path, norms, json);
}

const shd_command shd_command_checkpoint_show = {
    .name = "checkpoint show",
    .summary = "show what a checkpoint is of, and its tensors and states",
    .usage = "CHECKPOINT [--norms] [--json]",
    .about =
        "Shows the job, the step and the ranks of CHECKPOINT, or of the newest in a folder of them, then of every\n"
        "parameter and of each of its optimizer states: the shape, the type, the bytes stored, bytes of values ÷\n"
        "bytes stored, and the ranks whose files hold it. With --json also the note that the job left in it.",
    .options = options,
    .examples = "sherd checkpoint show runs/gpt2/checkpoints\n"
                "sherd checkpoint show runs/gpt2/checkpoints/step-00001200 --norms",
    .exit_codes = "0 shown; 1 it cannot be read; 2 bad usage; 3 no checkpoint at CHECKPOINT, or it is damaged",
    .run = run,
};
