/* `sherd doctor`: what this machine can do; and whether a job would fly, before it does. */
#include "runtime/cli/commands.h"
#include "runtime/cli/doctor_ranks.h"
#include "runtime/cli/doctor_report.h"
#include "runtime/cli/job_arguments.h"
#include "runtime/train/checks/checkup.h"

#include <sherd/log.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

enum {
    OPTION_ALL_DATA = 300,
    OPTION_OVERFIT,
    OPTION_COMPARE,
    OPTION_JSON,
    OPTION_AS_RANK,
    OPTION_PROGRAM,
    PENDING = 8
};

static const shd_option options[] = {
    SHD_JOB_OPTIONS,
    {OPTION_ALL_DATA, "all-data", NULL, "Look at every token or sample, however many there are, not at some."},
    {OPTION_OVERFIT, "overfit", NULL,
     "Also train on one batch until its loss is near zero, for a minute at most: a sound model can."},
    {OPTION_COMPARE, "compare-ranks", NULL,
     "Also train the same three steps on one rank and on all, and compare every bit."},
    {OPTION_JSON, "json", NULL, "Print the findings as one JSON object."},
    {OPTION_AS_RANK, "as-rank", "ORDER", NULL},
    {OPTION_PROGRAM, "rank-program", "PATH", NULL},
    {0},
};

typedef struct doctor_request {
    shd_job_arguments job;
    bool all_data, overfit, compare, json;
    const char *as_rank, *program; /* not for users: what ranks are told, and a program to run in their place */
    int argc;
    char **argv;
} doctor_request;

/* Where findings and warnings of the log meet: what a check has logged belongs to its finding. */
typedef struct doctor_view {
    shd_doctor_report report;
    char lines[PENDING][SHD_FINDING_BYTES];
    int line_count;
} doctor_view;

static void take_log_line(void *user, sherd_log_level level, const char *line) {
    doctor_view *view = user;
    if (level <= SHERD_LOG_WARN && view->line_count < PENDING)
        snprintf(view->lines[view->line_count++], SHD_FINDING_BYTES, "%s", line);
}

static void take(void *user, const shd_finding *finding) {
    doctor_view *view = user;
    shd_doctor_report_take(&view->report, finding);
    for (int i = 0; i < view->line_count; i++) {
        shd_finding warning = {.check = finding->check, .state = SHD_CHECK_WARNING};
        snprintf(warning.text, sizeof warning.text, "%s", view->lines[i]);
        shd_doctor_report_take(&view->report, &warning);
    }
    view->line_count = 0;
}

/* Errors without which ranks would only find the same. */
static bool may_start(const doctor_view *view, const shd_job *job) {
    if (!job) return true;
    int code = view->report.errors > 0 ? shd_doctor_report_exit_code(&view->report) : SHD_EXIT_DONE;
    return code != SHD_EXIT_USAGE && code != SHD_EXIT_DATA;
}

/* The ranks of a machine without a job: enough to have somebody to talk to. */
static bool count_ranks(const doctor_request *request, const shd_command *command, const shd_job *job, int32_t *out) {
    int64_t ranks = job ? job->run.ranks : 2;
    if (!job && request->job.ranks && !shd_parse_integer(request->job.ranks, 1, SHD_COMM_MAX_RANKS, &ranks)) {
        shd_usage_error(command, "-n %.20s: a number of ranks from 1 to %d is needed", request->job.ranks,
                        SHD_COMM_MAX_RANKS);
        return false;
    }
    *out = (int32_t)ranks;
    return true;
}

