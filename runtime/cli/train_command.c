/* `sherd train`: checks the job, then trains: here with one rank, as ranks of its own program with several, or as a
 * rank of a job that someone else has started. */
#include "runtime/cli/cause.h"
#include "runtime/cli/commands.h"
#include "runtime/cli/job_arguments.h"
#include "runtime/cli/saving.h"
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
    SHD_STOP_OPTION("30"),
    {OPTION_AS_RANK, "as-rank", "DIGEST:CAUSES:SAVING", NULL},
    {0},
};

/* What was asked for. */
typedef struct train_request {
    shd_job_arguments job;
    bool explain, dry_run;
    double stop_timeout_s;
    bool stop_timeout_given;
    const char *launched; /* not NULL: this is a rank of our own launcher: the digest of its job, and where it wants to
                           * be told causes, and that ranks save */
    bool joins;           /* this is a rank of someone else's job */
    char world_source[40], world_text[40];
} train_request;

/* True when all that torchrun tells a rank is there. */
static bool is_rank_of_a_job(void) {
    static const char *const needed[] = {"RANK",        "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE",
                                         "MASTER_ADDR", "MASTER_PORT"};
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
        if (!getenv(needed[i])) return false;
    return true;
}

/* A digest of the job as resolved, so that every rank trains exactly what the launcher has checked. FNV-1a, 64 bits. */
static sherd_status digest_job(const shd_job *job, char digest[17]) {
    char *text;
    sherd_status status = shd_job_resolved_json(job, &text);
    if (status != SHERD_OK) return status;
    uint64_t hash = 0xcbf29ce484222325u;
    for (const char *at = text; *at; at++) hash = (hash ^ (unsigned char)*at) * 0x100000001b3u;
    shd_job_text_free(text);
    snprintf(digest, 17, "%016" PRIx64, hash);
    return SHERD_OK;
}

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

/* What a launcher whose ranks were told to stop knows of them. */
typedef struct patience {
    shd_saving_watch watch;
    double grace_ms;
    bool given;        /* by the user, who means it; else two steps may take longer */
    double overdue_ms; /* when the grace was over; 0: it is not */
    bool said;
} patience;

static bool holds(void *user, int signal) {
    patience *has = user;
    bool saving = shd_saving_goes_on(&has->watch);
    if (saving && signal && !has->said) {
        has->said = true;
        shd_say_error("a checkpoint is being saved, and is finished first; QUIT (Ctrl-\\) ends at once");
    }
    if (saving || signal || has->given) return saving;
    double now_ms = shd_saving_clock_ms();
    if (has->overdue_ms == 0) has->overdue_ms = now_ms;
    return has->grace_ms + now_ms - has->overdue_ms < 2 * shd_saving_step_ms(&has->watch);
}

/* Ranks of this program with the same arguments. */
static int launch(const train_request *request, const shd_job *job, int argc, char **argv) {
    char digest[17], flag[64];
    sherd_status status = digest_job(job, digest);
    if (status != SHERD_OK) return fail(status);
    char **rank_argv = malloc(((size_t)argc + 4) * sizeof *rank_argv);
    if (!rank_argv) {
        shd_say_error("no memory for the arguments of the ranks");
        return SHD_EXIT_FAILED;
    }
    int32_t ranks = (int32_t)job->run.ranks;
    int causes = shd_causes_create(), saving = shd_saving_create(ranks);
    snprintf(flag, sizeof flag, "--as-rank=%s:%d:%d", digest, causes, saving);
    rank_argv[0] = (char[]){"sherd"};
    rank_argv[1] = (char[]){"train"};
    rank_argv[2] = flag;
    memcpy(rank_argv + 3, argv, (size_t)argc * sizeof *argv);
    rank_argv[argc + 3] = NULL;

    shd_launch launch = SHD_LAUNCH_INIT;
    launch.program = "/proc/self/exe";
    launch.argv = rank_argv;
    patience has = {
        .watch = {.slots = shd_saving_map(saving, ranks), .rank_count = ranks, .patience_ms = job->run.timeout_s * 1e3},
        .grace_ms = request->stop_timeout_s * 1e3,
        .given = request->stop_timeout_given};
    launch.rank_count = ranks;
    launch.stop_grace_s = request->stop_timeout_s;
    launch.repeat_s = SHD_STOP_REPEAT_MS / 1e3;
    launch.holds = holds;
    launch.user = &has;
    launch.peer_failed_code = SHD_EXIT_RANK_LOST;
    /* Ranks hear at different times, and one that heard it after the others had begun to save would ask for another. */
    launch.one_rank_signal = SIGUSR1;
    shd_launch_report report;
    status = shd_launch_run(&launch, &report);
    free(rank_argv);
    shd_cause cause;
    bool told = shd_causes_first(causes, &cause);
    if (causes >= 0) close(causes);
    if (status != SHERD_OK) return fail(status);
    if (told) shd_report_take_cause(&report, &cause);
    /* Nobody reads on (`| head`): the end is as quiet as that of one rank. */
    if (report.failed_rank >= 0 && report.signal == SIGPIPE) return SHD_EXIT_SIGNAL + SIGPIPE;
    shd_report_say(&launch, &report);
    /* Ranks that end by themselves say it, with the number of steps. */
    if (report.stopped && report.killed > 0) shd_train_say_left(job, -1, -1);
    return shd_report_train_exit_code(&report);
}

