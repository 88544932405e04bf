/* `sherd debug`: reads the dumps that the ranks of a job have left and says which rank the others missed. */
#include "runtime/cli/commands.h"
#include "runtime/cli/verdict.h"
#include "runtime/watch/dump.h"
#include "runtime/watch/judgement.h"
#include "runtime/watch/living.h"

#include <jansson.h>
#include <sherd/status.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OPTION_JSON = 256, OPTION_OF };

static const shd_option options[] = {
    {OPTION_OF, "of", "PID",
     "First take the dumps, into the new folder DUMP_DIR, of a job that runs: PID is that of\n"
     "the `sherd train` which started its ranks. The job goes on undisturbed."},
    {OPTION_JSON, "json", NULL, "One JSON object instead of words."},
    {0},
};

static const char *alarm_of(const shd_dumps *dumps, int32_t *by) {
    for (int32_t r = 0; r < dumps->world_size; r++)
        if (dumps->ranks[r].there && dumps->ranks[r].alarm_rank >= 0) {
            *by = dumps->ranks[r].alarm_rank;
            return dumps->ranks[r].alarm;
        }
    return NULL;
}

static double since_s(const shd_rank_dump *rank) { return (double)(rank->now_ns - rank->since_ns) / 1e9; }

static const char *writer_of(const shd_rank_dump *rank, char *out, size_t bytes) {
    if (rank->written_by == rank->rank) return "itself";
    if (rank->written_by == SHD_DUMP_VISITOR) return "sherd debug";
    if (rank->written_by < 0) return "the launcher";
    snprintf(out, bytes, "rank %d", rank->written_by);
    return out;
}

static json_t *rank_json(const shd_rank_dump *rank) {
    char by[24];
    if (!rank->there) return json_pack("{s:i, s:b}", "rank", rank->rank, "dump", 0);
    json_t *stack = json_array();
    for (int32_t i = 0; i < rank->frame_count; i++) json_array_append_new(stack, json_string(rank->stack[i]));
    return json_pack("{s:i, s:b, s:s, s:i, s:s, s:s, s:s, s:f, s:s, s:I, s:o}", "rank", rank->rank, "dump", 1, "host",
                     rank->host, "pid", rank->pid, "life", rank->life, "at", rank->where_kind, "where", rank->where,
                     "since_s", since_s(rank), "written_by", writer_of(rank, by, sizeof by), "events",
                     (json_int_t)rank->event_count, "stack", stack);
}

static json_t *or_null(bool known, json_int_t value) { return known ? json_integer(value) : json_null(); }

static int print_json(const shd_dumps *dumps, const shd_judgement *judgement) {
    int32_t by = -1;
    const char *alarm = alarm_of(dumps, &by);
    json_t *ranks = json_array();
    for (int32_t r = 0; r < dumps->world_size; r++) json_array_append_new(ranks, rank_json(&dumps->ranks[r]));
    json_t *json = json_pack(
        "{s:s, s:s, s:o, s:o, s:o, s:s, s:s?, s:o, s:i, s:i, s:o}", "verdict", shd_judgement_text(judgement->kind),
        "text", judgement->text, "rank", or_null(judgement->rank >= 0, judgement->rank), "step",
        or_null(judgement->step >= 0, judgement->step), "collective",
        or_null(judgement->collective >= 0, judgement->collective), "what", judgement->what, "alarm", alarm,
        "alarm_rank", or_null(by >= 0, by), "world_size", dumps->world_size, "dumps", dumps->there, "ranks", ranks);
    char *text = json ? json_dumps(json, JSON_INDENT(2)) : NULL;
    json_decref(json);
    if (!text) {
        shd_say_error("no memory for the verdict as JSON");
        return SHD_EXIT_FAILED;
    }
    puts(text);
    free(text);
    return SHD_EXIT_DONE;
}

/* Of the culprit, if it told. */
static void print_stack(const shd_rank_dump *rank) {
    if (rank->frame_count == 0) return;
    printf("\nrank %d was in\n", rank->rank);
    for (int32_t i = 0; i < rank->frame_count; i++) printf("  %s\n", rank->stack[i]);
}