static int examine(const doctor_request *request, const shd_command *command, const shd_job *job) {
    static doctor_view view;
    shd_checkup checkup;
    shd_doctor_ranks ranks = {.job = job,
                              .program = request->program,
                              .argc = request->argc,
                              .argv = request->argv,
                              .overfit = request->overfit,
                              .compare = request->compare};
    if (!count_ranks(request, command, job, &ranks.rank_count)) return SHD_EXIT_USAGE;
    shd_doctor_report_init(&view.report, request->json);
    shd_checkup_init(&checkup, job);
    checkup.thorough = true;
    checkup.all_data = request->all_data;
    sherd_log_set(take_log_line, &view, SHERD_LOG_WARN);
    shd_checkup_run(&checkup, SHD_CHECK_MACHINE | (job ? SHD_CHECK_JOB : 0), take, &view);
    int stopped = 0;
    if (may_start(&view, job)) {
        stopped = shd_doctor_ranks_run(&ranks, &checkup, take, &view);
    } else {
        shd_finding skipped = {.check = "ranks"};
        shd_finding_skip(&skipped, "none is started, because of the errors above");
        take(&view, &skipped);
    }
    shd_checkup_fini(&checkup);
    sherd_log_set(NULL, NULL, SHERD_LOG_ERROR);
    int code = shd_doctor_report_finish(&view.report, job ? job->path : NULL);
    return stopped ? SHD_EXIT_SIGNAL + stopped : code;
}

static int run(const shd_command *command, int argc, char **argv) {
    static doctor_request request;
    /* A limit of file sizes also holds for memory that is shared: it is to be found, and not to end the search. */
    signal(SIGXFSZ, SIG_IGN);
    request.argc = argc;
    request.argv = argv;
    shd_arguments arguments = shd_arguments_begin(command, argc, argv);
    for (int id; (id = shd_arguments_next(&arguments)) != SHD_ARGUMENT_END;) switch (id) {
        case SHD_ARGUMENT_STOP: return arguments.exit_code;
        case OPTION_ALL_DATA: request.all_data = true; break;
        case OPTION_OVERFIT: request.overfit = true; break;
        case OPTION_COMPARE: request.compare = true; break;
        case OPTION_JSON: request.json = true; break;
        case OPTION_AS_RANK: request.as_rank = arguments.value; break;
        case OPTION_PROGRAM: request.program = arguments.value; break;
        default:
            if (!shd_job_arguments_take(&request.job, command, id, arguments.value)) return SHD_EXIT_USAGE;
        }
    if (!request.job.path) {
        bool wants_job = request.all_data || request.overfit || request.compare;
        for (int32_t i = 0; i < request.job.setting_count; i++) wants_job |= !request.job.settings[i].source;
        if (wants_job) return shd_usage_error(command, "only -n and --json go without JOB.yaml");
        return request.as_rank ? shd_doctor_rank(request.as_rank, NULL) : examine(&request, command, NULL);
    }
    shd_job *job;
    int code = shd_job_arguments_load(&request.job, command, &job);
    if (code) return code;
    code = request.as_rank ? shd_doctor_rank(request.as_rank, job) : examine(&request, command, job);
    shd_job_destroy(job);
    return code;
}

const shd_command shd_command_doctor = {
    .name = "doctor",
    .summary = "look at this machine, and at a job before it starts",
    .usage = "[JOB.yaml] [-n RANKS] [--set KEY=VALUE]... [--all-data] [--overfit] [--compare-ranks] [--json]",
    .about = "Without a job: what this machine can do, and what RANKS processes (by default 2) find of each other. "
             "With one,\n"
             "also whether it would run: its model, memory, data, checkpoints to go on from, folders of outputs, the "
             "room and\n"
             "speed there; and on its ranks a step of the real model on the first real data, from where the job would "
             "begin.\n"
             "A line for each check: ok, warning or error, with what to do; numbers are measured. It writes nothing "
             "where the\n"
             "job writes, and leaves nothing behind, however it ends.",
    .options = options,
    .examples = "sherd doctor\n"
                "sherd doctor configs/gpt2-124m.yaml -n 4\n"
                "sherd doctor job.yaml -n 2 --overfit --compare-ranks\n"
                "sherd doctor configs/gpt2-124m.yaml --all-data --json",
    .exit_codes =
        "0 good, perhaps with warnings; 1 a check failed, or could not be made; 2 bad usage or bad job file;\n"
        "3 data or checkpoint refused",
    .run = run,
};
