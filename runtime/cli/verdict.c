#include "runtime/cli/verdict.h"

#include "runtime/cli/options.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

void shd_signal_print(int signal, char *text, size_t bytes) {
    const char *name = sigabbrev_np(signal);
    snprintf(text, bytes, name ? "signal %d (SIG%s)" : "signal %d", signal, name);
}

static void say_cause(const shd_cause *cause) {
    int rank = -1;
    if (sscanf(cause->text, "rank %d ", &rank) == 1 && rank == cause->rank)
        shd_say_error("%s", cause->text);
    else
        shd_say_error("rank %d: %s", cause->rank, cause->text);
}

void shd_report_take_cause(shd_launch_report *report, const shd_cause *cause) {
    bool lost = shd_cause_blames_peer(cause);
    if (report->failed_rank < 0 || (lost && !report->blames_peer)) return;
    say_cause(cause);
    if (report->signal) return;
    report->failed_rank = cause->rank;
    report->failed_pid = cause->pid;
    report->exit_code = shd_status_exit_code(cause->status);
    report->blames_peer = lost;
}

/* The signal that told a rank itself, not the launcher, to stop, by its exit code; 0: it ended otherwise. */
static int stopped_by(const shd_launch_report *report) {
    int signal = report->signal ? 0 : report->exit_code - SHD_EXIT_SIGNAL;
    return signal == SIGTERM || signal == SIGINT || signal == SIGHUP ? signal : 0;
}

/* " (pid 7)", " (node 1, HOST, pid 7)". */
static void name_process(const shd_launch_report *report, char *text, size_t bytes) {
    char pid[24] = "";
    *text = 0;
    if (report->failed_pid) snprintf(pid, sizeof pid, "pid %d", (int)report->failed_pid);
    if (report->node >= 0)
        snprintf(text, bytes, " (node %d, %s%s%s)", report->node, report->host, *pid ? ", " : "", pid);
    else if (*pid)
        snprintf(text, bytes, " (%s)", pid);
}

static void say_lost_node(const shd_launch_report *report) {
    const char *ended = report->terminated ? "; the ranks here were ended" : "";
    if (report->broken[0])
        shd_say_error("node %d (%s) cannot be reached any more: %s%s", report->lost_node, report->host, report->broken,
                      ended);
    else
        shd_say_error("node %d (%s) is lost: its launcher has ended or does not answer%s", report->lost_node,
                      report->host, ended);
}

void shd_report_say(const shd_launch *launch, const shd_launch_report *report) {
    char cause[96], others[128] = "";
    if (report->lost_node >= 0) {
        say_lost_node(report);
        return;
    }
    if (report->failed_rank < 0) {
        if (!report->stopped) return;
        shd_signal_print(report->stop_signal, cause, sizeof cause);
        if (report->overdue)
            snprintf(others, sizeof others, "; %d rank%s, first rank %d (pid %d), had not ended after %g s: killed",
                     report->killed, report->killed == 1 ? "" : "s", report->killed_rank, (int)report->killed_pid,
                     launch->stop_grace_s);
        shd_say_error("stopped by %s%s", cause, others);
        return;
    }
    int stop = stopped_by(report);
    if (report->signal || stop)
        shd_signal_print(stop ? stop : report->signal, cause, sizeof cause);
    else if (report->blames_peer)
        snprintf(cause, sizeof cause, "another rank was lost or hung");
    else
        snprintf(cause, sizeof cause, "exit code %d%s", report->exit_code,
                 report->early_exit ? " before the others were done" : "");
    const char *how = "failed with";
    if (report->early_exit)
        how = "ended with";
    else if (report->signal || stop)
        how = stop ? "was stopped by" : "was killed by";
    else if (report->blames_peer)
        how = "gave up:";
    if (report->killed)
        snprintf(others, sizeof others, "; the others were ended, %d of them by KILL", report->killed);
    else if (report->terminated)
        snprintf(others, sizeof others, "; the others were ended");
    char process[SHD_MESSAGE_WORD_BYTES + 64];
    name_process(report, process, sizeof process);
    shd_say_error("rank %d of %d%s %s %s%s", report->failed_rank, report->world_size, process, how, cause, others);
}

void shd_report_say_restart(const shd_launch *launch, const shd_launch_report *report, double delay_s) {
    shd_say_error("restart %d of %d in %g s", report->attempt + 1, launch->max_restarts, delay_s);
}

int shd_report_exit_code(const shd_launch_report *report) {
    if (report->lost_node >= 0) return SHD_EXIT_FAILED;
    if (report->failed_rank < 0) return report->stopped ? SHD_EXIT_SIGNAL + report->stop_signal : SHD_EXIT_DONE;
    return report->signal ? SHD_EXIT_SIGNAL + report->signal : report->exit_code;
}

int shd_report_train_exit_code(const shd_launch_report *report) {
    if (report->failed_rank >= 0 && (report->signal || report->early_exit)) return SHD_EXIT_RANK_LOST;
    return shd_report_exit_code(report);
}

int shd_status_exit_code(sherd_status status) {
    switch (status) {
    case SHERD_OK: return SHD_EXIT_DONE;
    case SHERD_CONFIG:
    case SHERD_ARGUMENT: return SHD_EXIT_USAGE;
    case SHERD_DATA:
    case SHERD_UNSUPPORTED: return SHD_EXIT_DATA; /* a file of another version */
    case SHERD_COMM:
    case SHERD_PEER:
    case SHERD_TIMEOUT: return SHD_EXIT_RANK_LOST;
    case SHERD_STATE:
    case SHERD_MEMORY:
    case SHERD_IO:
    case SHERD_NUMERIC:
    case SHERD_INTERNAL:
    case SHERD_MISMATCH:
    case SHERD_DEVICE: return SHD_EXIT_FAILED;
    }
    return SHD_EXIT_FAILED;
}
