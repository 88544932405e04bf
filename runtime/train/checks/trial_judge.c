#include "runtime/train/checks/trial_judge.h"

#include "runtime/base/arith.h"
#include "runtime/base/status.h"

#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

/* Clocks of one host differ by what reading them takes; events of a job are told apart by ms. */
static const double CLOCK_LIMIT_MS = 1000;

typedef struct judgement {
    const shd_checkup *checkup;
    const shd_trial *trial;
    const shd_trial_board *board;
    const shd_trial_end *end;
} judgement;

/* Says what a phase has found that every rank has been through. */
typedef void (*judge_fn)(const judgement *j, shd_finding *out);

static const char *plural(int64_t count) { return count == 1 ? "" : "s"; }
static const shd_trial_rank *first_rank(const judgement *j) { return &j->board->ranks[0]; }

/* An error that this process comes to. */
static void refuse(shd_finding *out, sherd_status status) {
    out->state = SHD_CHECK_ERROR;
    out->status = status;
}

/* --- who the ranks are -------------------------------------------------------------------------------------------- */

/* The first rank whose program or job is another one than its launcher's; -1: none. */
static int32_t find_stranger(const judgement *j, bool by_program) {
    for (int32_t r = 0; r < j->end->rank_count; r++) {
        uint64_t theirs = by_program ? j->board->ranks[r].program : j->board->ranks[r].job;
        uint64_t ours = by_program ? j->end->program : j->end->job;
        if (ours && theirs && ours != theirs) return r;
    }
    return -1;
}

static void judge_ranks(const judgement *j, shd_finding *out) {
    int32_t program = find_stranger(j, true), job = find_stranger(j, false), worst = 0;
    double apart_ms = 0;
    for (int32_t r = 0; r < j->end->rank_count; r++) {
        double ms = j->board->ranks[r].clock_ms - j->end->clock_ms;
        if (fabs(ms) > fabs(apart_ms)) apart_ms = ms, worst = r;
    }
    shd_finding_say(out, "%d started: the same program%s on all, clocks at most %.3g ms apart", j->end->rank_count,
                    j->trial->job ? " and job" : "", fabs(apart_ms));
    shd_finding_note(out, "ranks", j->end->rank_count);
    shd_finding_note(out, "clock_apart_ms", fabs(apart_ms));
    if (program >= 0) {
        shd_finding_say(out, "rank %d runs another program than its launcher (hashes %016llx and %016llx)", program,
                        (unsigned long long)j->board->ranks[program].program, (unsigned long long)j->end->program);
        shd_finding_advise(out,
                           "install the same build everywhere; ranks of different ones may not come to the same bits");
        refuse(out, SHERD_MISMATCH);
    } else if (job >= 0) {
        shd_finding_say(out, "rank %d has another job than its launcher, by its file or its settings", job);
        shd_finding_advise(out, "give every rank the same job file and the same --set");
        refuse(out, SHERD_MISMATCH);
    } else if (fabs(apart_ms) > CLOCK_LIMIT_MS) {
        shd_finding_say(out, "the clock of rank %d is %.1f s %s its launcher's", worst, fabs(apart_ms) / 1e3,
                        apart_ms > 0 ? "ahead of" : "behind");
        shd_finding_advise(out, "set the clock: logs and events of the ranks could not be put in order");
        refuse(out, SHERD_MISMATCH);
    }
}

/* --- collectives -------------------------------------------------------------------------------------------------- */

/* The least over all ranks of a rate. */
static double least(const judgement *j, size_t offset) {
    double rate = INFINITY;
    for (int32_t r = 0; r < j->end->rank_count; r++) {
        double theirs;
        memcpy(&theirs, (const char *)&j->board->ranks[r].comm + offset, sizeof theirs);
        rate = fmin(rate, theirs);
    }
    return rate;
}

