#include "runtime/launch/launch.h"

#include "runtime/base/clock.h"
#include "runtime/base/memory.h"
#include "runtime/base/status.h"
#include "runtime/launch/guard.h"
#include "runtime/launch/orphan.h"
#include "runtime/launch/spawn.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

/* How long to look for the rank that failed of itself, when one says that another rank failed: a rank that gives back
 * gigabytes takes a while to end. */
enum { BLAME_MS = 1000 };
/* How often to ask whether ranks are still held. */
enum { HOLD_MS = 1000 };

static const int passed_on[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP};
enum { PASSED_ON_COUNT = sizeof passed_on / sizeof *passed_on };

/* How much an end says about the cause. */
typedef enum end_weight { WEIGHT_NONE, WEIGHT_BLAMES_PEER, WEIGHT_EXIT_CODE, WEIGHT_SIGNAL } end_weight;

typedef struct launch_job {
    const shd_launch *launch;
    shd_launch_report *report;
    shd_spawn spawn;
    shd_guard guard;
    shd_orphans orphans;
    pid_t *pids; /* of ranks that run; 0 for the others */
    int32_t running;
    end_weight weight;                                /* of the end in the report */
    bool ending;                                      /* the others have been told to end */
    bool held;                                        /* beyond the stop's grace */
    double failure_at_ms, blame_until_ms, kill_at_ms; /* 0: not set */
    double stop_at_ms;
    sigset_t watched, old_mask;
    struct sigaction old_child_action;
} launch_job;

/* SIGCHLD and what is passed on wait in the queue until sigtimedwait takes them. Signals the process was started to
 * ignore (nohup) stay ignored. */
static void watch_signals(launch_job *job) {
    sigemptyset(&job->watched);
    sigaddset(&job->watched, SIGCHLD);
    sigaddset(&job->watched, SIGCONT);
    for (int i = 0; i < PASSED_ON_COUNT; i++) {
        struct sigaction action;
        sigaction(passed_on[i], NULL, &action);
        if (action.sa_handler != SIG_IGN) sigaddset(&job->watched, passed_on[i]);
    }
    struct sigaction by_default = {.sa_handler = SIG_DFL};
    sigaction(SIGCHLD, &by_default, &job->old_child_action);
    sigprocmask(SIG_BLOCK, &job->watched, &job->old_mask);
}

static void unwatch_signals(launch_job *job) {
    /* A SIGCHLD of ours is not news for the caller. */
    struct timespec now = {0};
    sigset_t child;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    sigtimedwait(&child, NULL, &now);
    sigaction(SIGCHLD, &job->old_child_action, NULL);
    sigprocmask(SIG_SETMASK, &job->old_mask, NULL);
}

/* Sends `signal` to the groups of all running ranks; returns how many. */
static int32_t send_all(const launch_job *job, int signal) {
    int32_t count = 0;
    for (int32_t rank = 0; rank < job->launch->rank_count; rank++)
        if (job->pids[rank] && !kill(-job->pids[rank], signal)) count++;
    return count;
}

static void kill_all(launch_job *job) {
    for (int32_t rank = job->launch->rank_count; rank-- > 0;)
        if (job->pids[rank]) {
            job->report->killed_rank = rank;
            job->report->killed_pid = job->pids[rank];
        }
    job->report->killed += send_all(job, SIGKILL);
    if (job->report->stop_signal) job->report->stopped = true;
    job->ending = true;
    job->kill_at_ms = 0;
}

static void end_others(launch_job *job) {
    job->report->terminated = send_all(job, SIGTERM);
    job->ending = true;
    job->kill_at_ms = shd_clock_ms() + job->launch->grace_s * 1e3;
}

