#include "runtime/cli/train_launch.h"

#include "io/events.h"
#include "runtime/cli/cause.h"
#include "runtime/cli/failure_say.h"
#include "runtime/cli/flight.h"
#include "runtime/cli/placement.h"
#include "runtime/cli/saving.h"
#include "runtime/cli/train_rank.h"
#include "runtime/cli/verdict.h"
#include "runtime/train/job_setup.h"
#include "runtime/train/resume.h"

#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The newest checkpoint of a folder, told from another one of the same name. */
typedef struct newest {
    int64_t step; /* -1: there is none */
    ino_t inode;
} newest;

/* The launcher's side of a job. */
typedef struct train_job {
    const shd_train_launch *train;
    const shd_launch *launch;
    shd_saving_watch saving;
    double overdue_ms; /* when the grace of a stop was over; 0: it is not */
    bool said;         /* that a save goes on */
    bool judged;       /* how this attempt ended has been said */
    shd_output output;
    int text; /* what ranks load the job from, also the ranks of restarts */
    int causes;
    int saving_file;
    int records;     /* the flight recorder of this attempt, or -1 */
    newest before;   /* the run */
    char **argv;     /* of a rank */
    int32_t threads; /* of a rank, where the launcher has to say so; else 0 */
    char order[128]; /* its --as-rank */
} train_job;

sherd_status shd_train_digest(const shd_job *job, char digest[17]) {
    char *text;
    sherd_status status = shd_job_resolved_json(job, &text);
    if (status != SHERD_OK) return status;
    /* FNV-1a, 64 bits. */
    uint64_t hash = 0xcbf29ce484222325u;
    for (const char *at = text; *at; at++) hash = (hash ^ (unsigned char)*at) * 0x100000001b3u;
    shd_job_text_free(text);
    snprintf(digest, 17, "%016" PRIx64, hash);
    return SHERD_OK;
}

static const char goes_on_word[] = "goes-on", starts_word[] = "starts";

bool shd_train_order_read(const char *text, shd_train_order *order) {
    char word[16];
    if (sscanf(text, "%16[0-9a-f]:%d:%d:%d:%d:%d:%15[a-z-]", order->digest, &order->text, &order->causes,
               &order->saving, &order->records, &order->threads, word) != 7)
        return false;
    order->goes_on = !strcmp(word, goes_on_word);
    return true;
}

static newest find_newest(const shd_job *job) {
    char path[PATH_MAX];
    struct stat about;
    newest found = {.step = shd_resume_newest(job, path, sizeof path)};
    if (found.step >= 0 && stat(path, &about) == 0) found.inode = about.st_ino;
    return found;
}

/* Whether the run has saved: then its own checkpoint is the newest, whatever the job was to start from. */
static bool has_saved(const train_job *has) {
    newest now = find_newest(has->train->job);
    return now.step >= 0 && (now.step != has->before.step || now.inode != has->before.inode);
}

/* The job that ranks are to train, which is not quite the one of the first attempt when they go on. */
static sherd_status digest_order(const train_job *has, bool goes_on, char digest[17]) {
    if (!goes_on) return shd_train_digest(has->train->job, digest);
    shd_job *job = NULL;
    shd_job_arguments arguments = *has->train->job_arguments;
    shd_job_arguments_go_on(&arguments);
    sherd_status status = shd_job_load_text(arguments.path, has->train->job->text, has->train->job->text_bytes,
                                            arguments.settings, arguments.setting_count, &job);
    if (status != SHERD_OK) return status;
    status = shd_train_digest(job, digest);
    shd_job_destroy(job);
    return status;
}

static sherd_status prepare(void *user, int32_t attempt) {
    train_job *has = user;
    char digest[17];
    bool goes_on = attempt > 0 && has_saved(has);
    sherd_status status = digest_order(has, goes_on, digest);
    if (status != SHERD_OK) return status;
    has->records = shd_flight_renew(has->records, has->saving.rank_count);
    snprintf(has->order, sizeof has->order, "--as-rank=%s:%d:%d:%d:%d:%d:%s", digest, has->text, has->causes,
             has->saving_file, has->records, has->threads, goes_on ? goes_on_word : starts_word);
    shd_causes_clear(has->causes);
    shd_saving_clear((shd_saving_slot *)has->saving.slots, has->saving.rank_count);
    has->judged = false;
    return SHERD_OK;
}

/* Whether ranks that were told to stop must not be ended yet. A stop whose time the user has given is meant so; else two
 * steps may take longer. */
