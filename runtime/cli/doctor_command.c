/* `sherd doctor`: what this machine can do; and whether a job would fly, before it does. */
#include "runtime/cli/commands.h"
#include "runtime/cli/doctor_report.h"
#include "runtime/cli/job_arguments.h"
#include "runtime/train/checks/checkup.h"

#include <sherd/log.h>
#include <stdio.h>
#include <string.h>

enum { OPTION_ALL_DATA = 300, OPTION_JSON, PENDING = 8 };

static const shd_option options[] = {
    SHD_JOB_OPTIONS,
    {OPTION_ALL_DATA, "all-data", NULL, "Look at every token or sample, however many there are, not at some."},
    {OPTION_JSON, "json", NULL, "Print the findings as one JSON object."},
    {0},
};

typedef struct doctor_request {
    shd_job_arguments job;
    bool all_data, json;
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

static int examine(const doctor_request *request, const shd_job *job) {
    doctor_view view = {0};
    shd_checkup checkup;
    shd_doctor_report_init(&view.report, request->json);
    shd_checkup_init(&checkup, job);
    checkup.thorough = true;
    checkup.all_data = request->all_data;
    sherd_log_set(take_log_line, &view, SHERD_LOG_WARN);
    shd_checkup_run(&checkup, SHD_CHECK_MACHINE, take, &view);
    if (job) shd_checkup_run(&checkup, SHD_CHECK_JOB, take, &view);
    shd_checkup_fini(&checkup);
    sherd_log_set(NULL, NULL, SHERD_LOG_ERROR);
    return shd_doctor_report_finish(&view.report, job ? job->path : NULL);
}

static int run(const shd_command *command, int argc, char **argv) {
    static doctor_request request;
    shd_arguments arguments = shd_arguments_begin(command, argc, argv);
    for (int id; (id = shd_arguments_next(&arguments)) != SHD_ARGUMENT_END;) switch (id) {
        case SHD_ARGUMENT_STOP: return arguments.exit_code;
        case OPTION_ALL_DATA: request.all_data = true; break;
        case OPTION_JSON: request.json = true; break;
        default:
            if (!shd_job_arguments_take(&request.job, command, id, arguments.value)) return SHD_EXIT_USAGE;
        }
    if (!request.job.path) {
        if (request.job.setting_count > 0 || request.all_data)
            return shd_usage_error(command, "without JOB.yaml there is nothing to set or to look at");
        return examine(&request, NULL);
    }
    shd_job *job;
    int code = shd_job_arguments_load(&request.job, command, &job);
    if (code) return code;
    code = examine(&request, job);
    shd_job_destroy(job);
    return code;
}

const shd_command shd_command_doctor = {
    .name = "doctor",
    .summary = "look at this machine, and at a job before it starts",
    .usage = "[JOB.yaml] [-n RANKS] [--set KEY=VALUE]... [--all-data] [--json]",
    .about =
        "Without a job: what this machine can do. With one, also whether it would run: its model, memory, data,\n"
        "checkpoints to go on from, folders of outputs and the room and speed there. A line for each check: ok,\n"
        "warning or error, with what to do; numbers are measured. It writes nothing where the job writes, and leaves\n"
        "nothing behind.",
    .options = options,
    .examples = "sherd doctor\n"
                "sherd doctor configs/gpt2-124m.yaml -n 4\n"
                "sherd doctor configs/gpt2-124m.yaml --all-data --json",
    .exit_codes =
        "0 good, perhaps with warnings; 1 a check failed, or could not be made; 2 bad usage or bad job file;\n"
        "3 data or checkpoint refused",
    .run = run,
};
