/* `sherd train`: checks the job, then trains: here with one rank, as ranks of its own program with several, or as a
 * rank of a job that someone else has started. */
#include "runtime/cli/cause.h"
#include "runtime/cli/commands.h"
#include "runtime/cli/flight.h"
#include "runtime/cli/job_arguments.h"
#include "runtime/cli/launch_arguments.h"
#include "runtime/cli/saving.h"
#include "runtime/cli/train_launch.h"
#include "runtime/cli/train_rank.h"
#include "runtime/cli/verdict.h"
#include "runtime/train/preflight.h"
#include "runtime/train/train.h"

#include <inttypes.h>
#include <sherd/log.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OPTION_EXPLAIN = 300, OPTION_DRY_RUN, OPTION_AS_RANK };

static const shd_option options[] = {
    SHD_JOB_OPTIONS,
    {OPTION_EXPLAIN, "explain", NULL,
     "Show every key of the job file: what it means, may be, is, and why; start nothing.\nWithout JOB.yaml: the "
     "defaults."},
    {OPTION_DRY_RUN, "dry-run", NULL, "Check the job, its data, weights and memory; start nothing."},
    SHD_LAUNCH_OPTIONS,
    {OPTION_AS_RANK, "as-rank", "ORDER", NULL},
    {0},
};

/* What was asked for. */
typedef struct train_request {
    shd_job_arguments job;
    bool explain, dry_run;
    shd_launch_arguments launch;
    bool launched; /* this is a rank of our own launcher, by this order */
    shd_train_order order;
    bool joins;          /* this is a rank of someone else's job */
    sherd_options place; /* in it */
    char world_source[64];
} train_request;

static int fail(sherd_status status) {
    shd_say_error("%s", sherd_last_error());
    return shd_status_exit_code(status);
}

static int explain(const train_request *request, const shd_command *command) {
    shd_job *job = NULL;
    char *text;
    if (request->job.path) {
        int code = shd_job_arguments_load(&request->job, command, &job);
        if (code) return code;
    }
    sherd_status status = shd_job_explain(job, &text);
    shd_job_destroy(job);
    if (status != SHERD_OK) return fail(status);
    fputs(text, stdout);
    shd_job_text_free(text);
    return SHD_EXIT_DONE;
}

/* Runs this process's rank of the job, given by the environment. */
static int run_rank(const train_request *request, const shd_job *job) {
    sherd_options place = SHERD_OPTIONS_INIT;
    char digest[17];
    sherd_status status = SHERD_OK;
    if (request->launched || request->joins) status = sherd_options_from_env(&place);
    if (status == SHERD_OK) status = shd_train_digest(job, digest);
    if (status != SHERD_OK) {
        shd_cause_leave(sherd_last_error());
        return fail(status);
    }
    if (request->launched && strcmp(request->order.digest, digest)) {
        if (place.rank == 0)
            shd_say_error("%s: its ranks understand this job otherwise than their launcher", job->path);
        return SHD_EXIT_USAGE;
    }
    const shd_train_order *order = request->launched ? &request->order : NULL;
    shd_saving_slot *slots = order ? shd_saving_map(order->saving, place.world_size) : NULL;
    shd_job own = *job;
    if (order && !own.run.threads) own.run.threads = order->threads;
    const shd_train_rank rank = {.job = &own,
                                 .place = &place,
                                 .launched = request->launched,
                                 .causes = order ? order->causes : -1,
                                 .records = order ? order->records : -1,
                                 .slot = slots ? &slots[place.rank] : NULL,
                                 .stop_timeout_s = request->launch.stop_timeout_s,
                                 .stop_timeout_given = request->launch.stop_timeout_given};
    return shd_train_rank_run(&rank);
}

/* What the checks before a start have to say; errors are returned. */
static void say_warning(void *user, sherd_log_level level, const char *line) {
    (void)user;
    fprintf(stderr, level == SHERD_LOG_WARN ? "sherd: warning: %s\n" : "sherd: %s\n", line);
}

/* One process of a job looks at everything and holds its folders: the launcher; without one of ours, the first rank. */
static int start(const train_request *request, const shd_train_launch *launch) {
    const shd_job *job = launch->job;
    bool is_rank = request->launched || request->joins;
    bool is_first = !is_rank || (request->joins && request->place.rank == 0);
    int64_t first_step = 0;
    shd_claim claim = SHD_CLAIM_INIT;
    sherd_log_set(say_warning, NULL, SHERD_LOG_INFO);
    sherd_status status = is_first || request->dry_run ? shd_train_check(job, request->dry_run, &first_step) : SHERD_OK;
    if (status == SHERD_OK && request->dry_run) return shd_train_dry_run_say(job, first_step);
    if (status == SHERD_OK && is_first) status = shd_claim_take(job, &claim);
    /* A restart by another launcher is the same run, whose dumps have been told of. */
    bool goes_on = request->joins && shd_flight_attempt() > 0;
    if (status == SHERD_OK && is_first && !goes_on) shd_flight_settle(job);
    int code = SHD_EXIT_DONE;
    if (status != SHERD_OK)
        code = fail(status);
    else if (!is_rank && (job->run.ranks > 1 || request->launch.max_restarts > 0))
        code = shd_train_launch_run(launch);
    else
        code = run_rank(request, job);
    shd_claim_release(&claim);
    return code;
}

