#include "runtime/launch/attempt.h"

#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/base/memory.h"
#include "runtime/base/status.h"
#include "runtime/launch/affinity.h"
#include "runtime/launch/exits.h"
#include "runtime/launch/guard.h"
#include "runtime/launch/marked.h"
#include "runtime/launch/output.h"
#include "runtime/launch/spawn.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

/* How long to look for the rank that failed of itself, when one says that another rank failed: a rank that gives back
 * gigabytes takes a while to end. */
enum { BLAME_MS = 1000 };
/* How often to ask whether ranks are still held. */
enum { HOLD_MS = 1000 };

/* How much an end says about the cause. */
typedef enum end_weight { WEIGHT_NONE, WEIGHT_BLAMES_PEER, WEIGHT_OWN } end_weight;

typedef struct attempt {
    const shd_launch *launch;
    const shd_launch_place *place;
    const shd_signals *signals;
    const shd_descriptors *descriptors;
    shd_nodes *nodes; /* NULL: there is one */
    shd_launch_report *report;
    shd_spawn spawn;
    shd_variables variables;
    shd_guard guard;
    const char *guard_news; /* NULL: nobody has killed it */
    shd_exits exits;
    pid_t *pids; /* of the ranks of this host that run; 0 for the others */
    int32_t running;
    int32_t early_rank; /* the first that ended with 0 while others ran; -1: none */
    pid_t early_pid;
    end_weight weight;                                /* of the end in the report */
    bool ending;                                      /* the others have been told to end */
    bool hurried;                                     /* because of a failure: they have the grace of one */
    bool held;                                        /* beyond the stop's grace */
    bool over;                                        /* on all nodes */
    bool stop_is_remote;                              /* another node was told to stop; this one not yet */
    double failure_at_ms, blame_until_ms, kill_at_ms; /* 0: not set */
    double stop_at_ms;
} attempt;

/* All that run are being ended by `signal`. */
static void note_told(attempt *job, int signal) {
    if (job->launch->output) shd_output_told(job->launch->output, signal);
}

/* Sends `signal` to the groups of all running ranks; returns how many. */
static int32_t send_all(const attempt *job, int signal) {
    int32_t count = 0;
    for (int32_t rank = 0; rank < job->place->local_count; rank++)
        if (job->pids[rank] && !kill(-job->pids[rank], signal)) count++;
    return count;
}

static void kill_all(attempt *job) {
    for (int32_t rank = job->place->local_count; rank-- > 0;)
        if (job->pids[rank]) {
            job->report->killed_rank = job->place->first_rank + rank;
            job->report->killed_pid = job->pids[rank];
        }
    note_told(job, SIGKILL);
    job->report->killed += send_all(job, SIGKILL);
    if (job->report->stop_signal) job->report->stopped = true;
    job->ending = true;
    job->kill_at_ms = 0;
}

static void end_others(attempt *job) {
    job->ending = true;
    /* Ranks that were told to stop, and may save, are not told again, and have the time of a stop. */
    if (!job->report->stop_signal) {
        job->hurried = true;
        note_told(job, SIGTERM);
        job->report->terminated = send_all(job, SIGTERM);
        job->kill_at_ms = shd_clock_ms() + job->launch->grace_s * 1e3;
    }
    send_all(job, SIGCONT); /* one that is stopped, which may be why the others failed, can end too */
}

/* Weighs the end of a rank and keeps it when it says more than what is in the report. */
static void note_end(attempt *job, int32_t rank, pid_t pid, int exit_code, int signal) {
    shd_launch_report *report = job->report;
    if (report->stop_signal) {
        /* TERM: a rank that its peers have stopped, before the launcher's signal reached it. */
        if (signal == report->stop_signal || exit_code == 128 + report->stop_signal || exit_code == 128 + SIGTERM) {
            report->stopped = true;
            return;
        }
    }
    if (!exit_code && !signal && job->running > 0 && job->early_rank < 0) {
        job->early_rank = rank;
        job->early_pid = pid;
    }
    if (job->ending || (!exit_code && !signal)) return;
    /* Of those that blame nobody, the first: one that is killed later is louder, and no cause. */
    bool blames = !signal && job->launch->peer_failed_code && exit_code == job->launch->peer_failed_code;
    end_weight weight = blames ? WEIGHT_BLAMES_PEER : WEIGHT_OWN;
    if (weight <= job->weight) return;
    if (job->weight == WEIGHT_NONE) {
        job->failure_at_ms = shd_clock_ms();
        job->blame_until_ms = job->failure_at_ms + BLAME_MS;
    }
    job->weight = weight;
    report->failed_rank = rank;
    report->failed_pid = pid;
    report->exit_code = exit_code;
    report->signal = signal;
    report->blames_peer = weight == WEIGHT_BLAMES_PEER;
}