static void judge_collectives(const judgement *j, shd_finding *out) {
    static const struct {
        const char *name, *note;
        size_t offset;
    } rates[] = {
        {"gather", "gather_bytes_per_s", offsetof(shd_selftest_result, gather_bytes_per_s)},
        {"reduce", "reduce_bytes_per_s", offsetof(shd_selftest_result, reduce_bytes_per_s)},
        {"reduce of bf16", "reduce_bf16_bytes_per_s", offsetof(shd_selftest_result, reduce_bf16_bytes_per_s)},
        {"reduce over replicas", "reduce_replicas_bytes_per_s",
         offsetof(shd_selftest_result, reduce_replicas_bytes_per_s)},
        {"gather over replicas", "gather_replicas_bytes_per_s",
         offsetof(shd_selftest_result, gather_replicas_bytes_per_s)},
    };
    const shd_selftest_result *comm = &first_rank(j)->comm;
    if (j->end->rank_count == 1) {
        shd_finding_skip(out, "one rank needs none");
        return;
    }
    shd_finding_say(out, "right in every element of %s: met in %.1f ms, exchange %.3g us",
                    shd_bytes_say(SHD_SELFTEST_BYTES).text, comm->meet_ms, comm->exchange_us);
    shd_finding_note(out, "meet_ms", comm->meet_ms);
    shd_finding_note(out, "exchange_us", comm->exchange_us);
    for (size_t i = 0; i < sizeof rates / sizeof *rates; i++) {
        double rate = least(j, rates[i].offset);
        if (!(rate > 0)) continue;
        shd_finding_add(out, ", %s %s/s", rates[i].name, shd_bytes_say(rate).text);
        shd_finding_note(out, rates[i].note, rate);
    }
}

/* --- the step ----------------------------------------------------------------------------------------------------- */

/* How far from a model that knows nothing a fresh one's loss may be: a little more than what small ones show. */
static double tolerance(const shd_job *job, double blind) {
    return job->model.family == SHD_JOB_MLP ? 2 * blind + 1 : 0.1 * blind + 0.3;
}

static void judge_loss(const judgement *j, shd_finding *out) {
    const shd_trial_rank *rank = first_rank(j);
    const shd_job *job = j->checkup->job;
    const char *classes = job->model.family == SHD_JOB_MLP ? "outputs" : "vocab_size";
    double blind = shd_trial_blind_loss(job);
    if (rank->target_count == 0) {
        shd_finding_warn(out, "no target of the first batch counts: look at data.ignored_token and at the data");
        return;
    }
    if (isnan(blind)) return;
    shd_finding_note(out, "blind_loss", blind);
    shd_finding_add(out, "; ln(%s) is %.4g", classes, blind);
    double off = rank->loss - blind, allowed = tolerance(job, blind);
    if (rank->random && fabs(off) > allowed)
        shd_finding_warn(out,
                         "that is far off for a fresh model: look at the scale of its initialisation, and at the data");
    else if (off > allowed)
        shd_finding_warn(out,
                         "worse than guessing: the parameters that were loaded do not fit this model or these data, or "
                         "their scale is wrong");
}

static void judge_step(const judgement *j, shd_finding *out) {
    const shd_trial_rank *rank = first_rank(j);
    const shd_job *job = j->checkup->job;
    double batches = (double)job->train.global_batch / (double)(job->train.micro_batch * job->run.ranks);
    double per_s = rank->step_ms > 0 ? (double)rank->tokens / rank->step_ms * 1e3 : 0;
    shd_finding_say(
        out,
        "loss %.6g, gradient norm %.4g; a micro-batch on each rank takes %.4g ms (%.0f%% computing, at %.3g "
        "GFLOP/s in products; %.0f%% waiting for ranks), so a step about %.3g s: %.4g %s/s",
        rank->loss, rank->grad_norm, rank->step_ms, 100 * rank->compute_ms / rank->step_ms, rank->products_gflops,
        100 * rank->exposed_comm_ms / rank->step_ms, batches * rank->step_ms / 1e3, per_s, shd_job_items(job));
    shd_finding_note(out, "loss", rank->loss);
    shd_finding_note(out, "grad_norm", rank->grad_norm);
    shd_finding_note(out, "targets", (double)rank->target_count);
    shd_finding_note(out, "micro_step_ms", rank->step_ms);
    shd_finding_note(out, "compute_ms", rank->compute_ms);
    shd_finding_note(out, "exposed_comm_ms", rank->exposed_comm_ms);
    shd_finding_note(out, "optimizer_ms", rank->optimizer_ms);
    shd_finding_note(out, "products_gflops", rank->products_gflops);
    shd_finding_note(out, "items_per_s", per_s);
    shd_finding_note(out, "start_ms", rank->start_ms);
    shd_finding_note(out, "peak_bytes", (double)rank->peak_bytes);
    judge_loss(j, out);
}

