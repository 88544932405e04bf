/* `sherd run`: ranks of any program, with torchrun's options. */
#include "runtime/cli/commands.h"
#include "runtime/cli/failure_say.h"
#include "runtime/cli/launch_arguments.h"
#include "runtime/cli/output_arguments.h"
#include "runtime/cli/placement.h"
#include "runtime/cli/run_request.h"
#include "runtime/cli/saving.h"
#include "runtime/cli/verdict.h"

#include <sherd/log.h>
#include <sherd/status.h>
#include <stdlib.h>

static const shd_option options[] = {
    SHD_RUN_OPTIONS,
    SHD_OUTPUT_OPTIONS,
    SHD_LAUNCH_OPTIONS,
    {0},
};

/* What there is to say of the way. */
static void say_line(void *user, sherd_log_level level, const char *line) {
    (void)user;
    shd_say_error(level == SHERD_LOG_WARN ? "warning: %s" : "%s", line);
}

/* What was asked for. */
typedef struct run_arguments {
    shd_run_request request;
    shd_launch_arguments launch;
    shd_output_arguments output;
} run_arguments;

static void judge(const shd_launch *launch, const shd_launch_report *report) {
    const shd_failure_story story = SHD_FAILURE_STORY_INIT;
    shd_report_say(launch, report);
    shd_failure_say(launch, report, &story);
}

static bool restarts(void *user, shd_launch_report *report, double delay_s) {
    const shd_launch *launch = user;
    judge(launch, report);
    shd_report_say_restart(launch, report, delay_s);
    return true;
}

/* Starts the ranks of `program`. */
static int launch_program(run_arguments *given, shd_output *output, char **program) {
    shd_launch launch = shd_launch_arguments_make(&given->launch);
    sherd_log_set(say_line, NULL, SHERD_LOG_INFO);
    shd_outlive_readers();
    if (!shd_run_request_fill(&given->request, &launch)) return SHD_EXIT_USAGE;
    launch.output = output;
    launch.argv = program;
    launch.repeat_s = SHD_STOP_REPEAT_MS / 1e3;
    launch.restarts = restarts;
    launch.user = &launch;
    shd_affinity affinity;
    shd_placement_make(given->launch.affinity, true, &launch, &affinity);
    shd_launch_report report;
    sherd_status status = shd_launch_run(&launch, &report);
    shd_affinity_fini(&affinity);
    if (status != SHERD_OK) {
        shd_say_error("%s", sherd_last_error());
        return report.exit_code ? report.exit_code : SHD_EXIT_FAILED;
    }
    judge(&launch, &report);
    return shd_report_exit_code(&report);
}

/* False, with what is wrong said, for a value that is none. */
static bool take_option(run_arguments *given, const shd_command *command, int id, const char *value) {
    if (shd_output_arguments_take(&given->output, id, value)) return true;
    if (shd_launch_arguments_has(id)) return shd_launch_arguments_take(&given->launch, command, id, value);
    return shd_run_request_take(&given->request, command, id, value);
}

static int run(const shd_command *command, int argc, char **argv) {
    run_arguments given = {.request = SHD_RUN_REQUEST_INIT, .launch = SHD_LAUNCH_ARGUMENTS_INIT};
    shd_run_request *request = &given.request;
    shd_output output;
    char **operands = NULL;
    shd_arguments arguments = shd_arguments_begin(command, argc, argv);
    for (int id; !operands && (id = shd_arguments_next(&arguments)) != SHD_ARGUMENT_END;) {
        if (id == SHD_ARGUMENT_STOP) return arguments.exit_code;
        if (id == SHD_ARGUMENT_OPERAND)
            operands = argv + arguments.next - 1;
        else if (!take_option(&given, command, id, arguments.value))
            return SHD_EXIT_USAGE;
        /* As in Python, what follows a module's name is the module's. */
        if (request->module && !operands) operands = argv + arguments.next;
    }
    if (!operands || (!*operands && !request->module)) return shd_usage_error(command, "no program to run");
    if (!shd_run_request_check(request, command)) return SHD_EXIT_USAGE;
    int code = shd_output_arguments_fill(&given.output, command, request->rank_count, &output);
    if (code) return code;
    char **program = shd_run_request_program(request, operands);
    if (program) {
        code = launch_program(&given, &output, program);
    } else {
        shd_say_error("no memory for the arguments of the ranks");
        code = SHD_EXIT_FAILED;
    }
    shd_output_fini(&output);
    free(program);
    return code;
}

const shd_command shd_command_run = {
    .name = "run",
    .summary = "start ranks of any program, as torchrun does",
    .usage = "[OPTIONS] PROGRAM [ARGUMENTS]",
    .about =
        "Starts N processes of PROGRAM with torchrun's variables in their environment (RANK, LOCAL_RANK, WORLD_SIZE,\n"
        "LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT, TORCHELASTIC_RUN_ID, ...), and waits for them. A trainer that "
        "calls\n"
        "sherd_options_from_env() finds its rank there; so do programs written for torchrun. PROGRAM is executed; a "
        "script\n"
        "whose name ends in .py is given to Python. Options may be written with _ for -.\n\n"
        "The first rank that fails ends the job: the others get TERM, and after 3 seconds KILL; with --max-restarts "
        "all are\n"
        "started again. Nothing is left running, not even when sherd itself is killed. TERM, INT, HUP, QUIT, USR1 and "
        "USR2\n"
        "are passed on to the ranks; a second TERM, INT, HUP or QUIT, at least 0.25 s later, kills them, as does the "
        "first one\n"
        "after the time of --shutdown-timeout. Ctrl-Z stops all of them. Standard input goes to rank 0.",
    .options = options,
    .examples = "sherd run -n 2 ./own_loop\nsherd run --nproc-per-node auto train.py --epochs 3\n"
                "sherd run --nnodes 2 --rdzv-endpoint node0:29400 --rdzv-secret-file secret -n 8 train.py   # on each "
                "node",
    .exit_codes = "that of the first rank that failed, 0 when none did; 128+N when signal N ended it;\n"
                  "127 PROGRAM was not found; 126 it cannot be executed; 2 bad usage; 1 no process could be started,\n"
                  "or a node was lost",
    .run = run,
    .operands_last = true,
};