static int train(const train_request *request, const shd_command *command, int argc, char **argv) {
    shd_job *job;
    int code = request->launched ? shd_job_arguments_load_text(&request->job, request->order.text, &job)
                                 : shd_job_arguments_load(&request->job, command, &job);
    if (code) return code;
    const shd_train_launch launch = {.command = command,
                                     .job_arguments = &request->job,
                                     .launch_arguments = &request->launch,
                                     .job = job,
                                     .argc = argc,
                                     .argv = argv};
    code = start(request, &launch);
    shd_job_destroy(job);
    return code;
}

/* -n starts ranks here, whatever is around. */
static void warn_of_outer_job(const train_request *request, const sherd_options *outer) {
    if (outer->world_size > 1 && outer->rank == 0)
        fprintf(stderr,
                "sherd: warning: -n %s starts ranks of its own in each of the %d ranks of the job around it; leave "
                "-n out to train with those\n",
                request->job.ranks, outer->world_size);
}

/* The number of ranks is the environment's in a job that someone else started. Returns an exit code, errors said. */
static int take_world(train_request *request, const shd_command *command) {
    const char *launcher = sherd_launcher_from_env();
    request->place = (sherd_options)SHERD_OPTIONS_INIT;
    if (!launcher || request->launched) return SHD_EXIT_DONE;
    sherd_status status = sherd_options_from_env(&request->place);
    if (request->job.ranks) {
        if (status == SHERD_OK) warn_of_outer_job(request, &request->place);
        return SHD_EXIT_DONE;
    }
    if (status != SHERD_OK) {
        shd_cause_leave(sherd_last_error());
        return fail(status);
    }
    if (request->launch.max_restarts > 0)
        return shd_usage_error(command, "--max-restarts is for the launcher of this job, which is %s", launcher);
    request->joins = true;
    snprintf(request->world_source, sizeof request->world_source, "%s's job", launcher);
    shd_job_arguments_set_world(&request->job, request->world_source, request->place.world_size);
    if (request->place.rank == 0)
        fprintf(stderr, "sherd: joining a job of %d ranks, told by %s's variables (-n starts ranks here)\n",
                request->place.world_size, launcher);
    return SHD_EXIT_DONE;
}

/* Whoever asks for a save may do so before anybody can take it: then it waits. USR2, by which schedulers announce the end of
 * a job's time, means nothing here, and ends nothing. Ranks inherit both. */
static void prepare_signals(void) {
    sigset_t save;
    sigemptyset(&save);
    sigaddset(&save, SIGUSR1);
    sigprocmask(SIG_BLOCK, &save, NULL);
    signal(SIGUSR2, SIG_IGN);
}

static int run(const shd_command *command, int argc, char **argv) {
    train_request request = {.launch = SHD_LAUNCH_ARGUMENTS_INIT};
    prepare_signals();
    shd_arguments arguments = shd_arguments_begin(command, argc, argv);
    for (int id; (id = shd_arguments_next(&arguments)) != SHD_ARGUMENT_END;) switch (id) {
        case SHD_ARGUMENT_STOP: return arguments.exit_code;
        case OPTION_EXPLAIN: request.explain = true; break;
        case OPTION_DRY_RUN: request.dry_run = true; break;
        case OPTION_AS_RANK:
            request.launched = shd_train_order_read(arguments.value, &request.order);
            if (!request.launched) return shd_usage_error(command, "--as-rank is for sherd itself");
            break;
        default:
            if (shd_launch_arguments_has(id) ? !shd_launch_arguments_take(&request.launch, command, id, arguments.value)
                                             : !shd_job_arguments_take(&request.job, command, id, arguments.value))
                return SHD_EXIT_USAGE;
        }
    if (request.launched && request.order.goes_on) shd_job_arguments_go_on(&request.job);
    if (request.explain) return explain(&request, command);
    int code = take_world(&request, command);
    if (code) return code;
    return train(&request, command, argc, argv);
}

const shd_command shd_command_train = {
    .name = "train",
    .summary = "train the model of a job file",
    .usage = "JOB.yaml [-n RANKS] [--set KEY=VALUE]... [--max-restarts K] [--explain] [--dry-run]",
    .about =
        "Checks the whole job, then trains it on RANKS processes of this host (run.ranks, by default 1), and writes\n"
        "metrics.jsonl and checkpoints below run.dir. Started again, it goes on from the newest checkpoint.\n"
        "TERM, INT and HUP save after the step that is running and stop; USR1 saves and goes on; USR2 is ignored. INT "
        "and "
        "HUP are\n"
        "ignored where they are ignored at the start (nohup; a shell that starts jobs by '&' in a script ignores INT "
        "for "
        "them).\n"
        "With --max-restarts, a job that fails goes on from its newest checkpoint, but for bad jobs and bad data.\n\n"
        "Without -n, inside a job of torchrun, 'sherd run', mpirun, mpiexec or srun, it joins that job as one of its "
        "ranks.\n"
        "With train.sum_order fixed (the default here) the result has the same bits for every number of ranks and "
        "every stage.",
    .options = options,
    .examples = "sherd train configs/stage3.yaml\n"
                "sherd train configs/stage3.yaml -n 4 --set shard.stage=2 --set train.steps=100\n"
                "sherd train configs/gpt2-124m.yaml -n 8 --max-restarts 3\n"
                "sherd train configs/gpt2-124m.yaml --dry-run\n"
                "sherd train --explain",
    .exit_codes = "0 done; 1 the job failed; 2 bad usage or bad job file; 3 data or checkpoint refused;\n"
                  "4 a rank died or hung; 128+N stopped by signal N",
    .run = run,
};
