#include "runtime/cli/options.h"

#include "io/edit_distance.h"
#include "runtime/cli/wrap.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OPTION_HELP = -3 };

static const shd_option help_option = {OPTION_HELP, "help", NULL, "Show this help."};

static void pass_over(int signal) { (void)signal; }

void shd_outlive_readers(void) {
    /* Not SIG_IGN, which an exec would hand on. */
    const struct sigaction action = {.sa_handler = pass_over, .sa_flags = SA_RESTART};
    struct sigaction before;
    if (sigaction(SIGPIPE, NULL, &before) == 0 && before.sa_handler == SIG_DFL) sigaction(SIGPIPE, &action, NULL);
}

void shd_say_error(const char *format, ...) {
    /* One write, so that lines of several ranks do not mix. */
    char line[4096];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    /* A rank may have left its progress line on the terminal. */
    char said[sizeof line + 8], wrapped[2 * sizeof line];
    int columns = shd_terminal_columns(stderr);
    snprintf(said, sizeof said, "sherd: %s", line);
    shd_wrap_line(said, columns, wrapped, sizeof wrapped);
    fprintf(stderr, "%s%s\n", isatty(STDERR_FILENO) ? "\r\033[K" : "", wrapped);
}

int shd_usage_error(const shd_command *command, const char *format, ...) {
    char line[4096];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    char said[sizeof line + 2048];
    snprintf(said, sizeof said, "sherd: %s\nusage: sherd %s %s\n'sherd %s --help' tells more.", line, command->name,
             command->usage, command->name);
    shd_print_line(stderr, said);
    return SHD_EXIT_USAGE;
}

/* Prints `text` with every line but the first moved `indent` to the right. */
static void print_indented(const char *text, int indent) {
    for (; *text; text++) {
        putchar(*text);
        if (*text == '\n') printf("%*s", indent, "");
    }
    putchar('\n');
}

static void print_option(const shd_option *option) {
    enum { COLUMN = 26 };
    char left[80];
    bool letter = option->id > 0 && option->id < 256;
    const char *space = option->value ? " " : "", *value = option->value ? option->value : "";
    if (option->id == OPTION_HELP)
        snprintf(left, sizeof left, "  -h, --help");
    else if (!option->name)
        snprintf(left, sizeof left, "  -%c%s%s", option->id, space, value);
    else if (letter)
        snprintf(left, sizeof left, "  -%c, --%s%s%s", option->id, option->name, space, value);
    else
        snprintf(left, sizeof left, "      --%s%s%s", option->name, space, value);
    if (strlen(left) < COLUMN)
        printf("%-*s", COLUMN, left);
    else
        printf("%s\n%*s", left, COLUMN, "");
    print_indented(option->help, COLUMN);
}

void shd_command_help(const shd_command *command) {
    printf("usage: sherd %s %s\n\n%s\n\nOptions:\n", command->name, command->usage, command->about);
    for (const shd_option *option = command->options; option && option->id; option++)
        if (option->help) print_option(option);
    print_option(&help_option);
    if (command->examples) printf("\nExamples:\n  "), print_indented(command->examples, 2);
    if (command->exit_codes) printf("\nExit codes:\n  "), print_indented(command->exit_codes, 2);
}

const char *shd_nearest_name(const char *word, const void *first, int count, int stride) {
    const char *nearest = NULL;
    size_t length = strlen(word);
    int best = length <= 3 ? 2 : 3; /* this many edits are too many */
    for (int i = 0; i < count; i++) {
        const char *name;
        memcpy(&name, (const char *)first + (size_t)i * (size_t)stride, sizeof name);
        if (!name) continue;
        int distance = length > 1 && !strncmp(name, word, length) ? 1 : shd_edit_distance(word, name);
        if (distance < best) {
            best = distance;
            nearest = name;
        }
    }
    return nearest;
}

/* strtoll and strtod take more than people write: spaces before, hexadecimal digits, words. */
static bool is_decimal(const char *text, const char *letters) {
    return *text && strspn(text, letters) == strlen(text) && strpbrk(text, "0123456789");
}

bool shd_parse_integer(const char *text, int64_t low, int64_t high, int64_t *out) {
    if (!is_decimal(text, "-0123456789")) return false;
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (errno || end == text || *end || value < low || value > high) return false;
    *out = value;
    return true;
}

