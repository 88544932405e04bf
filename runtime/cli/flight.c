#include "runtime/cli/flight.h"

#include "runtime/cli/options.h"
#include "runtime/watch/dump.h"
#include "runtime/watch/stack.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sherd/status.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

int shd_flight_renew(int last, int32_t rank_count) {
    int file;
    if (last >= 0) close(last);
    if (shd_recorder_file(rank_count, &file) != SHERD_OK) return -1;
    fcntl(file, F_SETFD, 0);
    return file;
}

void shd_flight_settle(const shd_job *job) {
    if (shd_dump_settle(job->log.dir) != SHERD_OK) shd_say_error("%s", sherd_last_error());
}

/* Whose stack is asked for, and where its dump will be: a handler has nothing else to know it by. */
static shd_recorder *served;
static char own_dump[PATH_MAX];

/* Asked only when the job is lost: that not all of this is safe within a handler can cost no more than the answer. */
static void tell_stack(int signal, siginfo_t *info, void *context) {
    char text[SHD_RECORDER_STACK_BYTES];
    shd_stack stack;
    int cause = errno;
    (void)signal;
    (void)info;
    shd_stack_take_at(context, &stack);
    shd_stack_join(&stack, text, sizeof text);
    shd_recorder_put_stack(served, text);
    errno = cause;
}

void shd_flight_serve(shd_recorder *recorder, const char *dump_dir, int32_t rank) {
    int number = SIGRTMIN + 3;
    const struct sigaction action = {.sa_sigaction = tell_stack, .sa_flags = SA_SIGINFO | SA_RESTART};
    if (!recorder) shd_recorder_offer_stack(served, 0);
    if (recorder) shd_dump_file(dump_dir, rank, own_dump, sizeof own_dump);
    served = recorder;
    if (recorder && !sigaction(number, &action, NULL)) shd_recorder_offer_stack(recorder, number);
}

bool shd_flight_given_up(void) {
    int cause = errno;
    bool given_up = served && shd_recorder_alarmed(served, NULL) >= 0 && !access(own_dump, F_OK);
    errno = cause;
    return given_up;
}

shd_activity shd_flight_activity(int records, int32_t rank) {
    shd_recorder *recorder;
    shd_recorder_head head = {.activity = SHD_ACTIVITY_NONE};
    if (records < 0 || shd_recorder_open(records, -1, &recorder) != SHERD_OK) return SHD_ACTIVITY_NONE;
    (void)shd_recorder_look(recorder, rank, &head);
    shd_recorder_close(recorder);
    return head.activity;
}

int32_t shd_flight_attempt(void) {
    const char *attempt = getenv("TORCHELASTIC_RESTART_COUNT");
    int64_t number = 0;
    if (attempt) shd_parse_integer(attempt, 0, INT32_MAX, &number);
    return (int32_t)number;
}

void shd_flight_dump_dir(const shd_job *job, char *out, size_t bytes) {
    shd_dump_path(job->log.dir, shd_flight_attempt(), out, bytes);
}

/* Ranks that fail by themselves say why; those that are killed, or hang, cannot. */
void shd_flight_judge(int records, const shd_job *job, const shd_launch_report *report) {
    shd_recorder *recorder;
    char dir[PATH_MAX], where[256];
    int32_t count = 0;
    if (records < 0 || report->failed_rank < 0 || shd_recorder_open(records, -1, &recorder) != SHERD_OK) return;
    bool killed = report->signal != 0;
    if (killed) {
        shd_dump_print_where(recorder, report->failed_rank, where, sizeof where);
        if (*where) shd_say_error("rank %d was %s", report->failed_rank, where);
    }
    if (killed || shd_recorder_alarmed(recorder, NULL) >= 0) {
        shd_dump_path(job->log.dir, report->attempt, dir, sizeof dir);
        if (shd_dump_missing(recorder, dir, &count) != SHERD_OK) shd_say_error("%s", sherd_last_error());
        if (count > 0) shd_say_error("what every rank was doing is in %s; 'sherd debug' reads it", dir);
    }
    shd_recorder_close(recorder);
}