/* Takes a rank, if it has ended. While it is a zombie its number is its own, so its group can be killed safely: what a rank
 * started ends with it. */
static bool reap_rank(attempt *job, int32_t rank) {
    siginfo_t info = {0};
    pid_t pid = job->pids[rank];
    if (!pid || waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) < 0 || !info.si_pid) return false;
    kill(-pid, SIGKILL);
    shd_guard_remove(&job->guard, pid);
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR) {}
    job->pids[rank] = 0;
    job->running--;
    bool exited = info.si_code == CLD_EXITED;
    int code = exited ? info.si_status : 0, signal = exited ? 0 : info.si_status;
    if (job->launch->output) shd_output_reaped(job->launch->output, rank, code, signal);
    note_end(job, job->place->first_rank + rank, pid, code, signal);
    return true;
}

/* Takes the ranks that have ended, in the order in which they did. */
static void reap(attempt *job) {
    /* One that a debugger still holds cannot be taken yet, and is not queued again. */
    for (int32_t rank; (rank = shd_exits_next(&job->exits)) >= 0;)
        if (!reap_rank(job, rank)) job->exits.unqueued++;
    for (int32_t rank = 0; job->exits.unqueued > 0 && rank < job->place->local_count; rank++) reap_rank(job, rank);
    bool blame = job->weight == WEIGHT_BLAMES_PEER && shd_clock_ms() < job->blame_until_ms;
    if (job->weight != WEIGHT_NONE && !job->ending && !blame) {
        const shd_launch_report *report = job->report;
        if (job->nodes)
            shd_nodes_tell_failed(job->nodes, report->failed_rank, report->failed_pid, report->exit_code,
                                  report->signal);
        end_others(job);
    }
}

/* Stops the ranks and this process, until somebody continues it; the clock went on meanwhile. A process whose group has
 * nobody to continue it is not stopped: then the ranks go on at once. */
static void suspend(attempt *job) {
    double *const deadlines[] = {&job->blame_until_ms, &job->kill_at_ms, &job->stop_at_ms};
    double start_ms = shd_clock_ms();
    send_all(job, SIGSTOP);
    shd_signals_suspend();
    for (size_t i = 0; i < sizeof deadlines / sizeof *deadlines; i++)
        if (*deadlines[i] > 0) *deadlines[i] += shd_clock_ms() - start_ms;
    send_all(job, SIGCONT);
}

static bool holds(const attempt *job, int signal) {
    return job->launch->holds && job->launch->holds(job->launch->user, signal);
}

/* A second request to stop ends the patience, unless it is the first one once more, or ranks must not be cut off. QUIT, which
 * nobody sends by mistake, can only repeat itself. */
static void stop_again(attempt *job, int signal) {
    bool quits = signal == SIGQUIT && job->report->stop_signal != SIGQUIT;
    bool repeated = shd_clock_ms() - job->stop_at_ms < job->launch->repeat_s * 1e3;
    if (repeated && !quits) return;
    if (signal != SIGQUIT && holds(job, signal)) return;
    kill_all(job);
    /* Nothing runs here: no more patience with other nodes either. */
    if (!job->running) job->over = true;
}

/* The stop's grace is over. Ranks that were held until now still need a moment to end by themselves. */
static void end_grace(attempt *job) {
    bool held = !job->hurried && holds(job, 0);
    if (held || job->held) {
        job->held = held;
        job->kill_at_ms = shd_clock_ms() + (held ? HOLD_MS : job->launch->grace_s * 1e3);
        return;
    }
    job->report->overdue = !job->hurried;
    kill_all(job);
}

static void begin_stop(attempt *job, int signal) {
    job->report->stop_signal = signal;
    job->stop_at_ms = shd_clock_ms();
    note_told(job, signal);
    if (!job->ending) job->kill_at_ms = shd_clock_ms() + job->launch->stop_grace_s * 1e3;
    send_all(job, signal);
}

