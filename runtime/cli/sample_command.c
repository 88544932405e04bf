/* `sherd sample`: texts from a checkpoint, as bytes or as token ids. */
#include "io/tokens.h"
#include "runtime/cli/commands.h"
#include "runtime/cli/verdict.h"
#include "runtime/train/characters.h"
#include "runtime/train/generate.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    OPTION_PROMPT = 256,
    OPTION_PROMPT_FILE,
    OPTION_IDS,
    OPTION_PRINT_IDS,
    OPTION_TOKENS,
    OPTION_COUNT,
    OPTION_TEMPERATURE,
    OPTION_TOP_K,
    OPTION_TOP_P,
    OPTION_SEED,
    OPTION_END_TOKEN,
    OPTION_NO_CACHE,
    OPTION_THREADS,
    MOST_TOKENS = 1 << 24
};

static const shd_option options[] = {
    {OPTION_PROMPT, "prompt", "TEXT", "What a text begins with (default: a newline, which is not printed)."},
    {OPTION_PROMPT_FILE, "prompt-file", "FILE", "The same from a file, every byte of it; - is standard input."},
    {OPTION_IDS, "ids", "IDS", "The same as token ids: \"1 2 3\". For any vocabulary."},
    {OPTION_PRINT_IDS, "print-ids", NULL,
     "Print token ids, a line for each text, prompt included. For any vocabulary."},
    {OPTION_TOKENS, "tokens", "N", "Tokens to generate, at most (default 256)."},
    {OPTION_COUNT, "count", "N", "Texts to make, each with random numbers of its own (default 1)."},
    {OPTION_TEMPERATURE, "temperature", "T", "Below 1 plays safe, 0 always takes the likeliest token (default 0.8)."},
    {OPTION_TOP_K, "top-k", "K", "Draw from the K likeliest tokens only; 0: from all (default 0)."},
    {OPTION_TOP_P, "top-p", "P", "Then from the fewest that have a share P of the probability (default 1: all)."},
    {OPTION_SEED, "seed", "S", "Another seed, other texts; the same seed, the same texts (default 1)."},
    {OPTION_END_TOKEN, "end-token", "ID",
     "The token that ends a text, not printed (default: 256, where that one follows the bytes)."},
    {OPTION_NO_CACHE, "no-cache", NULL,
     "Keep no keys and values: for every token, run all again that the model looks at. Slow;\nfor checks."},
    {OPTION_THREADS, "threads", "N", "Compute threads (default 1). They change no text."},
    {0},
};

/* What the arguments ask for. */
typedef struct sample_call {
    shd_generate request;
    const char *prompt_option; /* the one that gave the prompt; NULL: none has */
    int32_t *prompt;           /* from malloc */
    bool print_ids;
    shd_characters text;
    const char *separator; /* before the next id of a line */
} sample_call;

/* --- the prompt --------------------------------------------------------------------------------------------------- */

static void take_bytes(sample_call *call, const char *bytes, size_t count) {
    call->prompt = malloc((count + 1) * sizeof *call->prompt);
    for (size_t i = 0; call->prompt && i < count; i++) call->prompt[i] = (unsigned char)bytes[i];
    call->request.prompt_count = (int64_t)count;
    call->request.bytes = true;
}

/* Ids with blanks or commas between. Says what is wrong and returns false when they are none. */
static bool take_ids(sample_call *call, const shd_command *command, const char *text) {
    call->prompt = malloc((strlen(text) + 1) * sizeof *call->prompt);
    int64_t count = 0;
    for (const char *at = text; call->prompt;) {
        while (isspace((unsigned char)*at) || *at == ',') at++;
        if (!*at) break;
        char *end;
        errno = 0;
        long long id = strtoll(at, &end, 10);
        bool parted = !*end || isspace((unsigned char)*end) || *end == ',';
        if (end == at || !parted || errno || id < 0 || id > INT32_MAX) {
            shd_usage_error(command, "--ids: '%.20s' does not begin with a token id", at);
            return false;
        }
        call->prompt[count++] = (int32_t)id;
        at = end;
    }
    call->request.prompt_count = count;
    if (call->prompt && count == 0) shd_usage_error(command, "--ids: there is no token id");
    return !call->prompt || count > 0;
}

