#include "runtime/cli/train_rank.h"

#include "io/events.h"
#include "runtime/cli/cause.h"
#include "runtime/cli/flight.h"
#include "runtime/cli/options.h"
#include "runtime/cli/progress.h"
#include "runtime/cli/saving.h"
#include "runtime/cli/verdict.h"
#include "runtime/train/job_setup.h"
#include "runtime/train/resume.h"
#include "runtime/train/sample.h"
#include "shard/plan.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

/* Both ends of the log sink: whose line it is, and the progress line it must not run into. */
typedef struct rank_view {
    const shd_train_rank *rank;
    shd_progress progress;
    shd_train_summary summary;
    const shd_recorder *recorder; /* made by our launcher; else NULL */
    bool shows;                   /* rank 0 */
    bool told;                    /* that it stops */
} rank_view;

static void take_log_line(void *user, sherd_log_level level, const char *line) {
    rank_view *view = user;
    char text[1200];
    static const char *const kinds[] = {"error: ", "warning: ", "", "", ""};
    if (level >= SHERD_LOG_INFO && !view->shows) return;
    if (view->rank->place->world_size > 1 && !view->shows)
        snprintf(text, sizeof text, "sherd: rank %d: %s%s", view->rank->place->rank, kinds[level], line);
    else
        snprintf(text, sizeof text, "sherd: %s%s", kinds[level], line);
    if (view->shows)
        shd_progress_say(&view->progress, stderr, text);
    else
        fprintf(stderr, "%s\n", text);
}

/* What signals have asked for; the loop looks several times in every step. Until there is a loop, while ranks meet and
 * load, a stop is an end at once: there is nothing to lose, and a rank that waits for others would not hear of it. */
static volatile sig_atomic_t stop_signal, save_asked, looping, failing;
static volatile double stop_ms; /* when stop_signal came */

/* Where this rank says that it saves. A launched one shares it with its launcher, which then decides about a second
 * request to stop, and when a stop has taken too long; any other rank decides for itself, with the watch. */
static shd_saving_slot own_slot, *slot = &own_slot;
static bool launched;
static shd_saving_watch watch = {.slots = &own_slot, .rank_count = 1};

static unsigned stop_timeout_s; /* 0: somebody else sees to it */
static bool stop_timeout_given;
static bool held; /* beyond that time */
static char overdue_line[160];
static const char held_line[] =
    "\nsherd: a checkpoint is being saved, and is finished first; QUIT (Ctrl-\\) ends at once\n";

enum { HELD_S = 1, END_S = 3 };

/* The time is over: what is being saved still may be, and then the end takes a moment. */
static void end_overdue(int signal) {
    (void)signal;
    bool saving = shd_saving_goes_on(&watch);
    if (saving || held) {
        held = saving;
        alarm(saving ? HELD_S : END_S);
        return;
    }
    ssize_t written = write(2, overdue_line, strlen(overdue_line));
    _exit(written < 0 ? SHD_EXIT_FAILED : SHD_EXIT_SIGNAL + stop_signal);
}

static void say_held(void) {
    ssize_t written = write(2, held_line, sizeof held_line - 1);
    (void)written;
}

static void started(void *user, int64_t step) {
    rank_view *view = user;
    looping = 1;
    slot->steps = step;
    slot->trains = 1;
    if (view->shows) shd_progress_start(&view->progress, step);
}

/* What stops a run once it is saved. Ranks tell each other by bits, in this order; where there are several, the first one
 * counts. */
static const int stop_signals[] = {SIGTERM, SIGINT, SIGHUP};
enum { STOP_SIGNALS = sizeof stop_signals / sizeof *stop_signals };

static int first_signal(uint32_t bits) {
    for (int i = 0; i < STOP_SIGNALS; i++)
        if (bits & 1u << i) return stop_signals[i];
    return SIGTERM;
}

static void tell_stop(rank_view *view, int signal) {
    char line[96];
    if (!view->shows || view->told) return;
    view->told = true;
    snprintf(line, sizeof line, "sherd: SIG%s: stops after this step, once it is saved", sigabbrev_np(signal));
    shd_progress_say(&view->progress, stderr, line);
}

