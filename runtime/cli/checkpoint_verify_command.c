/* `sherd checkpoint verify`: reads every byte of a checkpoint, or of all in a folder, and names what is damaged. */
#include "io/checkpoint_folder.h"
#include "io/checkpoint_hold.h"
#include "io/checkpoint_pick.h"
#include "io/checkpoint_reader.h"
#include "io/file.h"
#include "runtime/cli/advance_line.h"
#include "runtime/cli/commands.h"
#include "runtime/cli/progress.h"
#include "runtime/cli/verdict.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { OPTION_JSON = 256 };

static const shd_option options[] = {
    {OPTION_JSON, "json", NULL, "Print one JSON object."},
    {0},
};

/* One run of the command. */
typedef struct verify_call {
    bool json;
    json_t *checkpoints; /* with json */
    json_t *damage;      /* of the checkpoint that is being read */
    shd_advance_line line;
    int64_t total_bytes;
    int64_t count, damaged_count, piece_count; /* checkpoints; those with damage; pieces of it */
    sherd_status unread;                       /* why the first one that nothing can be said of could not be read */
} verify_call;

static double now_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void add_damage(verify_call *call, const shd_damage *damage) {
    call->piece_count++;
    shd_advance_line_end(&call->line);
    if (!call->json) {
        printf("%s\n", damage->cause);
        return;
    }
    json_t *piece = json_pack("{s:s, s:s}", "file", damage->path, "cause", damage->cause);
    if (piece && damage->tensor)
        json_object_update_new(piece,
                               json_pack("{s:s, s:s, s:I, s:I}", "tensor", damage->tensor, "state", damage->state,
                                         "first", (json_int_t)damage->first, "count", (json_int_t)damage->count));
    json_array_append_new(call->damage, piece);
}

/* A shd_verify_report. */
static void report(void *user, const shd_damage *damage, int64_t done_bytes, int64_t total_bytes) {
    verify_call *call = user;
    call->total_bytes = total_bytes;
    if (damage) add_damage(call, damage);
    (void)shd_advance_tell(&call->line.advance, done_bytes, total_bytes);
}

/* Of a checkpoint that has been read. */
static void conclude(verify_call *call, const char *path, int64_t damaged, double seconds) {
    char bytes[16], rate[16];
    call->count++;
    call->damaged_count += damaged > 0;
    if (call->json) {
        json_array_append_new(call->checkpoints,
                              json_pack("{s:s, s:b, s:I, s:f, s:O}", "path", path, "good", damaged == 0, "bytes",
                                        (json_int_t)call->total_bytes, "seconds", seconds, "damage", call->damage));
        return;
    }
    shd_bytes_text((double)call->total_bytes, bytes);
    shd_bytes_text(seconds > 0 ? (double)call->total_bytes / seconds : 0, rate);
    if (damaged == 0)
        printf("%s: good: all of %s read in %.1f s, %s/s\n", path, bytes, seconds, rate);
    else
        printf("%s: damaged: %" PRId64 " piece%s\n", path, damaged, damaged == 1 ? "" : "s");
    fflush(stdout);
}

/* Reads one checkpoint. */
static void verify_one(verify_call *call, const char *path) {
    const double start_s = now_s();
    int64_t damaged = 0;
    call->damage = json_array();
    call->total_bytes = 0;
    shd_advance_line_init(&call->line, "reading");
    sherd_status status = shd_checkpoint_verify(path, report, call, &damaged);
    shd_advance_line_end(&call->line);
    if (status == SHERD_OK) {
        conclude(call, path, damaged, now_s() - start_s);
    } else {
        shd_say_error("%s", sherd_last_error());
        if (call->unread == SHERD_OK) call->unread = status;
    }
    json_decref(call->damage);
}

static bool is_checkpoint(const char *path) {
    char manifest[4096];
    snprintf(manifest, sizeof manifest, "%s/manifest.json", path);
    return access(manifest, F_OK) == 0;
}

