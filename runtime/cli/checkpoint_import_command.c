/* `sherd checkpoint import`: weights that others have trained, as a checkpoint. */
#include "io/job.h"
#include "runtime/cli/advance_line.h"
#include "runtime/cli/commands.h"
#include "runtime/cli/job_arguments.h"
#include "runtime/train/checkpoint_import.h"

#include <stdio.h>

enum { OPTION_JOB = 256, OPTION_COMPRESSION, MOST_COMPRESSION = 19 };

static const shd_option options[] = {
    {OPTION_JOB, "job", "JOB.yaml", "The job whose model it is; names and shapes must fit."},
    {SHD_OPTION_SET, "set", "KEY=VALUE", "Set a key of the job: model.context=1024. May be repeated."},
    {OPTION_COMPRESSION, "compression", "LEVEL", "As checkpoint.compression of a job: 0 for none, to 19 (default 1)."},
    {0},
};

typedef struct import_call {
    const char *from, *to;
    int64_t compression;
    shd_job_arguments job;
} import_call;

static int import(const import_call *call, const shd_command *command) {
    shd_job *job;
    int code = shd_job_arguments_load(&call->job, command, &job);
    if (code) return code;
    char *path = NULL;
    const char *kind = NULL;
    shd_advance_line line;
    shd_advance_line_hold_signals();
    shd_advance_line_init(&line, "importing");
    const shd_import import = {.from = call->from,
                               .parent = call->to,
                               .job = job,
                               .compression = (int32_t)call->compression,
                               .advance = &line.advance};
    sherd_status status = shd_import_run(&import, &path, &kind);
    shd_advance_line_end(&line);
    if (status == SHERD_OK) printf("%s\n", path);
    code = shd_advance_line_exit_code(status);
    shd_job_text_free(path);
    shd_job_destroy(job);
    return code;
}

static bool take(import_call *call, const shd_command *command, int id, const char *value) {
    switch (id) {
    case OPTION_JOB: return shd_job_arguments_take(&call->job, command, SHD_ARGUMENT_OPERAND, value);
    case SHD_OPTION_SET: return shd_job_arguments_take(&call->job, command, id, value);
    case OPTION_COMPRESSION:
        if (shd_parse_integer(value, 0, MOST_COMPRESSION, &call->compression)) return true;
        shd_usage_error(command, "--compression %.40s: a whole number from 0 to %d is needed", value, MOST_COMPRESSION);
        return false;
    default:
        if (call->to) {
            shd_usage_error(command, "FILE and TO are needed, and not %s", value);
            return false;
        }
        *(call->from ? &call->to : &call->from) = value;
        return true;
    }
}

static int run(const shd_command *command, int argc, char **argv) {
    import_call call = {.compression = 1};
    shd_arguments arguments = shd_arguments_begin(command, argc, argv);
    for (int id; (id = shd_arguments_next(&arguments)) != SHD_ARGUMENT_END;) {
        if (id == SHD_ARGUMENT_STOP) return arguments.exit_code;
        if (!take(&call, command, id, arguments.value)) return SHD_EXIT_USAGE;
    }
    if (!call.to) return shd_usage_error(command, call.from ? "no folder to write to" : "no file to import");
    if (!call.job.path) return shd_usage_error(command, "--job JOB.yaml is missing: it says which model it is");
    return import(&call, command);
}

const shd_command shd_command_checkpoint_import = {
    .name = "checkpoint import",
    .summary = "make a checkpoint of weights from transformers, llm.c or safetensors",
    .usage = "FILE TO --job JOB.yaml [--set KEY=VALUE]... [--compression LEVEL]",
    .about = "Writes TO/step-00000000 with the weights in FILE, which must fit the model of JOB.yaml. FILE is\n"
             "  safetensors, under the names of the job's model or of Hugging Face's transformers,\n"
             "  a folder of theirs: model.safetensors, whole or in parts,\n"
             "  GPT-2 weights of llm.c, version 3 or 5 (gpt2_124M.bin, gpt2_124M_bf16.bin),\n"
             "  or a checkpoint, of which only the parameters are taken.\n"
             "It has parameters and no optimizer state: 'sherd sample' takes it, a job starts from it with\n"
             "model.init: TO, or goes on with checkpoint.resume_weights_only. Memory does not grow with the model.\n"
             "Prints its path.",
    .options = options,
    .examples = "sherd checkpoint import gpt2-hf imported --job gpt2.yaml\n"
                "sherd checkpoint import gpt2_124M.bin imported --job gpt2.yaml --set model.context=1024",
    .exit_codes = "0 written; 1 TO cannot be written; 2 bad usage or job file, or TO has that step; 3 FILE is refused",
    .run = run,
};