static void stepped(void *user, const shd_train_step *row) {
    rank_view *view = user;
    slot->step_ms = (int32_t)fmin(row->step_ms, INT32_MAX);
    if (!row->bad) slot->steps = row->step;
    if (!view->shows) return;
    const shd_progress_row shown = {.step = row->step,
                                    .loss = row->loss,
                                    .grad_norm = row->grad_norm,
                                    .lr = row->lr,
                                    .skipped = row->skipped,
                                    .loss_scale = row->loss_scale,
                                    .tokens_per_s = row->step_ms > 0 ? (double)row->tokens / row->step_ms * 1e3 : 0,
                                    .peak_bytes = row->peak_bytes,
                                    .samples = row->samples,
                                    .validation_loss = row->validation_loss,
                                    .validated = row->validated,
                                    .classified = row->classified,
                                    .accuracy = row->accuracy,
                                    .validation_accuracy = row->validation_accuracy};
    shd_progress_step(&view->progress, &shown);
    if (row->stopped) tell_stop(view, first_signal(row->stopped)); /* another rank may have heard it alone */
}

static void begin_stop(int signal) {
    stop_ms = shd_saving_clock_ms();
    stop_signal = signal;
    shd_saving_mark_told(slot);
    if (!stop_timeout_s) return;
    unsigned two_steps_s = (unsigned)(2 * shd_saving_step_ms(&watch) / 1e3) + 1;
    alarm(!stop_timeout_given && two_steps_s > stop_timeout_s ? two_steps_s : stop_timeout_s);
}

/* Before the first step there is nothing to save. A launcher says by what its ranks were stopped. */
static void end_early(int signal) {
    static const char term[] = "sherd: stopped by signal 15 (SIGTERM) before the first step\n";
    static const char interrupt[] = "sherd: stopped by signal 2 (SIGINT) before the first step\n";
    static const char hangup[] = "sherd: stopped by signal 1 (SIGHUP) before the first step\n";
    const char *line = signal == SIGTERM ? term : signal == SIGINT ? interrupt : hangup;
    ssize_t written = launched ? 0 : write(2, line, strlen(line));
    (void)written;
    _exit(SHD_EXIT_SIGNAL + signal);
}

static void take_signal(int signal) {
    if (signal == SIGUSR1)
        save_asked = 1;
    else if (failing)
        return; /* about to end, and to say why */
    else if (!looping)
        end_early(signal);
    else if (shd_flight_given_up())
        _exit(SHD_EXIT_SIGNAL + signal);
    else if (!stop_signal)
        begin_stop(signal);
    else if (launched || shd_saving_clock_ms() - stop_ms < SHD_STOP_REPEAT_MS)
        return;
    else if (shd_saving_goes_on(&watch))
        say_held();
    else
        _exit(SHD_EXIT_SIGNAL + signal);
}