/* Runs this process's rank of the job, given by the environment. */
static int run_rank(const train_request *request, const shd_job *job) {
    sherd_options place = SHERD_OPTIONS_INIT;
    char digest[17];
    sherd_status status = SHERD_OK;
    if (request->launched || request->joins) status = sherd_options_from_env(&place);
    if (status == SHERD_OK) status = digest_job(job, digest);
    if (status != SHERD_OK) return fail(status);
    if (request->launched && strncmp(request->launched, digest, strlen(digest))) {
        if (place.rank == 0) shd_say_error("%s: the job has changed while its ranks were starting", job->path);
        return SHD_EXIT_USAGE;
    }
    const char *causes = request->launched ? strchr(request->launched, ':') : NULL;
    const char *saving = causes ? strchr(causes + 1, ':') : NULL;
    shd_saving_slot *slots = saving ? shd_saving_map(atoi(saving + 1), place.world_size) : NULL;
    const shd_train_rank rank = {.job = job,
                                 .place = &place,
                                 .launched = request->launched,
                                 .causes = causes ? atoi(causes + 1) : -1,
                                 .slot = slots ? &slots[place.rank] : NULL,
                                 .stop_timeout_s = request->stop_timeout_s,
                                 .stop_timeout_given = request->stop_timeout_given};
    return shd_train_rank_run(&rank);
}

/* What the checks before a start have to say; errors are returned. */
static void say_warning(void *user, sherd_log_level level, const char *line) {
    (void)user;
    fprintf(stderr, level == SHERD_LOG_WARN ? "sherd: warning: %s\n" : "sherd: %s\n", line);
}

/* One process of a job looks at everything and holds its folders: the launcher; without one of ours, the first rank. */
static int start(const train_request *request, const shd_job *job, int argc, char **argv) {
    bool is_rank = request->launched || request->joins;
    bool is_first = !is_rank || (request->joins && !strcmp(getenv("RANK"), "0"));
    int64_t first_step = 0;
    shd_claim claim = SHD_CLAIM_INIT;
    sherd_log_set(say_warning, NULL, SHERD_LOG_INFO);
    sherd_status status = is_first || request->dry_run ? shd_train_check(job, request->dry_run, &first_step) : SHERD_OK;
    if (status == SHERD_OK && request->dry_run) return shd_train_dry_run_say(job, first_step);
    if (status == SHERD_OK && is_first) status = shd_claim_take(job, &claim);
    int code = SHD_EXIT_DONE;
    if (status != SHERD_OK)
        code = fail(status);
    else if (job->run.ranks > 1 && !is_rank)
        code = launch(request, job, argc, argv);
    else
        code = run_rank(request, job);
    shd_claim_release(&claim);
    return code;
}

static int train(const train_request *request, const shd_command *command, int argc, char **argv) {
    shd_job *job;
    int code = shd_job_arguments_load(&request->job, command, &job);
    if (code) return code;
    code = start(request, job, argc, argv);
    shd_job_destroy(job);
    return code;
}