/* More of a thread's time than this without a core is worth a word. */
static const double WAIT_LIMIT = 0.15;

static void judge_cores(const judgement *j, shd_finding *out) {
    const shd_trial_rank *rank = first_rank(j);
    double waited_ms = 0;
    int64_t threads = rank->threads, ranks = j->end->rank_count;
    cpu_set_t allowed;
    int64_t cores = sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? CPU_COUNT(&allowed) : 0;
    for (int32_t r = 0; r < ranks; r++) waited_ms += j->board->ranks[r].wait_ms;
    double share = waited_ms / (rank->step_ms * (double)ranks);
    shd_finding_say(
        out, "%lld rank%s x %lld thread%s on %lld core%s: ready to run but without a core for %.0f%% of the step",
        (long long)ranks, plural(ranks), (long long)threads, plural(threads), (long long)cores, plural(cores),
        100 * share);
    shd_finding_note(out, "cores", (double)cores);
    shd_finding_note(out, "threads", (double)(threads * ranks));
    shd_finding_note(out, "waiting_share", share);
    if (share < WAIT_LIMIT) return;
    if (cores > 0 && threads * ranks > cores)
        shd_finding_warn(out, "there are more threads than cores: set run.ranks x run.threads to at most %lld",
                         (long long)cores);
    else
        shd_finding_warn(out, "other programs take the cores: end them, or give this job fewer");
}

/* --- saving ------------------------------------------------------------------------------------------------------- */

/* A save that takes more than this part of what lies between two keeps training waiting. */
static const double SAVE_LIMIT = 0.8, SYNC_SAVE_LIMIT = 0.1;

/* Says what to do about saves that follow each other within `least_s`: names the keys that let them, each with a value
 * that does not, and the other way out, where there is one. */
static void advise_rarer_saves(const shd_job *job, double step_s, double least_s, shd_finding *out) {
    char steps[64] = "", minutes[64] = "";
    if (job->checkpoint.every > 0 && (double)job->checkpoint.every * step_s < least_s)
        snprintf(steps, sizeof steps, "checkpoint.every to %.0f", ceil(least_s / step_s + 1));
    if (job->checkpoint.every_minutes > 0 && job->checkpoint.every_minutes * 60 < least_s)
        snprintf(minutes, sizeof minutes, "checkpoint.every_minutes to %.2f", ceil(least_s / 60 * 100) / 100);
    shd_finding_warn(out, "%s raise %s%s%s",
                     job->checkpoint.async ? "the disk is too slow for that, and training would wait for it:"
                                           : "training waits for that time: set checkpoint.async: true, or",
                     steps, *steps && *minutes ? " and " : "", minutes);
}