/* Weighs the end of a rank and keeps it when it says more than what is in the report. */
static void note_end(launch_job *job, int32_t rank, pid_t pid, int exit_code, int signal) {
    shd_launch_report *report = job->report;
    if (report->stop_signal) {
        /* TERM: a rank that its peers have stopped, before the launcher's signal reached it. */
        if (signal == report->stop_signal || exit_code == 128 + report->stop_signal || exit_code == 128 + SIGTERM) {
            report->stopped = true;
            return;
        }
    }
    if (job->ending || (!exit_code && !signal)) return;
    end_weight weight = WEIGHT_EXIT_CODE;
    if (signal)
        weight = WEIGHT_SIGNAL;
    else if (job->launch->peer_failed_code && exit_code == job->launch->peer_failed_code)
        weight = WEIGHT_BLAMES_PEER;
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

/* Takes the ranks that have ended. While a rank is a zombie its number is its own, so its group can be killed safely:
 * what a rank started ends with it. */
static void reap(launch_job *job) {
    for (int32_t rank = 0; rank < job->launch->rank_count; rank++) {
        siginfo_t info = {0};
        pid_t pid = job->pids[rank];
        if (!pid || waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) < 0 || !info.si_pid) continue;
        kill(-pid, SIGKILL);
        shd_guard_remove(&job->guard, pid);
        while (waitpid(pid, NULL, 0) < 0 && errno == EINTR) {}
        job->pids[rank] = 0;
        job->running--;
        bool exited = info.si_code == CLD_EXITED;
        note_end(job, rank, pid, exited ? info.si_status : 0, exited ? 0 : info.si_status);
    }
    bool blame = job->weight == WEIGHT_BLAMES_PEER && shd_clock_ms() < job->blame_until_ms;
    if (job->weight != WEIGHT_NONE && !job->ending && !blame) end_others(job);
}

/* Stops the ranks and this process, until somebody continues it; the clock went on meanwhile. A process whose group has
 * nobody to continue it is not stopped: then the ranks go on at once. */
static void suspend(launch_job *job) {
    double *const deadlines[] = {&job->blame_until_ms, &job->kill_at_ms, &job->stop_at_ms};
    double start_ms = shd_clock_ms();
    sigset_t stop;
    sigemptyset(&stop);
    sigaddset(&stop, SIGTSTP);
    send_all(job, SIGSTOP);
    raise(SIGTSTP);
    sigprocmask(SIG_UNBLOCK, &stop, NULL);
    sigprocmask(SIG_BLOCK, &stop, NULL);
    for (size_t i = 0; i < sizeof deadlines / sizeof *deadlines; i++)
        if (*deadlines[i] > 0) *deadlines[i] += shd_clock_ms() - start_ms;
    send_all(job, SIGCONT);
}

static bool holds(const launch_job *job, int signal) {
    return job->launch->holds && job->launch->holds(job->launch->user, signal);
}

/* A second request to stop ends the patience, unless it is the first one once more, or ranks must not be cut off. */
static void stop_again(launch_job *job, int signal) {
    bool repeated = shd_clock_ms() - job->stop_at_ms < job->launch->repeat_s * 1e3;
    if (signal == SIGQUIT || (!repeated && !holds(job, signal))) kill_all(job);
}

/* The stop's grace is over. Ranks that were held until now still need a moment to end by themselves. */
static void end_grace(launch_job *job) {
    bool held = !job->ending && holds(job, 0);
    if (held || job->held) {
        job->held = held;
        job->kill_at_ms = shd_clock_ms() + (held ? HOLD_MS : job->launch->grace_s * 1e3);
        return;
    }
    job->report->overdue = !job->ending;
    kill_all(job);
}

static void pass_on(launch_job *job, int signal) {
    if (signal == SIGTSTP) {
        suspend(job);
        return;
    }
    if (signal == SIGCONT) {
        send_all(job, SIGCONT);
        return;
    }
    bool stops = signal != SIGUSR1 && signal != SIGUSR2;
    if (stops && job->report->stop_signal) {
        stop_again(job, signal);
        return;
    }
    if (stops) {
        job->report->stop_signal = signal;
        job->stop_at_ms = shd_clock_ms();
        if (!job->ending) job->kill_at_ms = shd_clock_ms() + job->launch->stop_grace_s * 1e3;
    }
    if (signal != job->launch->one_rank_signal)
        send_all(job, signal);
    else if (job->pids[0])
        kill(-job->pids[0], signal);
}