static bool take_file(sample_call *call, const char *path) {
    bool standard_input = !strcmp(path, "-");
    FILE *file = standard_input ? stdin : fopen(path, "rb");
    char *bytes = file ? malloc(MOST_TOKENS + 1) : NULL;
    size_t count = bytes ? fread(bytes, 1, MOST_TOKENS + 1, file) : 0;
    bool good = bytes && !ferror(file) && count <= MOST_TOKENS;
    if (good)
        take_bytes(call, bytes, count);
    else if (count > MOST_TOKENS)
        shd_say_error("%s: a prompt has at most %d bytes", path, MOST_TOKENS);
    else
        shd_say_error("%s: cannot read the prompt: %s", path, strerror(errno));
    free(bytes);
    if (file && !standard_input) fclose(file);
    return good;
}

static bool take_prompt(sample_call *call, const shd_command *command, int id, const char *value) {
    const char *name = id == OPTION_IDS ? "--ids" : id == OPTION_PROMPT ? "--prompt" : "--prompt-file";
    if (call->prompt_option) {
        shd_usage_error(command, "one prompt is needed, not two: %s and %s", call->prompt_option, name);
        return false;
    }
    call->prompt_option = name;
    bool good = true;
    if (id == OPTION_PROMPT)
        take_bytes(call, value, strlen(value));
    else
        good = id == OPTION_IDS ? take_ids(call, command, value) : take_file(call, value);
    if (good && !call->prompt) {
        shd_say_error("no memory for the prompt");
        return false;
    }
    call->request.prompt = call->prompt;
    return good;
}

/* --- what is printed ---------------------------------------------------------------------------------------------- */

/* A shd_characters' take: what is no character is printed as it is. */
static void print_bytes(void *user, const unsigned char *bytes, int count, bool character) {
    (void)user, (void)character;
    fwrite(bytes, 1, (size_t)count, stdout);
    fflush(stdout);
}

static void print_token(void *user, int32_t token) {
    sample_call *call = user;
    if (call->print_ids) {
        printf("%s%" PRId32, call->separator, token);
        fflush(stdout);
        call->separator = " ";
    } else if (token < SHD_BYTE_TOKENS) {
        shd_characters_put(&call->text, (unsigned char)token);
    }
}

static void begin_text(void *user, int64_t sample) {
    sample_call *call = user;
    call->separator = "";
    if (call->request.sample_count > 1 && !call->print_ids)
        printf("--- text %" PRId64 " of %" PRId64 "\n", sample + 1, call->request.sample_count);
    for (int64_t i = 0; i < call->request.prompt_count; i++) print_token(user, call->prompt[i]);
}

static void end_text(void *user, int64_t sample) {
    sample_call *call = user;
    int left = shd_characters_end(&call->text);
    printf("\n");
    fflush(stdout);
    if (left == 0) return;
    char bytes[4 * SHD_CHARACTER_BYTES] = "";
    for (int i = 0; i < left; i++) snprintf(bytes + 3 * i, sizeof bytes - 3 * (size_t)i, " %02x", call->text.held[i]);
    fprintf(stderr, "sherd: text %" PRId64 " ends within a character, whose first %d byte%s left out:%s\n", sample + 1,
            left, left == 1 ? " is" : "s are", bytes);
}

/* --- the command -------------------------------------------------------------------------------------------------- */

static bool take_integer(const shd_command *command, const char *option, const char *value, int64_t low, int64_t high,
                         int64_t *out) {
    if (shd_parse_integer(value, low, high, out)) return true;
    shd_usage_error(command, "%s %.40s: a whole number from %" PRId64 " to %" PRId64 " is needed", option, value, low,
                    high);
    return false;
}

static bool take_number(const shd_command *command, const char *option, const char *value, double high, double *out) {
    if (shd_parse_number(value, 0, high, out)) return true;
    shd_usage_error(command, "%s %.40s: a number from 0 to %.0f is needed", option, value, high);
    return false;
}

static bool take_operand(sample_call *call, const shd_command *command, const char *value) {
    if (call->request.checkpoint) {
        shd_usage_error(command, "one checkpoint is needed, not two: %s and %s", call->request.checkpoint, value);
        return false;
    }
    call->request.checkpoint = value;
    return true;
}

