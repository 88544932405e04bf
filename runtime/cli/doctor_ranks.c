#include "runtime/cli/doctor_ranks.h"

#include "runtime/cli/options.h"
#include "runtime/cli/train_launch.h"
#include "runtime/cli/verdict.h"
#include "runtime/launch/launch.h"
#include "runtime/train/checks/executable.h"

#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { EXTRA_ARGUMENTS = 6 };

/* A file without a name that the ranks inherit, mapped. */
typedef struct shared_board {
    int file;
    shd_trial_board *board;
} shared_board;

/* A job's digest as a number. */
static uint64_t hash_job(const shd_job *job) {
    char digest[17];
    if (!job || shd_train_digest(job, digest) != SHERD_OK) return 0;
    return strtoull(digest, NULL, 16);
}

/* --- a rank ------------------------------------------------------------------------------------------------------- */

static shd_trial_board *map_board(int file) {
    if (fcntl(file, F_GET_SEALS) < 0) return NULL;
    shd_trial_board *board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    return board == MAP_FAILED ? NULL : board;
}

int shd_doctor_rank(const char *order, const shd_job *job) {
    int file = -1, overfit = 0, batches = 0;
    sherd_options place = SHERD_OPTIONS_INIT;
    if (sscanf(order, "%d:%d:%d", &file, &overfit, &batches) != 3) return SHD_EXIT_USAGE;
    shd_trial_board *board = map_board(file);
    if (!board || board->bytes != (int64_t)sizeof *board) return SHD_EXIT_FAILED;
    sherd_status status = sherd_options_from_env(&place);
    if (status != SHERD_OK || place.rank >= SHD_COMM_MAX_RANKS) return SHD_EXIT_FAILED;
    const shd_trial trial = {
        .job = job, .job_hash = hash_job(job), .overfit = overfit != 0, .compare_batches = batches};
    status = shd_trial_run(&trial, &place, board);
    munmap(board, sizeof *board);
    return shd_status_exit_code(status);
}

/* --- the launcher ------------------------------------------------------------------------------------------------- */

static bool open_board(shared_board *shared) {
    shared->file = memfd_create("sherd-doctor", MFD_ALLOW_SEALING);
    if (shared->file < 0 || ftruncate(shared->file, sizeof *shared->board) != 0) return false;
    shared->board = map_board(shared->file);
    if (shared->board) shared->board->bytes = sizeof *shared->board;
    return shared->board != NULL;
}

static void close_board(shared_board *shared) {
    if (shared->board) munmap(shared->board, sizeof *shared->board);
    if (shared->file >= 0) close(shared->file);
}

/* What is known of a rank that could not say itself why it ended. */
static void say_lost(const shd_launch_report *report, sherd_status status, shd_trial_end *end) {
    if (status != SHERD_OK) {
        snprintf(end->lost, sizeof end->lost, "%s", sherd_last_error());
    } else if (report->failed_rank >= 0 && report->signal) {
        const char *name = sigabbrev_np(report->signal);
        snprintf(end->lost, sizeof end->lost, "rank %d (pid %d) was killed by signal %d (SIG%s)", report->failed_rank,
                 (int)report->failed_pid, report->signal, name ? name : "?");
    } else if (report->failed_rank >= 0) {
        snprintf(end->lost, sizeof end->lost, "rank %d (pid %d) ended with exit code %d", report->failed_rank,
                 (int)report->failed_pid, report->exit_code);
    } else if (report->stopped) {
        snprintf(end->lost, sizeof end->lost, "stopped by signal %d", report->stop_signal);
    }
}

/* Runs `count` ranks to their end, `batches` as in shd_trial. Returns the signal by which this
 * process was told to stop meanwhile, or 0. */
static int launch(const shd_doctor_ranks *ranks, int32_t count, int32_t batches, shared_board *shared,
                  shd_trial_end *end) {
    char order[64], number[24];
    *end = (shd_trial_end){.rank_count = count};
    *shared = (shared_board){.file = -1};
    char **argv = calloc((size_t)ranks->argc + EXTRA_ARGUMENTS, sizeof *argv);
    if (!argv || !open_board(shared)) {
        snprintf(end->lost, sizeof end->lost, "no memory to share with ranks");
        free(argv);
        return 0;
    }
    end->program = shd_executable_hash();
    end->job = batches > 0 ? 0 : hash_job(ranks->job);
    end->clock_ms = shd_trial_clock_ms();
    snprintf(order, sizeof order, "--as-rank=%d:%d:%" PRId32, shared->file, ranks->overfit, batches);
    snprintf(number, sizeof number, "-n%" PRId32, count);
    argv[0] = (char[]){"sherd"};
    argv[1] = (char[]){"doctor"};
    argv[2] = order;
    memcpy(argv + 3, ranks->argv, (size_t)ranks->argc * sizeof *argv);
    argv[ranks->argc + 3] = number; /* the last one counts */
    shd_launch launch = SHD_LAUNCH_INIT;
    launch.program = ranks->program ? ranks->program : "/proc/self/exe";
    launch.argv = argv;
    launch.rank_count = count;
    launch.peer_failed_code = SHD_EXIT_RANK_LOST;
    shd_launch_report report;
    sherd_status status = shd_launch_run(&launch, &report);
    free(argv);
    say_lost(&report, status, end);
    return report.stop_signal;
}

/* The same job on as few ranks as give the same bits: one, or one for each replica. */
static int compare(const shd_doctor_ranks *ranks, const shd_checkup *checkup, shd_finding_sink sink, void *user) {
    const int32_t few_count = (int32_t)ranks->job->shard.replicas, many_count = ranks->rank_count;
    shd_finding skipped = {.check = "compare"};
    if (few_count == many_count) {
        shd_finding_skip(&skipped, many_count == 1 ? "one rank has nothing to be compared with: give -n RANKS"
                                                   : "with a rank for each replica there are no fewer that have the "
                                                     "same bits");
        sink(user, &skipped);
        return 0;
    }
    shared_board few, many = {.file = -1};
    shd_trial_end few_end, many_end;
    int stopped = launch(ranks, few_count, many_count, &few, &few_end);
    if (!stopped) {
        stopped = launch(ranks, many_count, many_count, &many, &many_end);
        if (few.board && many.board)
            shd_trial_judge_compare(few.board, &few_end, many.board, &many_end, checkup->plan, sink, user);
    }
    close_board(&few);
    close_board(&many);
    return stopped;
}

int shd_doctor_ranks_run(const shd_doctor_ranks *ranks, const shd_checkup *checkup, shd_finding_sink sink, void *user) {
    shared_board shared;
    shd_trial_end end;
    const shd_trial trial = {.job = ranks->job, .overfit = ranks->overfit};
    int stopped = launch(ranks, ranks->rank_count, 0, &shared, &end);
    if (shared.board) {
        shd_trial_judge(checkup, &trial, shared.board, &end, sink, user);
    } else {
        shd_finding found = {.check = "ranks", .state = SHD_CHECK_ERROR, .status = SHERD_MEMORY};
        snprintf(found.text, sizeof found.text, "%s", end.lost);
        sink(user, &found);
    }
    close_board(&shared);
    return stopped || !ranks->compare ? stopped : compare(ranks, checkup, sink, user);
}
