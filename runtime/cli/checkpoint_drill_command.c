/* `sherd checkpoint drill`: restores the newest checkpoint as a resume would, in processes of its own, and evaluates. */
#include "io/checkpoint_pick.h"
#include "runtime/cli/cause.h"
#include "runtime/cli/commands.h"
#include "runtime/cli/verdict.h"
#include "runtime/train/drill.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { OPTION_SEQUENCES = 256, OPTION_JSON, OPTION_AS_RANK, PATH_BYTES = 4096, TRIES = 8 };

static const shd_option options[] = {
    {'n', "ranks", "RANKS", "Processes to restore on (default: as many as the job had); any number will do."},
    {OPTION_SEQUENCES, "sequences", "N",
     "Evaluate on so many sequences or samples (default: of validation data as many as the job\n"
     "evaluates, of training data a global batch)."},
    {OPTION_JSON, "json", NULL, "Print the verdict as one JSON object."},
    {OPTION_AS_RANK, "as-rank", "PLACE", NULL},
    {0},
};

typedef struct drill_call {
    shd_drill drill;
    const char *path; /* as given */
    const char *as_rank;
    bool json;
    double start_s;
} drill_call;

static double now_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static const char *data_text(shd_drill_data data) {
    static const char *const texts[] = {[SHD_DRILL_VALIDATION] = "data.validation",
                                        [SHD_DRILL_TRAINING] = "data.train",
                                        [SHD_DRILL_MADE_UP] = "made-up tokens",
                                        [SHD_DRILL_NO_DATA] = "nothing"};
    return texts[data];
}

/* --- a rank ------------------------------------------------------------------------------------------------------- */

/* What the launcher tells its ranks besides the checkpoint, and rank 0 tells it: "%d:%d:%s" and a line in a file. */
static bool parse_place(const char *text, shd_drill *drill, int *causes) {
    int data = 0, used = 0;
    if (sscanf(text, "%d:%d:%n", &data, causes, &used) != 2 || used == 0) return false;
    drill->data = (shd_drill_data)data;
    drill->dir = text + used;
    return data >= SHD_DRILL_VALIDATION && data <= SHD_DRILL_NO_DATA;
}

static bool write_result(const char *dir, const shd_drill_result *result) {
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s/result", dir);
    FILE *file = fopen(path, "w");
    if (!file) return false;
    fprintf(file, "%" PRId64 " %" PRId64 " %a\n", result->step, result->target_count, result->loss);
    return fclose(file) == 0;
}

static bool read_result(const char *dir, shd_drill_result *result) {
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s/result", dir);
    FILE *file = fopen(path, "r");
    if (!file) return false;
    bool good = fscanf(file, "%" SCNd64 " %" SCNd64 " %la", &result->step, &result->target_count, &result->loss) == 3;
    fclose(file);
    return good;
}

static int run_rank(drill_call *call) {
    sherd_options place = SHERD_OPTIONS_INIT;
    shd_drill_result result;
    int causes = -1;
    if (!parse_place(call->as_rank, &call->drill, &causes)) return SHD_EXIT_USAGE;
    call->drill.checkpoint = call->path;
    sherd_status status = sherd_options_from_env(&place);
    if (status == SHERD_OK) status = shd_drill_run(&call->drill, &place, &result);
    if (status != SHERD_OK) shd_causes_add(causes, place.rank, status, sherd_last_error());
    if (status == SHERD_OK && place.rank == 0 && !write_result(call->drill.dir, &result)) return SHD_EXIT_FAILED;
    return shd_status_exit_code(status);
}

/* --- the launcher ------------------------------------------------------------------------------------------------- */

static void say_restored(const drill_call *call, const shd_drill_result *result) {
    const shd_drill *drill = &call->drill;
    const double seconds = now_s() - call->start_s;
    if (call->json) {
        json_t *verdict =
            json_pack("{s:b, s:s, s:I, s:i, s:s, s:I, s:f}", "restored", 1, "checkpoint", drill->checkpoint, "step",
                      (json_int_t)result->step, "ranks", (int)drill->ranks, "data", data_text(drill->data), "targets",
                      (json_int_t)result->target_count, "seconds", seconds);
        if (isfinite(result->loss)) json_object_set_new(verdict, "loss", json_real(result->loss));
        char *text = json_dumps(verdict, JSON_REAL_PRECISION(17));
        printf("%s\n", text ? text : "{}");
        free(text);
        json_decref(verdict);
        return;
    }
    printf("%s: restored on %d rank%s: step %" PRId64 ", ", drill->checkpoint, (int)drill->ranks,
           drill->ranks == 1 ? "" : "s", result->step);
    if (result->target_count > 0)
        printf("loss %.6g over %" PRId64 " targets of %s, ", result->loss, result->target_count,
               data_text(drill->data));
    else
        printf("not evaluated, as its data are not here, ");
    printf("%.1f s\n", seconds);
}

