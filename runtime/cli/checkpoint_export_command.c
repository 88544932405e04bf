/* `sherd checkpoint export`: the parameters of a checkpoint as one safetensors file. */
#include "io/checkpoint.h"
#include "runtime/cli/commands.h"

#include <sherd/status.h>
#include <stdio.h>

enum { OPTION_TO = 256 };

static const shd_option options[] = {
    {OPTION_TO, "to", "FILE",
     "The safetensors file to write; one that exists is replaced when the new one is complete."},
    {0},
};

static int exit_code_of(sherd_status status) {
    switch (status) {
    case SHERD_OK: return SHD_EXIT_DONE;
    case SHERD_ARGUMENT: return SHD_EXIT_USAGE;
    case SHERD_DATA: return SHD_EXIT_DATA;
    default: return SHD_EXIT_FAILED;
    }
}

static int run(const shd_command *command, int argc, char **argv) {
    const char *path = NULL, *to = NULL;
    shd_arguments arguments = shd_arguments_begin(command, argc, argv);
    for (int id; (id = shd_arguments_next(&arguments)) != SHD_ARGUMENT_END;) switch (id) {
        case OPTION_TO: to = arguments.value; break;
        case SHD_ARGUMENT_OPERAND:
            if (path) return shd_usage_error(command, "one checkpoint at a time: %s is a second one", arguments.value);
            path = arguments.value;
            break;
        default: return arguments.exit_code;
        }
    if (!path) return shd_usage_error(command, "no checkpoint to export");
    if (!to) return shd_usage_error(command, "--to FILE is missing");

    sherd_status status = shd_checkpoint_export(path, to);
    if (status != SHERD_OK)
        shd_say_error("%s", sherd_last_error());
    else
        printf("%s\n", to);
    return exit_code_of(status);
}

const shd_command shd_command_checkpoint_export = {
    .name = "checkpoint export",
    .summary = "write a checkpoint's parameters as one safetensors file",
    .usage = "PATH --to FILE",
    .about =
        "Writes every parameter of the checkpoint PATH, whole, in float32, under its name in the model: for gpt2 and\n"
        "llama that of Hugging Face, without a prefix 'transformer.'. PATH is a checkpoint "
        "(checkpoints/step-00000020)\n"
        "or the folder that holds them: then it is the newest complete one.\n"
        "All that is read is checked against the checkpoint's checksums, and FILE appears only when it is complete.\n"
        "Memory does not grow with the model. Prints FILE.",
    .options = options,
    .examples = "sherd checkpoint export runs/demo/checkpoints --to demo.safetensors",
    .exit_codes = "0 written; 1 FILE cannot be written; 2 bad usage; 3 no checkpoint at PATH, or it is damaged",
    .run = run,
};