/* The number of ranks is the environment's in a job that someone else started. */
static bool take_world(train_request *request, const shd_command *command) {
    request->joins = !request->job.ranks && !request->launched && is_rank_of_a_job();
    const char *outer = getenv("WORLD_SIZE");
    if (!request->joins && !request->launched && is_rank_of_a_job() && strcmp(outer, "1") &&
        !strcmp(getenv("RANK"), "0"))
        fprintf(stderr,
                "sherd: warning: -n %s starts ranks of its own in each of the %.20s ranks of the job around it; leave "
                "-n out to train with those\n",
                request->job.ranks, outer);
    if (!request->joins) return true;
    int64_t world;
    if (!shd_parse_integer(getenv("WORLD_SIZE"), 1, SHD_LAUNCH_MAX_RANKS, &world)) {
        shd_say_error("WORLD_SIZE=%.20s in the environment is no number of ranks", getenv("WORLD_SIZE"));
        return false;
    }
    if (request->job.setting_count == SHD_JOB_MAX_SETTINGS) {
        shd_usage_error(command, "more than %d settings; put them into the job file", SHD_JOB_MAX_SETTINGS - 1);
        return false;
    }
    snprintf(request->world_source, sizeof request->world_source, "WORLD_SIZE=%d", (int)world);
    snprintf(request->world_text, sizeof request->world_text, "run.ranks=%d", (int)world);
    request->job.settings[request->job.setting_count++] =
        (shd_job_setting){.source = request->world_source, .text = request->world_text};
    const char *rank = getenv("RANK");
    if (!strcmp(rank, "0"))
        fprintf(stderr, "sherd: joining a job of %d ranks, told by torchrun's variables (-n starts ranks here)\n",
                (int)world);
    return true;
}

/* Whoever asks for a save may do so before anybody can take it: then it waits, also in ranks, which inherit this. */
static void hold_save_requests(void) {
    sigset_t save;
    sigemptyset(&save);
    sigaddset(&save, SIGUSR1);
    sigprocmask(SIG_BLOCK, &save, NULL);
}

static int run(const shd_command *command, int argc, char **argv) {
    train_request request = {.stop_timeout_s = 30};
    hold_save_requests();
    shd_arguments arguments = shd_arguments_begin(command, argc, argv);
    for (int id; (id = shd_arguments_next(&arguments)) != SHD_ARGUMENT_END;) switch (id) {
        case SHD_ARGUMENT_STOP: return arguments.exit_code;
        case OPTION_EXPLAIN: request.explain = true; break;
        case OPTION_DRY_RUN: request.dry_run = true; break;
        case SHD_OPTION_STOP_TIMEOUT:
            if (!shd_parse_stop_timeout(command, arguments.value, &request.stop_timeout_s)) return SHD_EXIT_USAGE;
            request.stop_timeout_given = true;
            break;
        case OPTION_AS_RANK: request.launched = arguments.value; break;
        default:
            if (!shd_job_arguments_take(&request.job, command, id, arguments.value)) return SHD_EXIT_USAGE;
        }
    if (request.explain) return explain(&request, command);
    if (!take_world(&request, command)) return SHD_EXIT_USAGE;
    return train(&request, command, argc, argv);
}

const shd_command shd_command_train = {
    .name = "train",
    .summary = "train the model of a job file",
    .usage = "JOB.yaml [-n RANKS] [--set KEY=VALUE]... [--explain] [--dry-run]",
    .about =
        "Checks the whole job, then trains it on RANKS processes of this host (run.ranks, by default 1), and writes\n"
        "metrics.jsonl and checkpoints below run.dir. Started again, it goes on from the newest checkpoint.\n"
        "TERM, INT and HUP save after the step that is running and stop; USR1 saves and goes on. INT and HUP are "
        "ignored\n"
        "where they are ignored at the start (nohup; a shell that starts jobs by '&' in a script ignores INT for "
        "them).\n\n"
        "Without -n, inside a job of torchrun or 'sherd run', it joins that job as one of its ranks.\n"
        "With train.sum_order fixed (the default here) the result has the same bits for every number of ranks and "
        "every stage.",
    .options = options,
    .examples = "sherd train configs/stage3.yaml\n"
                "sherd train configs/stage3.yaml -n 4 --set shard.stage=2 --set train.steps=100\n"
                "sherd train configs/gpt2-124m.yaml --dry-run\n"
                "sherd train --explain",
    .exit_codes = "0 done; 1 the job failed; 2 bad usage or bad job file; 3 data or checkpoint refused;\n"
                  "4 a rank died or hung; 128+N stopped by signal N",
    .run = run,
};
