/* `sherd checkpoint list`: what is in a folder of checkpoints, and why it is not complete where it is not. */
#include "io/checkpoint_folder.h"
#include "io/checkpoint_pick.h"
#include "runtime/cli/commands.h"
#include "runtime/cli/progress.h"
#include "runtime/cli/verdict.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { OPTION_JSON = 256 };

static const shd_option options[] = {
    {OPTION_JSON, "json", NULL, "Print one JSON object."},
    {0},
};

/* The complete one with the most steps; -1: there is none. */
static int64_t find_newest(const shd_checkpoint_list *list) {
    int64_t newest = -1;
    for (int64_t i = 0; i < list->count; i++)
        if (list->entries[i].is_step && !list->entries[i].flaw) newest = i;
    return newest;
}

static double ratio_of(const shd_checkpoint_entry *entry) {
    return entry->stored_bytes > 0 ? (double)entry->raw_bytes / (double)entry->stored_bytes : 0;
}

static void print_entry(const shd_checkpoint_entry *entry, bool newest, int width) {
    char saved[32] = "-", size[16] = "-", ratio[16] = "-";
    const time_t at = (time_t)entry->time_s;
    struct tm local;
    if (entry->time_s > 0 && localtime_r(&at, &local)) strftime(saved, sizeof saved, "%Y-%m-%d %H:%M:%S", &local);
    if (entry->stored_bytes > 0) shd_bytes_text((double)entry->stored_bytes, size);
    if (entry->stored_bytes > 0) snprintf(ratio, sizeof ratio, "%.2f", ratio_of(entry));
    printf("%-*s  %-19s  %10s  %5s  %s\n", width, entry->name, saved, size, ratio,
           entry->flaw ? entry->flaw
           : newest    ? "complete, the newest"
                       : "complete");
}

static void print_table(const shd_checkpoint_list *list) {
    const int64_t newest = find_newest(list);
    int width = 4;
    for (int64_t i = 0; i < list->count; i++)
        if ((int)strlen(list->entries[i].name) > width) width = (int)strlen(list->entries[i].name);
    if (list->count > 0) printf("%-*s  %-19s  %10s  %5s  %s\n", width, "name", "saved", "size", "ratio", "state");
    for (int64_t i = 0; i < list->count; i++) print_entry(&list->entries[i], i == newest, width);
}

static json_t *entry_json(const shd_checkpoint_entry *entry, bool newest) {
    json_t *object = json_pack("{s:s, s:s, s:b, s:b, s:s*}", "name", entry->name, "path", entry->path, "complete",
                               !entry->flaw, "newest", (int)newest, "why_not", entry->flaw);
    if (object && entry->step >= 0) json_object_set_new(object, "step", json_integer(entry->step));
    if (!object || entry->time_s <= 0) return object;
    json_object_set_new(object, "time_s", json_integer(entry->time_s));
    json_object_set_new(object, "raw_bytes", json_integer(entry->raw_bytes));
    json_object_set_new(object, "stored_bytes", json_integer(entry->stored_bytes));
    return object;
}

static void print_json(const char *folder, const shd_checkpoint_list *list) {
    const int64_t newest = find_newest(list);
    json_t *entries = json_array();
    for (int64_t i = 0; i < list->count; i++)
        json_array_append_new(entries, entry_json(&list->entries[i], i == newest));
    json_t *object = json_pack("{s:s, s:o}", "dir", folder, "checkpoints", entries);
    char *text = json_dumps(object, JSON_INDENT(2));
    printf("%s\n", text ? text : "{}");
    free(text);
    json_decref(object);
}

static int list(const char *folder, bool json) {
    shd_checkpoint_list found = {0};
    sherd_status status = shd_checkpoint_list_folders(folder, &found);
    shd_checkpoint *itself = NULL;
    if (status == SHERD_OK && found.count == 0) {
        /* Says what the folder is instead. */
        sherd_status picked = shd_checkpoint_pick(folder, &itself);
        if (picked != SHERD_OK && !json) shd_say_error("%s", sherd_last_error());
    }
    if (itself) {
        shd_say_error("%s is a checkpoint itself; list the folder above it, or see 'sherd checkpoint show'", folder);
        shd_checkpoint_close(itself);
        shd_checkpoint_list_release(&found);
        return SHD_EXIT_DATA;
    }
    if (status != SHERD_OK) {
        shd_say_error("%s", sherd_last_error());
        return shd_status_exit_code(status);
    }
    if (json)
        print_json(folder, &found);
    else
        print_table(&found);
    shd_checkpoint_list_release(&found);
    return SHD_EXIT_DONE;
}

static int run(const shd_command *command, int argc, char **argv) {
    const char *folder = NULL;
    bool json = false;
    shd_arguments arguments = shd_arguments_begin(command, argc, argv);
    for (int id; (id = shd_arguments_next(&arguments)) != SHD_ARGUMENT_END;) switch (id) {
        case OPTION_JSON: json = true; break;
        case SHD_ARGUMENT_OPERAND:
            if (folder) return shd_usage_error(command, "one folder at a time: %s is a second one", arguments.value);
            folder = arguments.value;
            break;
        default: return arguments.exit_code;
        }
    if (!folder) return shd_usage_error(command, "no folder of checkpoints is given");
    return list(folder, json);
}

const shd_command shd_command_checkpoint_list = {
    .name = "checkpoint list",
    .summary = "list the checkpoints in a folder",
    .usage = "DIR [--json]",
    .about =
        "Lists every folder step-* in DIR, by step: when it was saved, how large it is, what compression saved\n"
        "(bytes of values ÷ bytes of files), and whether it is complete, or why not. A folder .partial is being\n"
        "written, or was left by a job that was killed; one .aside is complete, and of a branch that a run left by\n"
        "resuming from an older step. Only sizes are looked at: 'sherd checkpoint verify' reads everything.",
    .options = options,
    .examples = "sherd checkpoint list runs/gpt2/checkpoints\n"
                "sherd checkpoint list runs/gpt2/checkpoints --json | jq -r '.checkpoints[] | select(.newest) | .path'",
    .exit_codes = "0 listed; 1 DIR cannot be read; 2 bad usage; 3 there is no DIR",
    .run = run,
};
