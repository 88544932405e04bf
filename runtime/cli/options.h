/* Commands and their options: one description serves parsing, help and hints.
 *
 *     shd_arguments arguments = shd_arguments_begin(command, argc, argv);
 *     for (int id; (id = shd_arguments_next(&arguments)) != SHD_ARGUMENT_END;) switch (id) {
 *         case 'n': ranks = arguments.value; break;
 *         case SHD_ARGUMENT_OPERAND: job = arguments.value; break;
 *         default: return arguments.exit_code;   // --help was printed, or an error
 *     }
 */
#ifndef SHD_CLI_OPTIONS_H
#define SHD_CLI_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

/* Exit codes of `sherd`, but for `run`, which passes its programs' codes on. 128 + N: ended by signal N. */
enum {
    SHD_EXIT_DONE = 0,
    SHD_EXIT_FAILED = 1,
    SHD_EXIT_USAGE = 2,
    SHD_EXIT_DATA = 3,
    SHD_EXIT_RANK_LOST = 4,
    SHD_EXIT_SIGNAL = 128
};

/* GNU style: -n 2, -n2, --ranks 2, --ranks=2; "--" ends the options. Long names may be written with _ for -. */
typedef struct shd_option {
    int id;            /* its letter, or a number from 256 on for options without one */
    const char *name;  /* the long name, without dashes; NULL: it has none */
    const char *value; /* what its value is called in the help; NULL: it takes none */
    const char *help;  /* may have several lines; NULL: not for users */
} shd_option;

typedef struct shd_command {
    const char *name;          /* "train", "checkpoint export" */
    const char *summary;       /* one line, for the list of commands */
    const char *usage;         /* what follows "sherd NAME" */
    const char *about;         /* what it does; lines of at most 100 characters */
    const shd_option *options; /* ends with an id of 0; --help is added to all; NULL: none */
    const char *examples;
    const char *exit_codes;
    int (*run)(const struct shd_command *command, int argc,
               char **argv); /* argv[0] is the first argument; returns the exit code */
    bool operands_last;      /* options end at the first operand: the rest belongs to another program */
} shd_command;

enum { SHD_ARGUMENT_END = 0, SHD_ARGUMENT_OPERAND = -1, SHD_ARGUMENT_STOP = -2 };

/* A walk over the arguments. Owns: everything is borrowed from argv. */
typedef struct shd_arguments {
    const shd_command *command;
    int argc;
    char **argv;
    int next;            /* the first argument not yet looked at */
    const char *cluster; /* the rest of "-abc" */
    bool only_operands;
    const char *value; /* of the option, or the operand itself; NULL for options without one */
    int exit_code;     /* after SHD_ARGUMENT_STOP */
} shd_arguments;

shd_arguments shd_arguments_begin(const shd_command *command, int argc, char **argv);
/* An option's id, SHD_ARGUMENT_OPERAND, SHD_ARGUMENT_END, or SHD_ARGUMENT_STOP when --help or an error has been
 * printed. */
int shd_arguments_next(shd_arguments *arguments);

/* Says on standard error what is wrong, and the usage. Returns SHD_EXIT_USAGE. */
int shd_usage_error(const shd_command *command, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* For a command that watches other processes: where nobody reads its standard output or error any more, nothing is said
 * there, instead of SIGPIPE ending it. What it starts gets SIGPIPE as it was. */
void shd_outlive_readers(void);
/* "sherd: …" on standard error. */
void shd_say_error(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Prints the help of a command on standard output. */
void shd_command_help(const shd_command *command);

/* A whole decimal number in [low, high]; else false, and *out is as before. */
bool shd_parse_integer(const char *text, int64_t low, int64_t high, int64_t *out);
/* A finite decimal number in [low, high]. */
bool shd_parse_number(const char *text, double low, double high, double *out);
/* Of `count` names, at `stride` bytes from one `const char *` to the next, the nearest to `word`, or NULL when none is
 * near. */
const char *shd_nearest_name(const char *word, const void *first, int count, int stride);

#endif
