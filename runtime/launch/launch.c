#include "runtime/launch/launch.h"

#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "runtime/launch/attempt.h"
#include "runtime/launch/backoff.h"
#include "runtime/launch/orphan.h"
#include "runtime/launch/port.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

/* A job from its first attempt to its last. */
typedef struct launch_job {
    const shd_launch *launch;
    shd_launch_report *report;
    shd_signals signals;
    shd_descriptors descriptors;
    shd_nodes *nodes; /* NULL: there is one */
    shd_backoff backoff;
    char run_id[33];
} launch_job;

static sherd_status draw_run_id(char id[33]) {
    unsigned char bytes[16];
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes)
        return shd_fail(SHERD_IO, "no random bytes for the run id: %s", strerror(errno));
    for (size_t i = 0; i < sizeof bytes; i++) snprintf(id + 2 * i, 3, "%02x", bytes[i]);
    return SHERD_OK;
}

static sherd_status run_at(launch_job *job, const shd_launch_place *place) {
    const shd_launch *launch = job->launch;
    shd_orphans orphans;
    if (launch->prepare) SHD_TRY(launch->prepare(launch->user, place->attempt));
    shd_orphans_collect(&orphans);
    sherd_status status = shd_attempt_run(launch, place, &job->signals, &job->descriptors, job->nodes, job->report);
    shd_orphans_end(&orphans);
    return status;
}

/* Every attempt has a port of its own: ranks of the one before may have left theirs busy. */
static sherd_status run_at_port(launch_job *job, int32_t attempt, int port) {
    const shd_launch *launch = job->launch;
    shd_launch_place place = {.local_count = launch->rank_count,
                              .world_size = launch->rank_count,
                              .node_count = 1,
                              .attempt = attempt,
                              .max_restarts = launch->max_restarts,
                              .role = launch->role ? launch->role : "default",
                              .run_id = launch->run_id ? launch->run_id : job->run_id,
                              .master_address = launch->master_address ? launch->master_address : "127.0.0.1",
                              .master_port = port};
    if (job->nodes) {
        SHD_TRY(shd_nodes_meet(job->nodes, place.run_id, port, &place));
        shd_log(SHERD_LOG_INFO, "node %d of %d: ranks %d to %d of %d; rank 0 at %s, port %d", place.node,
                place.node_count, place.first_rank, place.first_rank + place.local_count - 1, place.world_size,
                place.master_address, place.master_port);
    }
    return run_at(job, &place);
}

static sherd_status run_attempt(launch_job *job, int32_t attempt) {
    shd_port port = SHD_PORT_INIT;
    bool has_rank_0 = !job->nodes || shd_nodes_self(job->nodes) == 0;
    int asked = has_rank_0 ? job->launch->master_port : 0;
    SHD_TRY(asked ? shd_port_check(asked) : shd_port_find(&port));
    sherd_status status = run_at_port(job, attempt, asked ? asked : port.number);
    shd_port_release(&port);
    return status;
}

/* Told to stop between attempts: that, and no longer the failure before, is how the job has ended. */
static void end_by_stop(launch_job *job, int signal) {
    *job->report = (shd_launch_report){.attempt = job->report->attempt,
                                       .world_size = job->report->world_size,
                                       .failed_rank = -1,
                                       .killed_rank = -1,
                                       .lost_node = -1,
                                       .node = -1,
                                       .stop_signal = signal,
                                       .stopped = true};
    if (job->nodes) shd_nodes_tell_stop(job->nodes, signal);
}

/* Waits before another attempt. False: told to stop meanwhile. */
static bool pause_for(launch_job *job, double delay_s) {
    double until_ms = shd_clock_ms() + delay_s * 1e3;
    while (shd_clock_ms() < until_ms) {
        /* Another node's stop, which may have come while the ranks ended here, is heard where nodes meet. */
        if (job->nodes && shd_nodes_stop_waits(job->nodes)) return true;
        int signal = shd_signals_wait(&job->signals, until_ms);
        if (signal == SIGTSTP) shd_signals_suspend();
        if (!shd_signals_stops(signal)) continue;
        end_by_stop(job, signal);
        return false;
    }
    return true;
}

