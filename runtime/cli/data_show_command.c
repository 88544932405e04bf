/* `sherd data show`: what a token file holds; data_show_arrays.c has array files. */
#include "io/array_file.h"
#include "io/token_file.h"
#include "runtime/cli/commands.h"
#include "runtime/cli/data_show_arrays.h"
#include "runtime/cli/verdict.h"

#include <ctype.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

enum { OPTION_FORMAT = 256, OPTION_TOKENS, OPTION_JSON, MOST_TOKENS = 65536, BYTES_END = 256 };

static const shd_option options[] = {
    {OPTION_FORMAT, "format", "FORMAT",
     "Of tokens: auto, llmc, u16, u32 or text, as data.format in a job (default auto)."},
    {OPTION_TOKENS, "tokens", "N", "Show the first N tokens, or numbers of each array (default 16)."},
    {OPTION_JSON, "json", NULL, "One JSON object instead of a table."},
    {0},
};

typedef struct show_request {
    const char *path;
    shd_job_format format;
    int64_t token_count;
    bool json;
} show_request;

/* What was found; `first` are the first ids. */
typedef struct shown {
    const shd_token_file *file;
    shd_token_scan scan;
    int64_t first_count;
    uint32_t first[MOST_TOKENS];
} shown;

static const char *format_word(shd_job_format format) { return shd_job_word("data.format", (int32_t)format); }

static bool take_format(const char *word, shd_job_format *out) {
    for (int32_t i = 0; *shd_job_word("data.format", i); i++)
        if (strcmp(word, shd_job_word("data.format", i)) == 0) {
            *out = (shd_job_format)i;
            return true;
        }
    return false;
}

/* --- output ------------------------------------------------------------------------------------------------------- */

static int print_json(const shown *found) {
    const shd_token_file *file = found->file;
    char checksum[20];
    snprintf(checksum, sizeof checksum, "%016" PRIx64, found->scan.checksum);
    json_t *first = json_array();
    for (int64_t i = 0; i < found->first_count; i++) json_array_append_new(first, json_integer(found->first[i]));
    bool any = file->token_count > 0;
    json_t *json =
        json_pack("{s:s, s:s, s:I, s:I, s:o, s:o, s:s, s:b, s:o}", "file", file->file.path, "format",
                  format_word(file->format), "bytes", (json_int_t)file->file.bytes, "tokens",
                  (json_int_t)file->token_count, "lowest_id", any ? json_integer(found->scan.lowest) : json_null(),
                  "highest_id", any ? json_integer(found->scan.highest) : json_null(), "checksum", checksum,
                  "checksum_stated", (int)file->has_checksum, "first_tokens", first);
    int written = json ? json_dumpf(json, stdout, JSON_INDENT(2)) : -1;
    json_decref(json);
    if (written != 0) {
        shd_say_error("cannot write JSON");
        return SHD_EXIT_FAILED;
    }
    putchar('\n');
    return SHD_EXIT_DONE;
}

/* The tokens as bytes, where all of them are. */
static void print_as_text(const shown *found) {
    for (int64_t i = 0; i < found->first_count; i++)
        if (found->first[i] >= BYTES_END) return;
    printf("as bytes   '");
    for (int64_t i = 0; i < found->first_count; i++) {
        int byte = (int)found->first[i];
        if (byte == '\n')
            printf("\\n");
        else if (byte == '\\' || byte == '\'')
            printf("\\%c", byte);
        else if (byte < BYTES_END / 2 && isprint(byte))
            putchar(byte);
        else
            printf("\\x%02x", (unsigned)byte);
    }
    printf("'\n");
}

