/* `sherd checkpoint export`: the parameters of a checkpoint as safetensors, for anybody or for transformers. */
#include "io/checkpoint_export.h"
#include "io/checkpoint_pick.h"
#include "runtime/cli/advance_line.h"
#include "runtime/cli/commands.h"
#include "runtime/train/note.h"

#include <sherd/status.h>
#include <stdio.h>
#include <string.h>

enum { OPTION_TO = 256, OPTION_FORMAT, OPTION_DTYPE };

static const shd_option options[] = {
    {OPTION_FORMAT, "format", "FORMAT",
     "safetensors (default): one file, parameters under the names of the job's model.\n"
     "hf: a folder for Hugging Face's transformers, with model.safetensors under their names\n"
     "and config.json; of gpt2 and llama."},
    {OPTION_DTYPE, "dtype", "DTYPE", "fp32 (default), as they are in the checkpoint; bf16 or fp16: rounded to it."},
    {OPTION_TO, "to", "TO", "The same as TO."},
    {0},
};

typedef struct export_call {
    const char *from, *to;
    bool transformers;
    sherd_dtype dtype;
} export_call;

static sherd_status export_open(const export_call *call, const shd_checkpoint *checkpoint) {
    shd_job *job = NULL;
    sherd_status status = SHERD_OK;
    if (call->transformers) status = shd_note_job(shd_checkpoint_content(checkpoint)->note, NULL, &job);
    if (status != SHERD_OK) return status;
    shd_advance_line line;
    shd_advance_line_init(&line, "exporting");
    const shd_export form = {.to = call->to, .dtype = call->dtype, .transformers = job, .advance = &line.advance};
    status = shd_checkpoint_export_as(checkpoint, &form);
    shd_advance_line_end(&line);
    shd_job_destroy(job);
    return status;
}

static int export(const export_call *call) {
    shd_checkpoint *checkpoint = NULL;
    shd_advance_line_hold_signals();
    sherd_status status = shd_checkpoint_pick(call->from, &checkpoint);
    if (status == SHERD_OK) status = export_open(call, checkpoint);
    shd_checkpoint_close(checkpoint);
    if (status == SHERD_OK) printf("%s\n", call->to);
    return shd_advance_line_exit_code(status);
}

/* False when it is none, which has been said. */
static bool take_format(export_call *call, const shd_command *command, const char *value) {
    call->transformers = !strcmp(value, "hf");
    if (call->transformers || !strcmp(value, "safetensors")) return true;
    shd_usage_error(command, "--format %.40s: safetensors or hf is needed", value);
    return false;
}

static bool take_dtype(export_call *call, const shd_command *command, const char *value) {
    static const char *const words[] = {[SHERD_FP32] = "fp32", [SHERD_BF16] = "bf16", [SHERD_FP16] = "fp16"};
    for (int i = 0; i < 3; i++) {
        if (strcmp(value, words[i])) continue;
        call->dtype = (sherd_dtype)i;
        return true;
    }
    shd_usage_error(command, "--dtype %.40s: fp32, bf16 or fp16 is needed", value);
    return false;
}

/* A checkpoint first, then where to write. */
static bool take_place(export_call *call, const shd_command *command, bool is_target, const char *value) {
    const char **place = !call->from && !is_target ? &call->from : &call->to;
    if (*place) shd_usage_error(command, "one place to write to is needed, not two: %s and %s", *place, value);
    bool good = !*place;
    *place = value;
    return good;
}

static int run(const shd_command *command, int argc, char **argv) {
    export_call call = {0};
    bool good = true;
    shd_arguments arguments = shd_arguments_begin(command, argc, argv);
    for (int id; good && (id = shd_arguments_next(&arguments)) != SHD_ARGUMENT_END;) switch (id) {
        case OPTION_TO: good = take_place(&call, command, true, arguments.value); break;
        case OPTION_FORMAT: good = take_format(&call, command, arguments.value); break;
        case OPTION_DTYPE: good = take_dtype(&call, command, arguments.value); break;
        case SHD_ARGUMENT_OPERAND: good = take_place(&call, command, false, arguments.value); break;
        default: return arguments.exit_code;
        }
    if (!good) return SHD_EXIT_USAGE;
    if (!call.from) return shd_usage_error(command, "no checkpoint to export");
    if (!call.to) return shd_usage_error(command, "no file to write to");
    return export(&call);
}

const shd_command shd_command_checkpoint_export = {
    .name = "checkpoint export",
    .summary = "write a checkpoint's parameters as safetensors, also for transformers",
    .usage = "CHECKPOINT TO [--format FORMAT] [--dtype DTYPE]",
    .about =
        "Writes every parameter of CHECKPOINT, whole, to the file TO, under its name in the model: for gpt2 and llama\n"
        "that of Hugging Face, without a prefix 'transformer.'. CHECKPOINT is one (checkpoints/step-00000020) or the\n"
        "folder that holds them: then it is the newest complete one.\n"
        "With --format hf, TO is a folder that GPT2LMHeadModel or LlamaForCausalLM loads with from_pretrained; the\n"
        "tokenizer is yours to add.\n"
        "All that is read is checked against the checkpoint's checksums, and what is written appears only when it is\n"
        "complete; a file that is there already is replaced then. Memory does not grow with the model. Prints TO.",
    .options = options,
    .examples = "sherd checkpoint export runs/demo/checkpoints demo.safetensors\n"
                "sherd checkpoint export runs/gpt2/checkpoints/step-00001200 gpt2-hf --format hf --dtype bf16",
    .exit_codes = "0 written; 1 TO cannot be written; 2 bad usage; 3 no checkpoint at CHECKPOINT, or it is damaged",
    .run = run,
};