bool shd_parse_number(const char *text, double low, double high, double *out) {
    if (!is_decimal(text, "-+.eE0123456789")) return false;
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end || !isfinite(value) || value < low || value > high) return false;
    *out = value;
    return true;
}

shd_arguments shd_arguments_begin(const shd_command *command, int argc, char **argv) {
    return (shd_arguments){.command = command, .argc = argc, .argv = argv};
}

static int stop(shd_arguments *arguments, int exit_code) {
    arguments->exit_code = exit_code;
    return SHD_ARGUMENT_STOP;
}

static int stop_with_help(shd_arguments *arguments) {
    shd_command_help(arguments->command);
    return stop(arguments, SHD_EXIT_DONE);
}

/* Names may have _ for -, as torchrun takes them. */
static bool is_name(const char *name, const char *text, size_t length) {
    if (strlen(name) != length) return false;
    for (size_t i = 0; i < length; i++)
        if (name[i] != text[i] && !(name[i] == '-' && text[i] == '_')) return false;
    return true;
}

static const shd_option *find_long(const shd_command *command, const char *name, size_t length) {
    if (length == 4 && !strncmp(name, "help", 4)) return &help_option;
    for (const shd_option *option = command->options; option && option->id; option++)
        if (option->name && is_name(option->name, name, length)) return option;
    return NULL;
}

static int unknown_long(shd_arguments *arguments, const char *name, size_t length) {
    const shd_command *command = arguments->command;
    char word[SHD_EDIT_NAME_BYTES + 2];
    snprintf(word, sizeof word, "%.*s", (int)length, name);
    int count = 0;
    while (command->options && command->options[count].id) count++;
    const char *nearest =
        count ? shd_nearest_name(word, &command->options[0].name, count, (int)sizeof(shd_option)) : NULL;
    if (nearest)
        shd_usage_error(command, "unknown option --%s; did you mean --%s?", word, nearest);
    else
        shd_usage_error(command, "unknown option --%s", word);
    return stop(arguments, SHD_EXIT_USAGE);
}

static int next_long(shd_arguments *arguments, const char *text) {
    const char *equals = strchr(text, '=');
    size_t length = equals ? (size_t)(equals - text) : strlen(text);
    const shd_option *option = find_long(arguments->command, text, length);
    if (!option) return unknown_long(arguments, text, length);
    arguments->value = NULL;
    if (!option->value) {
        if (equals) return stop(arguments, shd_usage_error(arguments->command, "--%s takes no value", option->name));
        return option->id == OPTION_HELP ? stop_with_help(arguments) : option->id;
    }
    if (equals)
        arguments->value = equals + 1;
    else if (arguments->next < arguments->argc)
        arguments->value = arguments->argv[arguments->next++];
    else
        return stop(arguments, shd_usage_error(arguments->command, "--%s needs a value: --%s %s", option->name,
                                               option->name, option->value));
    return option->id;
}

static int next_short(shd_arguments *arguments) {
    int letter = (unsigned char)*arguments->cluster++;
    const char *rest = arguments->cluster;
    if (!*rest) arguments->cluster = NULL;
    arguments->value = NULL;
    for (const shd_option *option = arguments->command->options; option && option->id; option++) {
        if (option->id != letter) continue;
        if (!option->value) return letter;
        arguments->cluster = NULL;
        if (*rest)
            arguments->value = rest;
        else if (arguments->next < arguments->argc)
            arguments->value = arguments->argv[arguments->next++];
        else
            return stop(arguments, shd_usage_error(arguments->command, "-%c needs a value: -%c %s", letter, letter,
                                                   option->value));
        return letter;
    }
    if (letter == 'h') return stop_with_help(arguments);
    return stop(arguments, shd_usage_error(arguments->command, "unknown option -%c", letter));
}

int shd_arguments_next(shd_arguments *arguments) {
    if (arguments->cluster) return next_short(arguments);
    if (arguments->next >= arguments->argc) return SHD_ARGUMENT_END;
    const char *text = arguments->argv[arguments->next++];
    bool is_option = !arguments->only_operands && text[0] == '-' && text[1];
    if (is_option && !strcmp(text, "--")) {
        arguments->only_operands = true;
        return shd_arguments_next(arguments);
    }
    if (is_option && text[1] == '-') return next_long(arguments, text + 2);
    if (is_option) {
        arguments->cluster = text + 1;
        return next_short(arguments);
    }
    if (arguments->command->operands_last) arguments->only_operands = true;
    arguments->value = text;
    return SHD_ARGUMENT_OPERAND;
}