static int print_table(const shown *found) {
    const shd_token_file *file = found->file;
    printf("file       %s\nformat     %s\nbytes      %" PRId64 "\ntokens     %" PRId64 "\n", file->file.path,
           format_word(file->format), file->file.bytes, file->token_count);
    if (file->token_count > 0)
        printf("ids        %" PRIu32 " to %" PRIu32 "\n", found->scan.lowest, found->scan.highest);
    printf("checksum   %016" PRIx64 " (%s)\n", found->scan.checksum,
           file->has_checksum ? "as its header states" : "none is stated");
    if (found->first_count == 0) return SHD_EXIT_DONE;
    printf("first      ");
    for (int64_t i = 0; i < found->first_count; i++) printf("%s%" PRIu32, i ? " " : "", found->first[i]);
    putchar('\n');
    print_as_text(found);
    return SHD_EXIT_DONE;
}

/* --- the command -------------------------------------------------------------------------------------------------- */

static int show(const show_request *request, shd_token_file *file) {
    shown found = {.file = file, .first_count = request->token_count};
    if (found.first_count > file->token_count) found.first_count = file->token_count;
    sherd_status status = shd_token_file_read(file, 0, found.first_count, found.first);
    if (status == SHERD_OK) status = shd_token_file_scan(file, &found.scan);
    if (status != SHERD_OK) {
        shd_say_error("%s", sherd_last_error());
        return shd_status_exit_code(status);
    }
    if (file->has_checksum && file->checksum != found.scan.checksum) {
        shd_say_error("%s: damaged: its header states the checksum %016" PRIx64 ", and its tokens have %016" PRIx64,
                      file->file.path, file->checksum, found.scan.checksum);
        return SHD_EXIT_DATA;
    }
    return request->json ? print_json(&found) : print_table(&found);
}

static int run(const shd_command *command, int argc, char **argv) {
    show_request request = {.token_count = 16};
    shd_arguments arguments = shd_arguments_begin(command, argc, argv);
    for (int id; (id = shd_arguments_next(&arguments)) != SHD_ARGUMENT_END;) switch (id) {
        case SHD_ARGUMENT_STOP: return arguments.exit_code;
        case OPTION_JSON: request.json = true; break;
        case OPTION_FORMAT:
            if (!take_format(arguments.value, &request.format))
                return shd_usage_error(command, "--format %.40s: take auto, llmc, u16, u32 or text", arguments.value);
            break;
        case OPTION_TOKENS:
            if (!shd_parse_integer(arguments.value, 0, MOST_TOKENS, &request.token_count))
                return shd_usage_error(command, "--tokens %.40s: take a whole number from 0 to %d", arguments.value,
                                       MOST_TOKENS);
            break;
        default:
            if (request.path)
                return shd_usage_error(command, "one file at a time: %s is a second one", arguments.value);
            request.path = arguments.value;
        }
    if (!request.path) return shd_usage_error(command, "no file is given");
    if (request.format == SHD_FORMAT_AUTO && shd_array_file_is(request.path))
        return shd_show_arrays(request.path, request.token_count, request.json);
    shd_token_file file;
    sherd_status status = shd_token_file_open(request.path, request.format, NULL, &file);
    if (status != SHERD_OK) {
        shd_say_error("%s", sherd_last_error());
        return shd_status_exit_code(status);
    }
    int code = show(&request, &file);
    shd_token_file_close(&file);
    return code;
}

const shd_command shd_command_data_show = {
    .name = "data show",
    .summary = "say what a file of tokens or arrays holds",
    .usage = "FILE [--format FORMAT] [--tokens N] [--json]",
    .about =
        "Reads the whole FILE and prints its format, the number of tokens, the range of their ids (a model's\n"
        "vocab_size must be above the highest), a checksum of the tokens (XXH3, 64 bits) and the first tokens.\n"
        "A file whose header states another checksum is refused.\n\n"
        "Of a .npy file, and of every tensor of a safetensors file: type, shape, the range of its numbers and the\n"
        "first of them.",
    .options = options,
    .examples = "sherd data show tokens.bin\n"
                "sherd data show ids.u32 --tokens 100 --json\n"
                "sherd data show images.npy",
    .exit_codes = "0 shown; 1 failed; 2 bad usage; 3 the file is none of tokens or arrays, or is damaged",
    .run = run,
};