static bool holds(void *user, int signal) {
    train_job *has = user;
    const shd_launch_arguments *given = has->train->launch_arguments;
    bool saving = shd_saving_goes_on(&has->saving);
    if (saving && signal && !has->said) {
        has->said = true;
        shd_say_error("a checkpoint is being saved, and is finished first; QUIT (Ctrl-\\) ends at once");
    }
    if (saving || signal || given->stop_timeout_given) return saving;
    double now_ms = shd_saving_clock_ms();
    if (has->overdue_ms == 0) has->overdue_ms = now_ms;
    return given->stop_timeout_s * 1e3 + now_ms - has->overdue_ms < 2 * shd_saving_step_ms(&has->saving);
}

/* Nobody reads on (`| head`): the end is as quiet as that of one rank. */
static bool is_quiet(const shd_launch_report *report) { return report->failed_rank >= 0 && report->signal == SIGPIPE; }

/* Where a rank was when it failed. A save that goes on beside a step, or an evaluation, is not where it was. */
static shd_failure_story tell_story(const train_job *has, const shd_launch_report *report, const shd_cause *cause) {
    int32_t rank = report->failed_rank;
    shd_failure_story story = {.step = -1, .phase = "starting"};
    if (cause && shd_cause_blames_peer(cause) && !report->blames_peer)
        story.noticed = cause->text;
    else if (cause)
        story.cause = cause->text;
    const shd_saving_slot *slots = has->saving.slots;
    if (!slots || rank < 0 || rank >= has->saving.rank_count || !slots[rank].trains) return story;
    shd_activity activity = (shd_activity)slots[rank].failed;
    bool said = activity != SHD_ACTIVITY_NONE;
    if (!said) activity = shd_flight_activity(has->records, rank);
    bool evaluates = activity == SHD_ACTIVITY_EVALUATION;
    bool steps = activity == SHD_ACTIVITY_STEP || activity == SHD_ACTIVITY_DATA;
    /* A step is told of when it has been evaluated; a rank that could say that it failed has counted it. */
    story.step = slots[rank].steps + (evaluates && !said);
    story.phase = evaluates ? "evaluating" : slots[rank].pid && !steps ? "saving" : "training";
    return story;
}

/* Whether ranks ended because one of them, and not the launcher, was told to stop. */
static bool was_told(const shd_launch_report *report) {
    int told = report->signal ? 0 : report->exit_code - SHD_EXIT_SIGNAL;
    return report->failed_rank >= 0 && (told == SIGTERM || told == SIGINT || told == SIGHUP);
}

/* All of them stop then, at the end of a step, and any may be the first that is gone. */
static void name_the_one_told(const train_job *has, shd_launch_report *report) {
    const shd_saving_slot *slots = has->saving.slots;
    int32_t rank = was_told(report) ? shd_saving_first_told(slots, has->saving.rank_count) : -1;
    if (rank < 0) return;
    report->failed_rank = rank;
    report->failed_pid = slots[rank].told;
}

/* What made ranks fail, as far as one of them could say it; not of a rank that was told to stop, whose run tells that. */
static void tell_failure(const train_job *has, const shd_launch_report *report, const shd_failure_story *story) {
    char text[64], signal[32];
    if (report->failed_rank < 0 || was_told(report)) return;
    shd_signal_print(report->signal, signal, sizeof signal);
    if (report->signal)
        snprintf(text, sizeof text, "ended by %s", signal);
    else
        snprintf(text, sizeof text, "ended with exit code %d%s", report->exit_code,
                 report->early_exit ? " before the others were done" : "");
    const char *said = story->cause || report->signal ? story->cause : story->noticed;
    shd_event_tell(has->train->job->log.dir, SHD_EVENT_FAILURE, story->step, report->failed_rank, "%s",
                   said ? said : text);
}

/* Says how an attempt ended. */
static void judge(train_job *has, shd_launch_report *report) {
    shd_cause cause;
    if (has->judged) return;
    has->judged = true;
    bool told = shd_causes_first(has->causes, &cause);
    if (told) shd_report_take_cause(report, &cause);
    name_the_one_told(has, report);
    if (is_quiet(report)) return;
    shd_report_say(has->launch, report);
    const shd_failure_story story = tell_story(has, report, told ? &cause : NULL);
    shd_failure_say(has->launch, report, &story);
    shd_flight_judge(has->records, has->train->job, report);
    tell_failure(has, report, &story);
}