/* Takes an option's value; false when it is a bad one, which has been said. */
static bool take(sample_call *call, const shd_command *command, int id, const char *value) {
    shd_generate *request = &call->request;
    int64_t number = 0;
    switch (id) {
    case OPTION_PROMPT:
    case OPTION_PROMPT_FILE:
    case OPTION_IDS: return take_prompt(call, command, id, value);
    case OPTION_PRINT_IDS: call->print_ids = true; return true;
    case OPTION_NO_CACHE: request->recompute = true; return true;
    case OPTION_TOKENS: return take_integer(command, "--tokens", value, 0, MOST_TOKENS, &request->token_count);
    case OPTION_COUNT: return take_integer(command, "--count", value, 1, MOST_TOKENS, &request->sample_count);
    case OPTION_TEMPERATURE: return take_number(command, "--temperature", value, 1e6, &request->draw.temperature);
    case OPTION_TOP_K: return take_integer(command, "--top-k", value, 0, INT32_MAX, &request->draw.top_k);
    case OPTION_TOP_P: return take_number(command, "--top-p", value, 1, &request->draw.top_p);
    case OPTION_END_TOKEN: return take_integer(command, "--end-token", value, 0, INT32_MAX, &request->end_token);
    case OPTION_SEED:
        if (!take_integer(command, "--seed", value, 0, INT64_MAX, &number)) return false;
        request->draw.seed = (uint64_t)number;
        return true;
    case OPTION_THREADS:
        if (!take_integer(command, "--threads", value, 1, 1024, &number)) return false;
        request->threads = (int32_t)number;
        return true;
    default: return take_operand(call, command, value);
    }
}

static int sample(sample_call *call) {
    if (!call->print_ids) call->request.bytes = true;
    const shd_generate_sink sink = {.begin = begin_text, .token = print_token, .end = end_text, .user = call};
    sherd_status status = shd_generate_run(&call->request, &sink);
    if (status == SHERD_OK) return SHD_EXIT_DONE;
    fflush(stdout);
    shd_say_error("%s", sherd_last_error());
    return shd_status_exit_code(status);
}

static int parse(sample_call *call, const shd_command *command, int argc, char **argv) {
    shd_arguments arguments = shd_arguments_begin(command, argc, argv);
    for (int id; (id = shd_arguments_next(&arguments)) != SHD_ARGUMENT_END;) {
        if (id == SHD_ARGUMENT_STOP) return arguments.exit_code;
        if (!take(call, command, id, arguments.value)) return SHD_EXIT_USAGE;
    }
    if (!call->request.checkpoint) return shd_usage_error(command, "no checkpoint is given");
    return sample(call);
}

static int run(const shd_command *command, int argc, char **argv) {
    sample_call call = {
        .request = {.token_count = 256,
                    .sample_count = 1,
                    .end_token = -1,
                    .draw = {.temperature = 0.8, .top_p = 1, .seed = 1},
                    .threads = 1},
        .text = {.take = print_bytes},
    };
    int exit_code = parse(&call, command, argc, argv);
    free(call.prompt);
    return exit_code;
}

const shd_command shd_command_sample = {
    .name = "sample",
    .summary = "generate texts from a checkpoint",
    .usage = "CHECKPOINT [--prompt TEXT | --prompt-file FILE | --ids IDS] [--print-ids] [OPTIONS]",
    .about = "Loads CHECKPOINT, or the newest in a folder of checkpoints, saved by any number of ranks, and prints\n"
             "the prompt and what the model makes of it, as it comes. Text goes in and out where tokens are bytes\n"
             "(256 of them, or one more that ends a text). With any other vocabulary, take the ids of its\n"
             "tokenizer: --ids, --print-ids.\n"
             "\n"
             "Keys and values of the tokens so far are kept, so that a token needs one row of every product, however\n"
             "long the text is. A text that outgrows model.context goes on with its newest half context as if it\n"
             "began there: the model then looks back between half a context and a whole one. A text ends after\n"
             "--tokens tokens, or with the token that ends one.",
    .options = options,
    .examples =
        "sherd sample runs/demo/checkpoints --prompt 'The ' --top-p 0.9 --count 3\n"
        "sherd sample runs/demo/checkpoints/step-00001200 --prompt-file start.txt --temperature 0 --tokens 100\n"
        "sherd sample runs/gpt2/checkpoints --ids '464 3290' --print-ids --end-token 50256",
    .exit_codes = "0 done; 1 failed; 2 bad usage; 3 the checkpoint was refused",
    .run = run,
};
