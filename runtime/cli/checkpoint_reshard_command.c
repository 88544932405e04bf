/* `sherd checkpoint reshard`: a checkpoint laid out for another number of ranks. */
#include "io/checkpoint_pick.h"
#include "io/job.h"
#include "runtime/cli/advance_line.h"
#include "runtime/cli/commands.h"
#include "runtime/train/checkpoint_reshard.h"

#include <stdio.h>

enum { OPTION_COMPRESSION = 256, MOST_RANKS = 64, MOST_COMPRESSION = 19 };

static const shd_option options[] = {
    {'n', "ranks", "RANKS", "How many files: one for each rank of a shard group, 1 to 64."},
    {OPTION_COMPRESSION, "compression", "LEVEL", "As checkpoint.compression of a job: 0 for none, to 19 (default 1)."},
    {0},
};

typedef struct reshard_call {
    const char *from, *to;
    int64_t ranks, compression;
} reshard_call;

static int reshard(const reshard_call *call) {
    shd_checkpoint *checkpoint = NULL;
    char *path = NULL;
    shd_advance_line line;
    shd_advance_line_hold_signals();
    shd_advance_line_init(&line, "copying");
    sherd_status status = shd_checkpoint_pick(call->from, &checkpoint);
    const shd_reshard wanted = {.from = checkpoint,
                                .parent = call->to,
                                .ranks = (int32_t)call->ranks,
                                .compression = (int32_t)call->compression,
                                .advance = &line.advance};
    if (status == SHERD_OK) status = shd_reshard_run(&wanted, &path);
    shd_advance_line_end(&line);
    if (status == SHERD_OK) printf("%s\n", path);
    const int code = shd_advance_line_exit_code(status);
    shd_job_text_free(path);
    shd_checkpoint_close(checkpoint);
    return code;
}

static bool take_integer(const shd_command *command, const char *option, const char *value, int64_t low, int64_t high,
                         int64_t *out) {
    if (shd_parse_integer(value, low, high, out)) return true;
    shd_usage_error(command, "%s %.40s: a whole number from %d to %d is needed", option, value, (int)low, (int)high);
    return false;
}

static int run(const shd_command *command, int argc, char **argv) {
    reshard_call call = {.compression = 1};
    bool good = true;
    shd_arguments arguments = shd_arguments_begin(command, argc, argv);
    for (int id; good && (id = shd_arguments_next(&arguments)) != SHD_ARGUMENT_END;) switch (id) {
        case 'n': good = take_integer(command, "--ranks", arguments.value, 1, MOST_RANKS, &call.ranks); break;
        case OPTION_COMPRESSION:
            good = take_integer(command, "--compression", arguments.value, 0, MOST_COMPRESSION, &call.compression);
            break;
        case SHD_ARGUMENT_OPERAND:
            if (call.to) return shd_usage_error(command, "CHECKPOINT and TO are needed, and not %s", arguments.value);
            *(call.from ? &call.to : &call.from) = arguments.value;
            break;
        default: return arguments.exit_code;
        }
    if (!good) return SHD_EXIT_USAGE;
    if (!call.to) return shd_usage_error(command, call.from ? "no folder to write to" : "no checkpoint is given");
    if (call.ranks == 0) return shd_usage_error(command, "--ranks RANKS is missing");
    return reshard(&call);
}

const shd_command shd_command_checkpoint_reshard = {
    .name = "checkpoint reshard",
    .summary = "lay a checkpoint out for another number of ranks",
    .usage = "CHECKPOINT TO --ranks RANKS [--compression LEVEL]",
    .about =
        "Writes CHECKPOINT, or the newest in a folder of them, once more into the folder TO, in RANKS files: the same\n"
        "step, job and values, bit by bit. A job may resume from either on any number of ranks; but with as many as\n"
        "there are files, each rank finds all that it needs in its own, as when files are spread over machines.\n"
        "(The layout is the same at every stage.) All that is read is checked, the new one appears only when it is\n"
        "complete, and memory does not grow with the model. Prints its path.",
    .options = options,
    .examples = "sherd checkpoint reshard runs/gpt2/checkpoints on-16 --ranks 16",
    .exit_codes = "0 written; 1 TO cannot be written; 2 bad usage, or TO has that step; 3 no checkpoint, or damaged",
    .run = run,
};