static void pass_on(attempt *job, int signal) {
    if (signal == SIGTSTP) {
        suspend(job);
        return;
    }
    if (signal == SIGCONT) {
        send_all(job, SIGCONT);
        return;
    }
    if (!shd_signals_stops(signal)) {
        if (signal != job->launch->one_rank_signal)
            send_all(job, signal);
        else if (job->pids[0])
            kill(-job->pids[0], signal);
        return;
    }
    if (job->stop_is_remote) { /* schedulers tell all nodes: the first one here is no second one */
        job->stop_is_remote = false;
        job->stop_at_ms = shd_clock_ms();
        return;
    }
    if (job->report->stop_signal) {
        stop_again(job, signal);
        return;
    }
    begin_stop(job, signal);
    if (job->nodes) shd_nodes_tell_stop(job->nodes, signal);
}

/* When to look again though no signal comes; 0: never. */
static double find_deadline(const attempt *job) {
    double until_ms = job->running ? job->kill_at_ms : 0;
    if (job->weight == WEIGHT_BLAMES_PEER && !job->ending && (until_ms == 0 || job->blame_until_ms < until_ms))
        until_ms = job->blame_until_ms;
    return until_ms;
}

/* A rank that lost a peer has not failed: where the launcher was told to stop, nobody has; else the one that was gone
 * too early, if there is such. */
static void judge_peers(attempt *job) {
    shd_launch_report *report = job->report;
    if (!report->blames_peer) return;
    bool early = job->launch->early_exit_fails && job->early_rank >= 0;
    if (!report->stopped && !early) return;
    report->blames_peer = false;
    report->exit_code = 0;
    report->early_exit = !report->stopped;
    report->failed_rank = report->stopped ? -1 : job->early_rank;
    report->failed_pid = report->stopped ? 0 : job->early_pid;
}

/* What all nodes know of the end takes the place of what this one saw of it. */
static void take_verdict(attempt *job) {
    shd_launch_report *report = job->report;
    shd_nodes_verdict verdict;
    shd_nodes_get_verdict(job->nodes, &verdict);
    job->over = true;
    if (!verdict.failed) {
        report->stopped |= verdict.stopped;
        return;
    }
    bool of_rank = verdict.message.kind == SHD_MESSAGE_FAILED;
    report->blames_peer = report->early_exit = false;
    report->node = verdict.message.node;
    report->lost_node = of_rank ? -1 : verdict.message.node;
    report->failed_rank = of_rank ? verdict.message.rank : -1;
    report->failed_pid = of_rank ? verdict.message.pid : 0;
    report->exit_code = of_rank ? verdict.message.exit_code : 0;
    report->signal = of_rank ? verdict.message.signal : 0;
    snprintf(report->host, sizeof report->host, "%s", verdict.host);
    if (verdict.broken) snprintf(report->broken, sizeof report->broken, "%s", verdict.broken);
    if (job->failure_at_ms == 0) job->failure_at_ms = shd_clock_ms();
    if (!job->ending) end_others(job);
}

/* What other nodes say, and to them, that all is over here. */
static void talk(attempt *job) {
    int signal = 0;
    shd_news news;
    if (!job->running && job->weight == WEIGHT_NONE && !job->over)
        shd_nodes_tell_done(job->nodes, job->report->stopped);
    while (!job->over && (news = shd_nodes_hear(job->nodes, &signal)) != SHD_NEWS_NONE) {
        if (news == SHD_NEWS_OVER) take_verdict(job);
        if (news != SHD_NEWS_STOP || job->report->stop_signal) continue;
        job->stop_is_remote = true;
        begin_stop(job, signal);
    }
}

/* What has become of it is said when nothing is waited for any more. */
static void look_after_guard(attempt *job) {
    if (!shd_guard_renew(&job->guard, job->pids, job->place->local_count)) return;
    job->guard_news = job->guard.channel >= 0 ? "another was started" : "no other could be started";
}

static void watch(attempt *job) {
    while (job->running || (job->nodes && !job->over)) {
        int signal = shd_signals_wait(job->signals, find_deadline(job));
        if (signal == SIGCHLD) look_after_guard(job);
        if (signal && signal != SIGCHLD) pass_on(job, signal);
        reap(job);
        if (job->nodes) talk(job);
        if (job->running && job->kill_at_ms > 0 && shd_clock_ms() >= job->kill_at_ms) end_grace(job);
    }
    judge_peers(job);
}

