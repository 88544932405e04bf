/* `sherd data pack`: text as token shards. */
#include "io/token_pack.h"
#include "runtime/cli/commands.h"
#include "runtime/cli/verdict.h"

#include <inttypes.h>
#include <stdio.h>

enum { OPTION_TO = 256, OPTION_SEPARATOR, OPTION_SHARD_TOKENS };

static const shd_option options[] = {
    {OPTION_TO, "to", "FILE", "The token file to write; one that exists is never replaced."},
    {OPTION_SEPARATOR, "document-separator", "ID",
     "Put this token after every TEXT, 0 to 65535; 256 is the first id that is no byte\n(default: nothing)."},
    {OPTION_SHARD_TOKENS, "shard-tokens", "N",
     "Write shards of at most N tokens, FILE-00000, FILE-00001, ... with FILE's ending\n(default: 2147483647, what "
     "the format can hold)."},
    {0},
};

static void say_shard(void *user, const char *path, int64_t token_count, uint64_t checksum) {
    (void)user;
    printf("%s  %" PRId64 " tokens  checksum %016" PRIx64 "\n", path, token_count, checksum);
    fflush(stdout);
}

static int run(const shd_command *command, int argc, char **argv) {
    shd_token_pack pack = {.separator = -1, .shard_tokens = INT32_MAX};
    /* Operands are gathered at the front of argv: it never holds more of them than were read. */
    const char **texts = (const char **)argv;
    shd_arguments arguments = shd_arguments_begin(command, argc, argv);
    for (int id; (id = shd_arguments_next(&arguments)) != SHD_ARGUMENT_END;) switch (id) {
        case SHD_ARGUMENT_STOP: return arguments.exit_code;
        case OPTION_TO: pack.to = arguments.value; break;
        case OPTION_SEPARATOR:
            if (!shd_parse_integer(arguments.value, 0, UINT16_MAX, &pack.separator))
                return shd_usage_error(command, "--document-separator %.40s: take a token id from 0 to %d",
                                       arguments.value, UINT16_MAX);
            break;
        case OPTION_SHARD_TOKENS:
            if (!shd_parse_integer(arguments.value, 1, INT32_MAX, &pack.shard_tokens))
                return shd_usage_error(command, "--shard-tokens %.40s: take a whole number from 1 to %d",
                                       arguments.value, INT32_MAX);
            break;
        default: texts[pack.text_count++] = arguments.value;
        }
    if (pack.text_count == 0) return shd_usage_error(command, "no text is given");
    if (!pack.to) return shd_usage_error(command, "--to FILE is missing");
    pack.texts = texts;
    sherd_status status = shd_token_pack_run(&pack, say_shard, NULL);
    if (status == SHERD_OK) return SHD_EXIT_DONE;
    shd_say_error("%s", sherd_last_error());
    return shd_status_exit_code(status);
}

const shd_command shd_command_data_pack = {
    .name = "data pack",
    .summary = "write text as a token file, bytes as tokens",
    .usage = "TEXT... --to FILE [--document-separator ID] [--shard-tokens N]",
    .about =
        "Writes the bytes of the TEXTs, one after the other, as tokens in llm.c's format (a header of 1024 bytes, "
        "then\n"
        "16 bits a token), with a checksum in the header that 'sherd data show' verifies. Every TEXT is a document:\n"
        "give --document-separator to end each with a token of its own, and the same id as data.document_separator\n"
        "in the job. FILE appears only when it is complete. Prints each file with its tokens and checksum.",
    .options = options,
    .examples = "sherd data pack book.txt --to book.bin\n"
                "sherd data pack letters/*.txt --to letters.bin --document-separator 256 --shard-tokens 100000000",
    .exit_codes = "0 written; 1 FILE cannot be written; 2 bad usage, or FILE exists; 3 a TEXT cannot be read",
    .run = run,
};