/* Everything in a folder that has, or should have, the name of a complete checkpoint. */
static sherd_status verify_folder(verify_call *call, const char *folder) {
    shd_checkpoint_list list = {0};
    sherd_status status = shd_checkpoint_list_folders(folder, &list);
    for (int64_t i = 0; i < list.count; i++) {
        const shd_checkpoint_entry *entry = &list.entries[i];
        if (!entry->is_step) continue;
        const int held = shd_folder_hold(entry->path);
        const bool gone = held < 0 && errno == ENOENT; /* a job has let it go */
        if (!gone) verify_one(call, entry->path);
        shd_file_close(held);
    }
    shd_checkpoint_list_release(&list);
    if (status != SHERD_OK || call->count > 0 || call->unread != SHERD_OK) return status;
    /* None was there, which this says, or a job has let all of them go since: then it has a newer one. */
    shd_checkpoint *newest;
    status = shd_checkpoint_pick(folder, &newest);
    if (status != SHERD_OK) return status;
    verify_one(call, shd_checkpoint_path(newest));
    shd_checkpoint_close(newest);
    return SHERD_OK;
}

static void print_sum(const verify_call *call) {
    if (call->json) {
        json_t *object = json_pack("{s:b, s:I, s:I, s:O}", "good", call->damaged_count == 0 && call->unread == SHERD_OK,
                                   "damaged_checkpoints", (json_int_t)call->damaged_count, "damaged_pieces",
                                   (json_int_t)call->piece_count, "checkpoints", call->checkpoints);
        char *text = json_dumps(object, JSON_INDENT(2));
        printf("%s\n", text ? text : "{}");
        free(text);
        json_decref(object);
    } else if (call->damaged_count > 0) {
        printf("%" PRId64 " of %" PRId64 " checkpoint%s %s damaged: %" PRId64 " piece%s\n", call->damaged_count,
               call->count, call->count == 1 ? "" : "s", call->damaged_count == 1 ? "is" : "are", call->piece_count,
               call->piece_count == 1 ? "" : "s");
    }
}

static int verify(const char *path, bool json) {
    verify_call call = {.json = json, .checkpoints = json_array()};
    sherd_status status = SHERD_OK;
    if (is_checkpoint(path))
        verify_one(&call, path);
    else
        status = verify_folder(&call, path);
    if (status == SHERD_OK)
        print_sum(&call);
    else
        shd_say_error("%s", sherd_last_error());
    json_decref(call.checkpoints);
    if (status != SHERD_OK) return shd_status_exit_code(status);
    return call.damaged_count > 0 ? SHD_EXIT_DATA : shd_status_exit_code(call.unread);
}

static int run(const shd_command *command, int argc, char **argv) {
    const char *path = NULL;
    bool json = false;
    shd_arguments arguments = shd_arguments_begin(command, argc, argv);
    for (int id; (id = shd_arguments_next(&arguments)) != SHD_ARGUMENT_END;) switch (id) {
        case OPTION_JSON: json = true; break;
        case SHD_ARGUMENT_OPERAND:
            if (path) return shd_usage_error(command, "one folder at a time: %s is a second one", arguments.value);
            path = arguments.value;
            break;
        default: return arguments.exit_code;
        }
    if (!path) return shd_usage_error(command, "no checkpoint is given");
    return verify(path, json);
}

const shd_command shd_command_checkpoint_verify = {
    .name = "checkpoint verify",
    .summary = "read all of a checkpoint, or of a folder of them, and name what is damaged",
    .usage = "CHECKPOINT|DIR [--json]",
    .about =
        "Reads every byte of CHECKPOINT, or of every checkpoint in DIR, checks it against its checksum, and goes on\n"
        "after damage. Prints a line for every piece that cannot be used: the file, and of a block the tensor, the\n"
        "state and the elements; then a line for every checkpoint. One that misses files, or was changed by hand,\n"
        "is damaged too. Folders .partial and .aside are not looked at.",
    .options = options,
    .examples = "sherd checkpoint verify runs/gpt2/checkpoints\n"
                "sherd checkpoint verify runs/gpt2/checkpoints/step-00001200 --json",
    .exit_codes =
        "0 all good; 1 it could not be read on; 2 bad usage; 3 something is damaged, or there is no checkpoint",
    .run = run,
};