static int say_failed(const drill_call *call, sherd_status status, const char *cause) {
    if (call->json) {
        json_t *verdict = json_pack("{s:b, s:s, s:s}", "restored", 0, "checkpoint",
                                    call->drill.checkpoint ? call->drill.checkpoint : call->path, "cause", cause);
        char *text = json_dumps(verdict, 0);
        printf("%s\n", text ? text : "{}");
        free(text);
        json_decref(verdict);
    } else {
        /* A cause about the checkpoint begins with its path. */
        const char *about = call->drill.checkpoint ? call->drill.checkpoint : call->path;
        if (strncmp(cause, about, strlen(about)))
            shd_say_error("not restored: %s: %s", about, cause);
        else
            shd_say_error("not restored: %s", cause);
    }
    int code = shd_status_exit_code(status);
    return code == SHD_EXIT_RANK_LOST ? SHD_EXIT_FAILED : code;
}

/* Why the ranks failed. */
static sherd_status find_cause(const shd_launch *launch, shd_launch_report *report, int causes, shd_cause *cause) {
    if (shd_causes_first(causes, cause) && !report->signal) return cause->status;
    shd_report_say(launch, report);
    snprintf(cause->text, sizeof cause->text, report->stopped ? "stopped" : "a rank was lost");
    return SHERD_PEER;
}

static sherd_status launch_ranks(drill_call *call, shd_drill_result *result, shd_cause *cause) {
    char place[PATH_BYTES + 64], ranks[24], sequences[48];
    const int causes = shd_causes_create();
    snprintf(place, sizeof place, "--as-rank=%d:%d:%s", (int)call->drill.data, causes, call->drill.dir);
    snprintf(ranks, sizeof ranks, "-n%d", (int)call->drill.ranks);
    snprintf(sequences, sizeof sequences, "--sequences=%" PRId64, call->drill.sequences);
    char *argv[] = {(char[]){"sherd"},
                    (char[]){"checkpoint"},
                    (char[]){"drill"},
                    place,
                    ranks,
                    sequences,
                    (char *)call->drill.checkpoint,
                    NULL};
    shd_launch launch = SHD_LAUNCH_INIT;
    launch.program = "/proc/self/exe";
    launch.argv = argv;
    launch.rank_count = call->drill.ranks;
    launch.peer_failed_code = SHD_EXIT_RANK_LOST;
    shd_launch_report report;
    sherd_status status = shd_launch_run(&launch, &report);
    if (status != SHERD_OK)
        snprintf(cause->text, sizeof cause->text, "%s", sherd_last_error());
    else if (report.failed_rank >= 0 || report.stopped)
        status = find_cause(&launch, &report, causes, cause);
    else if (!read_result(call->drill.dir, result))
        status = SHERD_IO, snprintf(cause->text, sizeof cause->text, "%s/result cannot be read", call->drill.dir);
    if (causes >= 0) close(causes);
    return status;
}

static void remove_own(const char *dir) {
    static const char *const names[] = {"result", "tokens.u32"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[PATH_BYTES];
        snprintf(path, sizeof path, "%s/%s", dir, names[i]);
        unlink(path);
    }
    rmdir(dir);
}