/* Bad usage, jobs, data and checkpoints stay bad. */
static bool restarts(void *user, shd_launch_report *report, double delay_s) {
    train_job *has = user;
    judge(has, report);
    int code = shd_report_train_exit_code(report);
    if (is_quiet(report) || code == SHD_EXIT_USAGE || code == SHD_EXIT_DATA) return false;
    shd_report_say_restart(has->launch, report, delay_s);
    char text[64];
    snprintf(text, sizeof text, "restart %d of %d", report->attempt + 1, has->launch->max_restarts);
    const shd_event event = {.kind = SHD_EVENT_RESTART, .step = -1, .rank = report->failed_rank, .text = text};
    if (shd_event_add(has->train->job->log.dir, &event) != SHERD_OK) shd_say_error("%s", sherd_last_error());
    has->judged = false; /* a stop before the restart is another end */
    return true;
}

static int run(train_job *has) {
    const shd_train_launch *train = has->train;
    int32_t ranks = has->saving.rank_count;
    shd_outlive_readers();
    shd_launch launch = shd_launch_arguments_make(train->launch_arguments);
    launch.program = "/proc/self/exe";
    launch.argv = has->argv;
    launch.rank_count = ranks;
    launch.repeat_s = SHD_STOP_REPEAT_MS / 1e3;
    launch.holds = holds;
    launch.prepare = prepare;
    launch.restarts = restarts;
    launch.user = has;
    launch.output = &has->output;
    launch.peer_failed_code = SHD_EXIT_RANK_LOST;
    /* Ranks hear at different times, and one that heard it after the others had begun to save would ask for another. */
    launch.one_rank_signal = SIGUSR1;
    launch.early_exit_fails = true;
    has->launch = &launch;
    shd_affinity affinity;
    shd_placement_make(train->launch_arguments->affinity, false, &launch, &affinity);
    /* A rank that is bound no longer sees what it shares with the others. */
    has->threads = affinity.masks ? shd_job_threads(train->job) : 0;
    shd_launch_report report;
    sherd_status status = shd_launch_run(&launch, &report);
    shd_affinity_fini(&affinity);
    if (status != SHERD_OK) {
        shd_say_error("%s", sherd_last_error());
        return shd_status_exit_code(status);
    }
    judge(has, &report);
    if (is_quiet(&report)) return SHD_EXIT_SIGNAL + SIGPIPE;
    /* Ranks that end by themselves say it, with the number of steps. */
    if (report.stopped && report.killed > 0) shd_train_say_left(train->job, -1, -1);
    return shd_report_train_exit_code(&report);
}

/* Standard output of rank 0 is the job's own, with its progress; so is its standard error on a terminal, where the two share a
 * line. Lines of ours say whose they are. */
static sherd_status open_output(train_job *has) {
    sherd_status status = shd_routes_init_all(&has->output.routes, has->saving.rank_count);
    if (status != SHERD_OK) return status;
    shd_route *first = has->output.routes.ranks[0];
    first[SHD_STREAM_OUT] = (shd_route){0};
    if (isatty(STDERR_FILENO)) first[SHD_STREAM_ERR] = (shd_route){0};
    has->output.log_dir = has->train->job->log.dir;
    has->output.own_prefix = "sherd: ";
    return SHERD_OK;
}

int shd_train_launch_run(const shd_train_launch *train) {
    int32_t ranks = (int32_t)train->job->run.ranks;
    size_t argc = (size_t)train->argc;
    train_job has = {.train = train,
                     .before = find_newest(train->job),
                     .text = shd_job_text_file(train->job),
                     .causes = shd_causes_create(),
                     .saving_file = shd_saving_create(ranks),
                     .records = -1,
                     .argv = malloc((argc + 4) * sizeof *has.argv)};
    if (!has.argv || has.text < 0) {
        shd_say_error("no memory for what the ranks are told");
        free(has.argv);
        return SHD_EXIT_FAILED;
    }
    has.saving = (shd_saving_watch){.slots = shd_saving_map(has.saving_file, ranks),
                                    .rank_count = ranks,
                                    .patience_ms = train->job->run.timeout_s * 1e3};
    has.argv[0] = (char[]){"sherd"};
    has.argv[1] = (char[]){"train"};
    has.argv[2] = has.order;
    memcpy(has.argv + 3, train->argv, argc * sizeof *has.argv);
    has.argv[argc + 3] = NULL;
    int code = SHD_EXIT_FAILED;
    if (open_output(&has) == SHERD_OK)
        code = run(&has);
    else
        shd_say_error("%s", sherd_last_error());
    shd_output_fini(&has.output);
    free(has.argv);
    close(has.text);
    if (has.causes >= 0) close(has.causes);
    if (has.records >= 0) close(has.records);
    return code;
}
