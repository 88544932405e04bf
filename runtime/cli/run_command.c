/* `sherd run`: ranks of any program. */
#include "runtime/cli/commands.h"
#include "runtime/cli/verdict.h"

#include <sherd/status.h>
#include <stddef.h>

static const shd_option options[] = {
    {'n', "nproc-per-node", "N", "Ranks to start (default 1)."},
    SHD_STOP_OPTION("3"),
    {0},
};

static int run(const shd_command *command, int argc, char **argv) {
    int64_t ranks = 1;
    double stop_timeout_s = 3;
    char **program = NULL;
    shd_arguments arguments = shd_arguments_begin(command, argc, argv);
    for (int id; !program && (id = shd_arguments_next(&arguments)) != SHD_ARGUMENT_END;) switch (id) {
        case 'n':
            if (!shd_parse_integer(arguments.value, 1, SHD_LAUNCH_MAX_RANKS, &ranks))
                return shd_usage_error(command, "-n %s: a number of ranks from 1 to %d is needed", arguments.value,
                                       SHD_LAUNCH_MAX_RANKS);
            break;
        case SHD_OPTION_STOP_TIMEOUT:
            if (!shd_parse_stop_timeout(command, arguments.value, &stop_timeout_s)) return SHD_EXIT_USAGE;
            break;
        case SHD_ARGUMENT_OPERAND: program = argv + arguments.next - 1; break;
        default: return arguments.exit_code;
        }
    if (!program) return shd_usage_error(command, "no program to run");

    shd_launch launch = SHD_LAUNCH_INIT;
    launch.argv = program;
    launch.rank_count = (int32_t)ranks;
    launch.stop_grace_s = stop_timeout_s;
    shd_launch_report report;
    if (shd_launch_run(&launch, &report) != SHERD_OK) {
        shd_say_error("%s", sherd_last_error());
        return report.exit_code ? report.exit_code : SHD_EXIT_FAILED;
    }
    shd_report_say(&launch, &report);
    return shd_report_exit_code(&report);
}

const shd_command shd_command_run = {
    .name = "run",
    .summary = "start N ranks of any program on this host",
    .usage = "[-n N] [--stop-timeout SECONDS] PROGRAM [ARGUMENTS]",
    .about =
        "Starts N processes of PROGRAM with torchrun's variables in their environment (RANK, LOCAL_RANK, WORLD_SIZE,\n"
        "LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT, TORCHELASTIC_RUN_ID, ...), and waits for them. A trainer that "
        "calls\n"
        "sherd_options_from_env() finds its rank there; so do programs written for torchrun.\n\n"
        "The first rank that fails ends the job: the others get TERM, and after 3 seconds KILL. Nothing is left "
        "running, not\n"
        "even when sherd itself is killed. TERM, INT, HUP, QUIT, USR1 and USR2 are passed on to the ranks; the second "
        "TERM, INT,\n"
        "HUP or QUIT kills them, as does the first one after the time of --stop-timeout. Ctrl-Z stops all of them.\n"
        "Standard input goes to rank 0.",
    .options = options,
    .examples = "sherd run -n 2 ./own_loop\nsherd run -n 4 python3 train.py --epochs 3",
    .exit_codes = "that of the first rank that failed, 0 when none did; 128+N when signal N ended it;\n"
                  "127 PROGRAM was not found; 126 it cannot be executed; 2 bad usage; 1 no process could be started",
    .run = run,
    .operands_last = true,
};
