/* Saves that fail: told on every rank, with the rank that failed; older checkpoints stay, training goes on with the same
 * bits, and the next save may succeed. */
#include "io/checkpoint_folder.h"
#include "runtime/session/internal.h"
#include "session/story.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef enum save_fault {
    FAULT_NONE,
    FAULT_PARENT_IS_A_FILE,
    FAULT_PARTIAL_IS_A_FILE, /* where the folder is to be made */
    FAULT_ONE_RANK,          /* rank 1's file cannot be made */
    FAULT_VANISHED,          /* the folder is removed while it is written */
    FAULT_REPLACED,          /* and another one is there in its place */
    FAULT_NOTE,              /* no JSON object: only rank 0 finds out, at the commit */
    FAULTS
} save_fault;

typedef struct attempt {
    story told;
    save_fault fault;
    bool waits; /* begin and wait, instead of training on */
} attempt;

static void partial_path(const sherd_session *session, const char *dir, char path[200]) {
    snprintf(path, 200, "%s/step-%08d.partial-%016llx", dir, SAVED_AFTER, (unsigned long long)session->save.id);
}

/* Before the save begins, by one rank. */
static void prepare(const sherd_session *session, const attempt *try) {
    char path[200], file[240];
    partial_path(session, try->told.dir, path);
    if (try->fault == FAULT_PARTIAL_IS_A_FILE) fclose(fopen(path, "w"));
    if (try->fault != FAULT_ONE_RANK) return;
    snprintf(file, sizeof file, "%s/rank-00001.bin", path);
    mkdir(path, 0777);
    mkdir(file, 0777);
}

/* Once both ranks' files are there, by one of them. */
static void disturb(const sherd_session *session, const attempt *try) {
    char path[200], file[240], command[500];
    partial_path(session, try->told.dir, path);
    for (int r = 0; r < 2; r++) {
        snprintf(file, sizeof file, "%s/rank-%05d.bin", path, r);
        for (int i = 0; access(file, F_OK) != 0 && i < 2000; i++) usleep(1000);
    }
    snprintf(command, sizeof command, "rm -rf %s%s%s", path, try->fault == FAULT_REPLACED ? " && mkdir " : "",
             try->fault == FAULT_REPLACED ? path : "");
    if (system(command) != 0) abort();
}

static int save_in_vain(void *user, const sherd_options *options) {
    attempt *try = user;
    sherd_session *session;
    char parent[100];
    snprintf(parent, sizeof parent, "%s%s", try->told.dir, try->fault == FAULT_PARENT_IS_A_FILE ? "/file" : "");
    EXPECT(sherd_session_create(options, toy_model(), &session) == SHERD_OK);
    EXPECT(sherd_session_fill(session, toy_fill, NULL) == SHERD_OK);
    int line = take_steps(session, options, 1, &try->told);
    EXPECT(line || sherd_session_save(session, try->told.dir, NULL) == SHERD_OK);
    if (!line) line = take_steps(session, options, SAVED_AFTER, &try->told);
    if (line) return line;
    if (options->rank == 0) prepare(session, try);
    EXPECT(shd_session_vote(session, SHERD_OK, "") == SHERD_OK); /* a barrier: nobody begins before */
    EXPECT(sherd_session_save_begin(session, parent, try->fault == FAULT_NOTE ? "[1]" : NULL) == SHERD_OK);
    if (options->rank == 0 && (try->fault == FAULT_VANISHED || try->fault == FAULT_REPLACED)) disturb(session, try);
    if (!try->waits) line = take_steps(session, options, STEPS, &try->told);
    if (line) return line;
    sherd_status status = sherd_session_save_wait(session);
    EXPECT(status == (try->fault == FAULT_NOTE ? SHERD_DATA : SHERD_IO));
    sherd_save_result result;
    sherd_session_save_result(session, &result);
    EXPECT(result.status == status && strcmp(result.cause, sherd_last_error()) == 0);
    EXPECT(result.count == 2 && result.step == SAVED_AFTER);
    EXPECT(strstr(result.cause, try->fault == FAULT_NOTE ? "the note" : "step-0000000"));
    bool foreign = options->rank != (try->fault == FAULT_ONE_RANK);
    if (try->fault != FAULT_VANISHED && try->fault != FAULT_REPLACED)
        EXPECT((strstr(result.cause, try->fault == FAULT_ONE_RANK ? "rank 1: " : "rank 0: ") != NULL) == foreign);
    line = take_steps(session, options, STEPS, &try->told);
    EXPECT(line || sherd_session_save(session, try->told.dir, NULL) == SHERD_OK);
    sherd_session_destroy(session);
    return line;
}

static void check_fault(save_fault fault, bool waits, int stage) {
    char dir[40], whole_dir[40], file[60];
    make_folder(dir);
    make_folder(whole_dir);
    snprintf(file, sizeof file, "%s/file", dir);
    if (fault == FAULT_PARENT_IS_A_FILE) fclose(fopen(file, "w"));
    story whole = {.dir = whole_dir};
    attempt try = {.told = {.dir = dir}, .fault = fault, .waits = waits};
    const sherd_options options = story_options(2, stage, SHERD_GATHER_AUTO);
    cr_assert_eq(run_ranks(2, &options, train_and_save, &whole), 0);
    int line = run_ranks(2, &options, save_in_vain, &try);
    cr_assert_eq(line, 0, "fault %d: line %d", (int)fault, line);
    cr_assert(is_same_story(&whole, &try.told), "fault %d changes the training", (int)fault);
    cr_assert(count_entries(dir, "step-00000001") == 1 && count_entries(dir, "step-00000004") == 1);
    bool foreign = fault == FAULT_PARTIAL_IS_A_FILE || fault == FAULT_ONE_RANK;
    cr_assert_eq(count_entries(dir, "step-00000002") > 0, foreign, "fault %d: only what is foreign stays", (int)fault);
    remove_folder(dir);
    remove_folder(whole_dir);
}

Test(save_faults, are_told_on_all_ranks_and_training_goes_on, .timeout = 120) {
    for (save_fault fault = FAULT_PARENT_IS_A_FILE; fault < FAULTS; fault++)
        for (int waits = 0; waits <= 1; waits++) check_fault(fault, waits, fault % 4);
}