/* Restores one checkpoint. *gone: it is not there any more, as a running job has let it go. */
static int drill_one(drill_call *call, const shd_checkpoint *checkpoint, bool *gone) {
    char dir[PATH_BYTES];
    const char *temporary = getenv("TMPDIR");
    shd_cause cause = {.text = ""};
    shd_drill_result result;
    struct stat about;
    snprintf(dir, sizeof dir, "%s/sherd-drill-XXXXXX", temporary && *temporary ? temporary : "/tmp");
    if (!mkdtemp(dir)) return say_failed(call, SHERD_IO, "there is no room for a folder of its own in TMPDIR or /tmp");
    call->drill.dir = dir;
    call->drill.checkpoint = shd_checkpoint_path(checkpoint);
    const uint64_t before = shd_drill_fingerprint(call->drill.checkpoint);
    sherd_status status = shd_drill_prepare(&call->drill);
    if (status == SHERD_OK)
        status = launch_ranks(call, &result, &cause);
    else
        snprintf(cause.text, sizeof cause.text, "%s", sherd_last_error());
    remove_own(dir);
    *gone = status != SHERD_OK && stat(call->drill.checkpoint, &about) != 0;
    if (*gone) return SHD_EXIT_DATA;
    if (status == SHERD_OK && result.step != shd_checkpoint_content(checkpoint)->step)
        status = SHERD_INTERNAL, snprintf(cause.text, sizeof cause.text, "it came back at step %" PRId64, result.step);
    /* The job may have let it go by now: it was restored all the same. */
    const uint64_t after = shd_drill_fingerprint(call->drill.checkpoint);
    if (status == SHERD_OK && after != before && after != 0)
        status = SHERD_DATA, snprintf(cause.text, sizeof cause.text, "its files have changed meanwhile");
    if (status != SHERD_OK) return say_failed(call, status, cause.text);
    say_restored(call, &result);
    return SHD_EXIT_DONE;
}

static int drill(drill_call *call) {
    const int32_t ranks = call->drill.ranks;
    call->start_s = now_s();
    bool gone = true;
    int code = SHD_EXIT_DATA;
    for (int i = 0; i < TRIES && gone; i++) {
        shd_checkpoint *checkpoint;
        call->drill.checkpoint = NULL;
        call->drill.ranks = ranks;
        sherd_status status = shd_checkpoint_pick(call->path, &checkpoint);
        if (status != SHERD_OK) return say_failed(call, status, sherd_last_error());
        code = drill_one(call, checkpoint, &gone);
        if (gone && i + 1 == TRIES) say_failed(call, SHERD_DATA, "it was removed meanwhile");
        shd_checkpoint_close(checkpoint);
    }
    return code;
}

static bool take_number(const shd_command *command, const char *option, const char *value, int64_t high, int64_t *out) {
    if (shd_parse_integer(value, strcmp(option, "-n") ? 0 : 1, high, out)) return true;
    shd_usage_error(command, "%s %.40s: a whole number up to %" PRId64 " is needed", option, value, high);
    return false;
}

static int run(const shd_command *command, int argc, char **argv) {
    drill_call call = {0};
    int64_t ranks = 0;
    bool good = true;
    shd_arguments arguments = shd_arguments_begin(command, argc, argv);
    for (int id; good && (id = shd_arguments_next(&arguments)) != SHD_ARGUMENT_END;) switch (id) {
        case 'n': good = take_number(command, "-n", arguments.value, 64, &ranks); break;
        case OPTION_SEQUENCES:
            good = take_number(command, "--sequences", arguments.value, INT32_MAX, &call.drill.sequences);
            break;
        case OPTION_JSON: call.json = true; break;
        case OPTION_AS_RANK: call.as_rank = arguments.value; break;
        case SHD_ARGUMENT_OPERAND:
            if (call.path) return shd_usage_error(command, "one folder at a time: %s is a second one", arguments.value);
            call.path = arguments.value;
            break;
        default: return arguments.exit_code;
        }
    if (!good) return SHD_EXIT_USAGE;
    if (!call.path) return shd_usage_error(command, "no folder of checkpoints is given");
    call.drill.ranks = (int32_t)ranks;
    return call.as_rank ? run_rank(&call) : drill(&call);
}

const shd_command shd_command_checkpoint_drill = {
    .name = "checkpoint drill",
    .summary = "restore the newest checkpoint in processes of its own, and evaluate",
    .usage = "DIR [-n RANKS] [--sequences N] [--json]",
    .about =
        "Takes the newest complete checkpoint in DIR (or DIR itself, where it is one), makes the job that saved it on\n"
        "RANKS processes of this host, loads everything as a resume would, checksums included, and runs forward: over\n"
        "the job's validation data if they are here, else over a batch of training data, else over made-up tokens.\n"
        "Over validation data the loss has the bits that the job's own validation had after that step.\n"
        "It prints one line, writes nowhere but in a temporary folder, and keeps a job from nothing but removing the\n"
        "checkpoint meanwhile, so that cron may run it beside the job. It needs the memory that training needs.",
    .options = options,
    .examples = "sherd checkpoint drill runs/gpt2/checkpoints\n"
                "sherd checkpoint drill runs/gpt2/checkpoints -n 1 --sequences 64 --json",
    .exit_codes = "0 restored; 1 it could not be tried, or failed on the way; 2 bad usage; 3 no checkpoint, or damaged",
    .run = run,
};