/* A program that cannot be started here. */
static void tell_not_started(attempt *job, int32_t rank) {
    if (!job->nodes) return;
    shd_nodes_tell_failed(job->nodes, rank, 0, job->report->exit_code ? job->report->exit_code : 1, 0);
    job->over = true;
}

static sherd_status start_rank(attempt *job, int32_t rank) {
    shd_output *output = job->launch->output;
    if (output) SHD_TRY(shd_output_open(output, rank, &job->variables, job->spawn.outputs));
    sherd_status status = shd_spawn_rank(&job->spawn, rank, &job->guard, &job->pids[rank], &job->report->exit_code);
    shd_tee_started(job->spawn.outputs);
    if (status != SHERD_OK) return status;
    shd_exits_add(&job->exits, rank, job->pids[rank]);
    if (output) shd_output_started(output, rank, job->pids[rank]);
    return SHERD_OK;
}

static sherd_status start_all(attempt *job) {
    for (int32_t rank = 0; rank < job->place->local_count; rank++) {
        sherd_status status = start_rank(job, rank);
        if (status != SHERD_OK) {
            kill_all(job);
            tell_not_started(job, job->place->first_rank + rank);
            return status;
        }
        job->running++;
    }
    return SHERD_OK;
}

static sherd_status set_threads(attempt *job) {
    char text[16];
    if (!job->launch->affinity || !job->launch->affinity->sets_threads) return SHERD_OK;
    snprintf(text, sizeof text, "%d", job->launch->affinity->threads);
    return shd_variables_set(&job->variables, "OMP_NUM_THREADS", text);
}

static sherd_status run(attempt *job) {
    const shd_launch *launch = job->launch;
    job->pids = shd_alloc((size_t)job->place->local_count, sizeof *job->pids);
    if (!job->pids) return shd_fail(SHERD_MEMORY, "no memory for %d ranks", job->place->local_count);
    SHD_TRY(shd_variables_init(&job->variables, job->place));
    job->spawn = (shd_spawn){.argv = launch->argv,
                             .program = launch->program ? launch->program : launch->argv[0],
                             .variables = &job->variables,
                             .mask = job->signals->old_mask,
                             .descriptors = job->descriptors,
                             .outputs = {-1, -1},
                             .affinity = launch->affinity,
                             .parent = getpid()};
    SHD_TRY(set_threads(job));
    SHD_TRY(shd_exits_init(&job->exits, job->place->local_count));
    if (launch->output) {
        SHD_TRY(shd_output_begin(launch->output, job->place));
        job->guard.died = shd_output_sweep;
        job->guard.user = launch->output;
    }
    SHD_TRY(shd_guard_start(&job->guard));
    SHD_TRY(shd_variables_set(&job->variables, SHD_MARKED_VARIABLE, shd_guard_mark_value(&job->guard)));
    sherd_status status = start_all(job);
    watch(job);
    return status;
}

sherd_status shd_attempt_run(const shd_launch *launch, const shd_launch_place *place, const shd_signals *signals,
                             const shd_descriptors *descriptors, shd_nodes *nodes, shd_launch_report *report) {
    *report = (shd_launch_report){.attempt = place->attempt,
                                  .world_size = place->world_size,
                                  .failed_rank = -1,
                                  .killed_rank = -1,
                                  .lost_node = -1,
                                  .node = -1};
    attempt job = {.launch = launch,
                   .place = place,
                   .signals = signals,
                   .descriptors = descriptors,
                   .nodes = nodes,
                   .report = report,
                   .guard.channel = -1,
                   .early_rank = -1};
    sherd_status status = run(&job);
    shd_guard_stop(&job.guard);
    if (job.guard_news) shd_log(SHERD_LOG_WARN, "the guard process of the ranks was killed; %s", job.guard_news);
    if (job.failure_at_ms > 0) report->failure_ms = shd_clock_ms() - job.failure_at_ms;
    if (launch->output) shd_output_end(launch->output);
    shd_exits_fini(&job.exits);
    shd_variables_fini(&job.variables);
    shd_free(job.pids);
    return status;
}