/* The next signal, or 0 when a deadline has come. */
static int wait_signal(const launch_job *job) {
    double until_ms = job->kill_at_ms;
    if (job->weight == WEIGHT_BLAMES_PEER && !job->ending && (until_ms == 0 || job->blame_until_ms < until_ms))
        until_ms = job->blame_until_ms;
    if (until_ms == 0) {
        int signal = sigwaitinfo(&job->watched, NULL);
        return signal < 0 ? 0 : signal;
    }
    double left_ms = until_ms - shd_clock_ms();
    if (left_ms < 0) left_ms = 0;
    struct timespec wait = {.tv_sec = (time_t)(left_ms / 1e3)};
    wait.tv_nsec = (long)((left_ms - (double)wait.tv_sec * 1e3) * 1e6);
    int signal = sigtimedwait(&job->watched, NULL, &wait);
    return signal < 0 ? 0 : signal;
}

static void watch(launch_job *job) {
    while (job->running) {
        int signal = wait_signal(job);
        if (signal && signal != SIGCHLD) pass_on(job, signal);
        reap(job);
        if (job->running && job->kill_at_ms > 0 && shd_clock_ms() >= job->kill_at_ms) end_grace(job);
    }
    /* A rank that lost a peer to the stop has not failed. */
    shd_launch_report *report = job->report;
    if (report->stopped && report->blames_peer) {
        report->failed_rank = -1;
        report->failed_pid = 0;
        report->exit_code = 0;
        report->blames_peer = false;
    }
}

static sherd_status start_all(launch_job *job) {
    for (int32_t rank = 0; rank < job->launch->rank_count; rank++) {
        sherd_status status = shd_spawn_rank(&job->spawn, rank, &job->guard, &job->pids[rank], &job->report->exit_code);
        if (status != SHERD_OK) {
            kill_all(job);
            return status;
        }
        job->running++;
    }
    return SHERD_OK;
}

static sherd_status run(launch_job *job) {
    const shd_launch *launch = job->launch;
    job->pids = shd_alloc((size_t)launch->rank_count, sizeof *job->pids);
    if (!job->pids) return shd_fail(SHERD_MEMORY, "no memory for %d ranks", launch->rank_count);
    SHD_TRY(shd_spawn_init(&job->spawn, launch->program, launch->argv, launch->rank_count, &job->old_mask));
    SHD_TRY(shd_guard_start(&job->guard));
    sherd_status status = start_all(job);
    watch(job);
    return status;
}

sherd_status shd_launch_run(const shd_launch *launch, shd_launch_report *report) {
    *report = (shd_launch_report){.failed_rank = -1, .killed_rank = -1};
    if (launch->rank_count < 1 || launch->rank_count > SHD_LAUNCH_MAX_RANKS)
        return shd_fail(SHERD_ARGUMENT, "%d ranks: a job has 1 to %d", launch->rank_count, SHD_LAUNCH_MAX_RANKS);
    if (!launch->argv || !launch->argv[0]) return shd_fail(SHERD_ARGUMENT, "no program to run");
    launch_job job = {.launch = launch, .report = report, .guard.channel = -1};
    watch_signals(&job);
    shd_orphans_collect(&job.orphans);
    sherd_status status = run(&job);
    shd_guard_stop(&job.guard);
    shd_orphans_end(&job.orphans);
    unwatch_signals(&job);
    if (job.failure_at_ms > 0) report->failure_ms = shd_clock_ms() - job.failure_at_ms;
    shd_spawn_fini(&job.spawn);
    shd_free(job.pids);
    return status;
}