/* Whether another attempt follows. */
static bool goes_on(launch_job *job, int32_t attempt, double lasted_s) {
    const shd_launch *launch = job->launch;
    shd_launch_report *report = job->report;
    bool failed = report->failed_rank >= 0 || report->lost_node > 0;
    /* A stop that came here after the failure that all nodes know of is heard by the others as one before the restart. */
    int signal = report->stop_signal;
    bool stopped_later = signal && job->nodes && !shd_nodes_stop_signal(job->nodes);
    if (!failed || (signal && !stopped_later) || attempt >= launch->max_restarts) return false;
    double delay_s = shd_backoff_next(&job->backoff, lasted_s);
    if (launch->restarts && !launch->restarts(launch->user, report, delay_s)) return false;
    if (!stopped_later) return pause_for(job, delay_s);
    end_by_stop(job, signal);
    return false;
}

static sherd_status run_attempts(launch_job *job) {
    /* A node that takes the place of a lost one begins with a later attempt than the first. */
    for (int32_t attempt = 0;; attempt = job->report->attempt + 1) {
        double start_ms = shd_clock_ms();
        job->report->exit_code = 0; /* of a rank of the attempt before */
        SHD_TRY(run_attempt(job, attempt));
        if (job->nodes) SHD_TRY(shd_nodes_check(job->nodes));
        if (!goes_on(job, job->report->attempt, (shd_clock_ms() - start_ms) / 1e3)) return SHERD_OK;
    }
}

/* A stop while nodes meet ends the job before an attempt has begun. */
static sherd_status end_meeting(launch_job *job) {
    int signal = job->nodes ? shd_nodes_stop_signal(job->nodes) : 0;
    while (!signal && shd_signals_stop_waits()) {
        signal = shd_signals_wait(&job->signals, shd_clock_ms());
        if (!shd_signals_stops(signal)) signal = 0;
    }
    if (!signal) return SHERD_STATE; /* it was no stop */
    end_by_stop(job, signal);
    return SHERD_OK;
}

static sherd_status join_and_run(launch_job *job) {
    shd_nodes_config config = *job->launch->nodes;
    config.local_count = job->launch->rank_count;
    config.max_restarts = job->launch->max_restarts;
    sherd_status status = shd_nodes_join(&config, &job->nodes);
    if (status == SHERD_OK) status = run_attempts(job);
    if (status == SHERD_STATE) status = end_meeting(job);
    shd_nodes_leave(job->nodes);
    return status;
}

/* Those that came when the ranks had ended must not end this process before it has told how they did, which they no longer
 * change. */
static void take_late_signals(launch_job *job) {
    shd_launch_report *report = job->report;
    for (int signal; (signal = shd_signals_wait(&job->signals, shd_clock_ms()));)
        if (shd_signals_stops(signal) && !report->stop_signal) report->stop_signal = signal;
}

static sherd_status run(launch_job *job) {
    SHD_TRY(draw_run_id(job->run_id));
    job->backoff = (shd_backoff){.first_s = job->launch->restart_delay_s};
    if (!job->launch->nodes) return run_attempts(job);
    return join_and_run(job);
}

sherd_status shd_launch_run(const shd_launch *launch, shd_launch_report *report) {
    *report = (shd_launch_report){.failed_rank = -1, .killed_rank = -1, .lost_node = -1, .node = -1};
    if (launch->rank_count < 1 || launch->rank_count > SHD_LAUNCH_MAX_RANKS)
        return shd_fail(SHERD_ARGUMENT, "%d ranks: a job has 1 to %d", launch->rank_count, SHD_LAUNCH_MAX_RANKS);
    if (!launch->argv || !launch->argv[0]) return shd_fail(SHERD_ARGUMENT, "no program to run");
    launch_job job = {.launch = launch, .report = report};
    shd_signals_watch(&job.signals);
    shd_descriptors_raise(&job.descriptors);
    sherd_status status = run(&job);
    take_late_signals(&job);
    shd_descriptors_restore(&job.descriptors);
    shd_signals_unwatch(&job.signals);
    return status;
}