static void print_words(const shd_dumps *dumps, const shd_judgement *judgement) {
    int32_t by = -1;
    const char *alarm = alarm_of(dumps, &by);
    char writer[24];
    printf("verdict: %s\n\n%s\n", shd_judgement_text(judgement->kind), judgement->text);
    if (alarm) printf("\nwhat rank %d said then: %s\n", by, alarm);
    printf("\n%4s %8s  %-9s %-12s %s\n", "rank", "pid", "state", "dump by", "where, and for how long");
    for (int32_t r = 0; r < dumps->world_size; r++) {
        const shd_rank_dump *rank = &dumps->ranks[r];
        const char *mark = r == judgement->rank ? "  <--" : "";
        if (rank->there)
            printf("%4d %8d  %-9s %-12s %s, %.3g s%s\n", r, rank->pid,
                   rank->written_by == SHD_DUMP_LAUNCHER ? "?" : rank->life, writer_of(rank, writer, sizeof writer),
                   rank->where, since_s(rank), mark);
        else
            printf("%4d %8s  %-9s %-12s%s\n", r, "", "no dump", "", mark);
    }
    if (judgement->rank >= 0 && dumps->ranks[judgement->rank].written_by != judgement->rank)
        print_stack(&dumps->ranks[judgement->rank]);
}

static int run(const shd_command *command, int argc, char **argv) {
    const char *dir = NULL;
    bool json = false;
    int64_t pid = 0;
    shd_arguments arguments = shd_arguments_begin(command, argc, argv);
    for (int id; (id = shd_arguments_next(&arguments)) != SHD_ARGUMENT_END;) switch (id) {
        case SHD_ARGUMENT_STOP: return arguments.exit_code;
        case OPTION_JSON: json = true; break;
        case OPTION_OF:
            if (shd_parse_integer(arguments.value, 1, INT32_MAX, &pid)) break;
            return shd_usage_error(command, "--of %.20s: the number of a process is needed", arguments.value);
        default:
            if (dir) return shd_usage_error(command, "one folder at a time");
            dir = arguments.value;
        }
    if (!dir) return shd_usage_error(command, "no folder of dumps");
    shd_dumps *dumps;
    shd_judgement judgement;
    sherd_status status = pid > 0 ? shd_living_dump(pid, dir) : SHERD_OK;
    if (status == SHERD_OK) status = shd_dumps_load(dir, &dumps);
    if (status != SHERD_OK) {
        shd_say_error("%s", sherd_last_error());
        return status == SHERD_IO ? SHD_EXIT_DATA : shd_status_exit_code(status);
    }
    shd_judgement_make(dumps, &judgement);
    int code = SHD_EXIT_DONE;
    if (json)
        code = print_json(dumps, &judgement);
    else
        print_words(dumps, &judgement);
    shd_dumps_destroy(dumps);
    return code;
}

const shd_command shd_command_debug = {
    .name = "debug",
    .summary = "read the dumps of a job that hung or lost a rank",
    .usage = "[--of PID] DUMP_DIR [--json]",
    .about =
        "When a rank hangs or dies, every rank leaves what it was doing in log.dir/dumps/attempt_K. This reads all of\n"
        "them and says which rank the others missed and what it was doing; or that ranks issued different\n"
        "collectives; or that nothing is wrong. With --of the job may still run: when it is slow, this says whether "
        "one\n"
        "rank is slower than the others. docs/DEBUGGING.md tells more.",
    .options = options,
    .examples = "sherd debug runs/gpt2-tiny/dumps/attempt_0\n"
                "sherd debug runs/gpt2-tiny/dumps/attempt_0 --json\n"
                "sherd debug --of 31950 /tmp/slow",
    .exit_codes = "0 the dumps were read, whatever they say; 2 bad usage, or no such job; 3 no dumps, or damaged ones",
    .run = run,
};