static void judge_saving(const judgement *j, shd_finding *out) {
    const shd_job *job = j->checkup->job;
    const shd_trial_rank *rank = first_rank(j);
    double save_s = (double)j->checkup->room.one_bytes / j->checkup->write_bytes_per_s;
    double step_s =
        (double)job->train.global_batch / (double)(job->train.micro_batch * job->run.ranks) * rank->step_ms / 1e3;
    double between_s = job->checkpoint.every > 0 ? (double)job->checkpoint.every * step_s : INFINITY;
    if (job->checkpoint.every_minutes > 0)
        between_s = fmin(between_s, fmax(job->checkpoint.every_minutes * 60, step_s));
    if (!isfinite(between_s) || j->checkup->write_bytes_per_s <= 0) {
        shd_finding_skip(out,
                         isfinite(between_s) ? "the disk was not measured" : "checkpoint.every is 0: only at the end");
        return;
    }
    double share = save_s / between_s;
    shd_finding_say(out, "a checkpoint every %.3g s takes the disk %.2g s, %.2g%% of the time", between_s, save_s,
                    100 * share);
    shd_finding_note(out, "between_s", between_s);
    shd_finding_note(out, "save_s", save_s);
    double limit = job->checkpoint.async ? SAVE_LIMIT : SYNC_SAVE_LIMIT;
    if (between_s < save_s / limit) advise_rarer_saves(job, step_s, save_s / limit, out);
}

/* --- overfitting -------------------------------------------------------------------------------------------------- */

static void judge_overfit(const judgement *j, shd_finding *out) {
    const shd_trial_rank *rank = first_rank(j);
    double first = rank->overfit_first, last = rank->overfit_last;
    shd_finding_say(out, "one batch, again and again: loss from %.4g to %.4g in %lld step%s, %.1f s", first, last,
                    (long long)rank->overfit_steps, plural(rank->overfit_steps), rank->overfit_ms / 1e3);
    shd_finding_note(out, "steps", (double)rank->overfit_steps);
    shd_finding_note(out, "first_loss", first);
    shd_finding_note(out, "last_loss", last);
    shd_finding_note(out, "seconds", rank->overfit_ms / 1e3);
    if (last <= shd_trial_goal(first)) return;
    if (last < first / 2) {
        shd_finding_warn(out, "it falls, but is not near zero yet: optimizer.lr may be low for so few steps");
        return;
    }
    shd_finding_advise(out, "a sound model learns one batch by heart: look at optimizer.lr, model.frozen and the data");
    refuse(out, SHERD_NUMERIC);
}

/* --- all of a trial ----------------------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    shd_trial_phase after; /* every rank must have come further */
    bool of_job, of_overfit;
    judge_fn judge;
} verdicts[] = {
    {"ranks", SHD_TRIAL_STARTING, false, false, judge_ranks},
    {"collectives", SHD_TRIAL_COLLECTIVES, false, false, judge_collectives},
    {"step", SHD_TRIAL_STEP, true, false, judge_step},
    {"cores", SHD_TRIAL_STEP, true, false, judge_cores},
    {"saving", SHD_TRIAL_STEP, true, false, judge_saving},
    {"overfit", SHD_TRIAL_OVERFIT, true, true, judge_overfit},
};
enum { VERDICTS = sizeof verdicts / sizeof *verdicts };

/* A rank that could say nothing of its own only says that it lost another. */
static bool blames_others(sherd_status status) {
    return status == SHERD_PEER || status == SHERD_TIMEOUT || status == SHERD_COMM;
}

/* The rank whose cause counts, -1: none has one: the first that failed by itself, else any. */
static int32_t find_culprit(const shd_trial_board *board, int32_t ranks) {
    int32_t culprit = -1;
    for (int32_t r = 0; r < ranks; r++) {
        if (board->ranks[r].status == SHERD_OK) continue;
        if (culprit < 0 || (blames_others(board->ranks[culprit].status) && !blames_others(board->ranks[r].status)))
            culprit = r;
    }
    return culprit;
}

/* Why the ranks have not all come further, in `out`. */
static void say_failure(const shd_trial_board *board, const shd_trial_end *end, shd_finding *out) {
    int32_t culprit = find_culprit(board, end->rank_count);
    bool lost = end->lost[0] && (culprit < 0 || blames_others(board->ranks[culprit].status));
    refuse(out, lost || culprit < 0 ? SHERD_PEER : board->ranks[culprit].status);
    if (lost || culprit < 0)
        snprintf(out->text, sizeof out->text, "%s", end->lost[0] ? end->lost : "a rank ended without a word");
    else
        snprintf(out->text, sizeof out->text, "rank %d: %s", culprit, board->ranks[culprit].text);
}