static void watch_signals(const shd_train_rank *rank) {
    launched = rank->launched;
    if (rank->slot) slot = rank->slot;
    watch.slots = slot;
    watch.patience_ms = rank->job->run.timeout_s * 1e3;
    if (!rank->launched) {
        stop_timeout_s = (unsigned)ceil(fmax(1, rank->stop_timeout_s));
        stop_timeout_given = rank->stop_timeout_given;
        snprintf(overdue_line, sizeof overdue_line,
                 "\nsherd: told to stop, but the step had not ended after %u s: ended within it, nothing was saved\n",
                 stop_timeout_s);
        signal(SIGALRM, end_overdue);
    }
    const struct sigaction action = {.sa_handler = take_signal, .sa_flags = SA_RESTART};
    for (int i = 0; i < STOP_SIGNALS; i++) {
        struct sigaction before; /* nohup, and `&` in a script, want some of them ignored */
        if (sigaction(stop_signals[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN)
            sigaction(stop_signals[i], &action, NULL);
    }
    sigaction(SIGUSR1, &action, NULL);
    sigset_t save; /* held since the program's start */
    sigemptyset(&save);
    sigaddset(&save, SIGUSR1);
    sigprocmask(SIG_UNBLOCK, &save, NULL);
    signal(SIGTTOU, SIG_IGN); /* a rank's group is in the background: its writes must not stop it */
}

static uint32_t stopping(void *user) {
    if (stop_signal) tell_stop(user, stop_signal);
    for (int i = 0; i < STOP_SIGNALS; i++)
        if (stop_signal == stop_signals[i]) return 1u << i;
    return 0;
}

static bool takes_save_request(void *user) {
    rank_view *view = user;
    if (!save_asked) return false;
    save_asked = 0;
    if (view->shows) shd_progress_say(&view->progress, stderr, "sherd: SIGUSR1: saves after this step");
    return true;
}

static void saving(void *user, bool under_way) {
    (void)user;
    shd_saving_mark(slot, under_way);
}

static void finished(void *user, const shd_train_summary *summary) {
    rank_view *view = user;
    view->summary = *summary;
}

/* For a job without a launcher of ours: who only lost another rank leaves it to that one, but for rank 0. */
static void tell_failure(const shd_train_rank *rank, sherd_status status) {
    if (rank->place->rank > 0 && shd_status_exit_code(status) == SHD_EXIT_RANK_LOST) return;
    shd_event_tell(rank->job->log.dir, SHD_EVENT_FAILURE, -1, rank->place->rank, "%s", sherd_last_error());
}

/* The launcher shows one cause for all its ranks. */
static void say_failure(void *user, sherd_status status) {
    rank_view *view = user;
    const shd_train_rank *rank = view->rank;
    shd_recorder_head head;
    failing = 1;
    if (shd_recorder_look(view->recorder, rank->place->rank, &head)) {
        /* The step that was evaluated may have been told of, or not. */
        if (head.activity == SHD_ACTIVITY_EVALUATION) slot->steps = head.activity_step + 1;
        slot->failed = (int32_t)head.activity;
    }
    if (view->shows) shd_progress_finish(&view->progress, false);
    shd_cause_leave(sherd_last_error());
    if (rank->launched && shd_causes_add(rank->causes, rank->place->rank, status, sherd_last_error())) return;
    tell_failure(rank, status);
    if (rank->place->world_size > 1)
        shd_say_error("rank %d: %s", rank->place->rank, sherd_last_error());
    else
        shd_say_error("%s", sherd_last_error());
}

void shd_train_say_left(const shd_job *job, int64_t first_step, int64_t step) {
    char path[PATH_MAX], lost[64] = "the steps of this run are lost", after[64] = "";
    int64_t saved = shd_resume_newest(job, path, sizeof path);
    if (step >= 0)
        snprintf(lost, sizeof lost,
                 step - first_step == 1 ? "the one step of this run is lost"
                                        : "the %" PRId64 " steps of this run are lost",
                 step - first_step);
    if (step == saved && saved >= 0) snprintf(after, sizeof after, "; nothing is lost");
    if (step > saved && saved >= 0)
        snprintf(after, sizeof after, "; %" PRId64 " step%s after it %s lost", step - saved,
                 step - saved == 1 ? "" : "s", step - saved == 1 ? "is" : "are");
    if (saved >= 0)
        shd_say_error("the newest checkpoint is %s%s", path, after);
    else
        shd_say_error("no checkpoint was saved: %s; %s checkpoint.every", lost,
                      job->checkpoint.every > 0 ? "lower" : "set");
}

/* Returns the exit code of a run that was stopped. A launcher says by what, but where there is none. */
static int say_stopped(const rank_view *view) {
    const shd_job *job = view->rank->job;
    int signal = first_signal(view->summary.stopped);
    if (view->shows && !view->rank->launched)
        shd_say_error("stopped by signal %d (SIG%s) after step %" PRId64, signal, sigabbrev_np(signal),
                      view->summary.step);
    if (view->shows) shd_train_say_left(job, view->summary.first_step, view->summary.step);
    return SHD_EXIT_SIGNAL + signal;
}

static void say_outputs(const shd_job *job) {
    printf("metrics      %s/metrics.jsonl\ncheckpoints  %s\n", job->log.dir, job->checkpoint.dir);
    if (job->log.tensorboard) printf("tensorboard  %s/tensorboard\n", job->log.dir);
    if (job->log.trace_steps.count > 0) printf("traces       %s/trace\n", job->log.dir);
}

/* What ps and top show: a rank is started through /proc/self/exe and would be called "exe". */
static void name_process(const shd_train_rank *rank) {
    char name[16];
    snprintf(name, sizeof name, "sherd-rank-%d", rank->place->rank);
    if (rank->place->world_size > 1) prctl(PR_SET_NAME, name);
}

int shd_train_rank_run(const shd_train_rank *rank) {
    name_process(rank);
    rank_view view = {.rank = rank, .shows = rank->place->rank == 0};
    const shd_job *job = rank->job;
    shd_progress_init(&view.progress, stdout, job->train.steps, job->log.every);
    sherd_log_set(take_log_line, &view, SHERD_LOG_INFO);
    watch_signals(rank);
    char dump_dir[PATH_MAX];
    shd_recorder *recorder = NULL;
    shd_flight_dump_dir(job, dump_dir, sizeof dump_dir);
    /* Without one the session makes its own. */
    if (rank->records >= 0) (void)shd_recorder_open(rank->records, rank->place->rank, &recorder);
    view.recorder = recorder;
    const shd_train_hooks hooks = {.started = started,
                                   .stepped = stepped,
                                   .saving = saving,
                                   .stopping = stopping,
                                   .save_asked = takes_save_request,
                                   .finished = finished,
                                   .failed = say_failure,
                                   .recorder = recorder,
                                   .dump_dir = dump_dir,
                                   .user = &view};
    shd_flight_serve(recorder, dump_dir, rank->place->rank);
    sherd_status status = shd_train_run(job, rank->place, &hooks);
    shd_flight_serve(NULL, NULL, 0);
    shd_recorder_close(recorder);
    alarm(0);
    bool done = status == SHERD_OK && !view.summary.stopped;
    if (view.shows && status == SHERD_OK) shd_progress_finish(&view.progress, done);
    sherd_log_set(NULL, NULL, SHERD_LOG_ERROR);
    int code = shd_status_exit_code(status);
    if (status == SHERD_OK && !done)
        code = say_stopped(&view);
    else if (done && view.shows)
        say_outputs(job);
    shd_progress_fini(&view.progress);
    return code;
}

/* Where the job would begin. */
static void say_outlook(const shd_job *job, int64_t first_step) {
    const char *asked = job->checkpoint.resume.path, *from = asked ? asked : "the newest checkpoint";
    if (first_step > job->train.steps)
        printf("%s has %" PRId64 " steps, more than train.steps %" PRId64
               ": nothing to do; raise train.steps to go on\n",
               from, first_step, job->train.steps);
    else if (first_step == job->train.steps)
        printf(first_step == 1 ? "the one step is done: nothing to do; raise train.steps to go on\n"
                               : "all %" PRId64 " steps are done: nothing to do; raise train.steps to go on\n",
               first_step);
    else if (first_step > 0)
        printf("goes on from %s, after step %" PRId64 "\n", from, first_step);
}

int shd_train_dry_run_say(const shd_job *job, int64_t first_step) {
    shd_plan *plan;
    int64_t sample_bytes;
    sherd_status status = shd_sample_bytes(job, &sample_bytes);
    if (status == SHERD_OK) status = shd_job_plan(job, (int32_t)job->shard.stage, 0, &plan);
    if (status != SHERD_OK) {
        shd_say_error("%s", sherd_last_error());
        return shd_status_exit_code(status);
    }
    char allocated[16], states[16];
    shd_bytes_text((double)plan->allocated_bytes, allocated);
    shd_bytes_text((double)plan->model_state_bytes, states);
    char batch[80];
    if (job->model.family == SHD_JOB_MLP)
        snprintf(batch, sizeof batch, "%" PRId64 " sample%s", job->train.global_batch,
                 job->train.global_batch == 1 ? "" : "s");
    else
        snprintf(batch, sizeof batch, "%" PRId64 " sequence%s of %" PRId64 " token%s", job->train.global_batch,
                 job->train.global_batch == 1 ? "" : "s", job->model.context, job->model.context == 1 ? "" : "s");
    printf("%s: good: %" PRId64 " parameters, %" PRId64 " step%s of %s\n"
           "stage %" PRId64 " over %" PRId64 " rank%s%s: %" PRId64
           " bytes a rank (%s), of which model states %s; nothing was started\n",
           job->top.name, plan->parameter_count, job->train.steps, job->train.steps == 1 ? "" : "s", batch,
           job->shard.stage, job->run.ranks, job->run.ranks == 1 ? "" : "s", shd_precision_text(&plan->policy).text,
           plan->allocated_bytes, allocated, states);
    if (sample_bytes > 0)
        printf("and on rank 0 %" PRId64 " bytes for the texts of train.sample_tokens\n", sample_bytes);
    say_outlook(job, first_step);
    shd_plan_destroy(plan);
    return SHD_EXIT_DONE;
}