static shd_trial_phase find_phase(const shd_trial_board *board, int32_t ranks) {
    shd_trial_phase phase = SHD_TRIAL_DONE;
    for (int32_t r = 0; r < ranks; r++)
        if (board->ranks[r].phase < phase) phase = board->ranks[r].phase;
    return phase;
}

void shd_trial_judge(const shd_checkup *checkup, const shd_trial *trial, const shd_trial_board *board,
                     const shd_trial_end *end, shd_finding_sink sink, void *user) {
    const judgement j = {.checkup = checkup, .trial = trial, .board = board, .end = end};
    const shd_trial_phase phase = find_phase(board, end->rank_count);
    const char *failed = NULL;
    for (int i = 0; i < VERDICTS; i++) {
        shd_finding found = {.check = verdicts[i].name};
        if ((verdicts[i].of_job && !trial->job) || (verdicts[i].of_overfit && !trial->overfit)) continue;
        if (phase > verdicts[i].after) {
            verdicts[i].judge(&j, &found);
        } else if (failed) {
            shd_finding_skip(&found, "not made, because of the error in %s", failed);
        } else {
            say_failure(board, end, &found);
            failed = found.check;
        }
        sink(user, &found);
    }
}

/* --- two trials compared ------------------------------------------------------------------------------------------ */

static bool is_same(double a, double b) { return memcmp(&a, &b, sizeof a) == 0; }

/* The first difference of two runs, in the order in which bits come to be; false: there is none. */
static bool find_difference(const shd_trial_bits *few, const shd_trial_bits *many, const shd_plan *plan,
                            shd_finding *out) {
    for (int32_t s = 0; s < SHD_TRIAL_STEPS; s++) {
        for (int32_t t = 0; t < shd_min(few->tensor_count, SHD_TRIAL_TENSORS); t++)
            if (few->tensors[s][t] != many->tensors[s][t]) {
                shd_finding_say(out, "before step %d the bits of %s differ", s, plan->tensors[t].name);
                return true;
            }
        if (!is_same(few->loss[s], many->loss[s]) || !is_same(few->grad_norm[s], many->grad_norm[s])) {
            shd_finding_say(out,
                            "in step %d loss and gradient norm are %.17g and %.17g on few ranks, %.17g and %.17g on "
                            "all",
                            s, few->loss[s], few->grad_norm[s], many->loss[s], many->grad_norm[s]);
            return true;
        }
    }
    return false;
}

void shd_trial_judge_compare(const shd_trial_board *few, const shd_trial_end *few_end, const shd_trial_board *many,
                             const shd_trial_end *many_end, const shd_plan *plan, shd_finding_sink sink, void *user) {
    shd_finding found = {.check = "compare"};
    bool few_done = find_phase(few, few_end->rank_count) == SHD_TRIAL_DONE;
    bool many_done = find_phase(many, many_end->rank_count) == SHD_TRIAL_DONE;
    if (!few_done || !many_done) {
        say_failure(few_done ? many : few, few_done ? many_end : few_end, &found);
    } else if (find_difference(&few->bits, &many->bits, plan, &found)) {
        shd_finding_advise(&found,
                           "they must not differ for the same program on the same processors: run it again, and "
                           "suspect memory or cores of this machine, or report it");
        refuse(&found, SHERD_INTERNAL);
    } else {
        shd_finding_say(&found,
                        "%d steps on %d and on %d ranks: the same bits in loss, gradient norm and all %d tensors",
                        SHD_TRIAL_STEPS, few_end->rank_count, many_end->rank_count, few->bits.tensor_count);
        shd_finding_note(&found, "steps", SHD_TRIAL_STEPS);
        shd_finding_note(&found, "tensors", few->bits.tensor_count);
        shd_finding_note(&found, "last_loss", many->bits.loss[SHD_TRIAL_STEPS - 1]);
    }
    sink(user, &found);
}
