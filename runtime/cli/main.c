/* `sherd`: finds the command and runs it. */
#include "runtime/cli/commands.h"

#include <sherd/version.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* In the order of the help. */
static const shd_command *const commands[] = {
    &shd_command_train,
    &shd_command_plan,
    &shd_command_run,
    &shd_command_debug,
    &shd_command_doctor,
    &shd_command_report,
    &shd_command_sample,
    &shd_command_checkpoint_list,
    &shd_command_checkpoint_show,
    &shd_command_checkpoint_verify,
    &shd_command_checkpoint_reshard,
    &shd_command_checkpoint_export,
    &shd_command_checkpoint_import,
    &shd_command_checkpoint_drill,
    &shd_command_data_show,
    &shd_command_data_pack,
};
enum { COMMAND_COUNT = sizeof commands / sizeof *commands };

static int print_help(void) {
    printf(
        "usage: sherd COMMAND [ARGUMENTS]\n\n"
        "Trains models whose parameters, gradients and optimizer state are split over ranks (ZeRO stages 0 to 3).\n\n"
        "Commands:\n");
    for (int i = 0; i < COMMAND_COUNT; i++) printf("  %-19s %s\n", commands[i]->name, commands[i]->summary);
    printf("\nOptions:\n"
           "  -h, --help         Show this help; 'sherd COMMAND --help' tells all about a command.\n"
           "      --version      Show the version.\n");
    return SHD_EXIT_DONE;
}

/* Writes to a full disk or a closed pipe must not pass for success. */
static int finish(int exit_code) {
    if (fflush(stdout) || ferror(stdout)) {
        shd_say_error("cannot write to standard output");
        return exit_code ? exit_code : SHD_EXIT_FAILED;
    }
    return exit_code;
}

static int unknown_command(const char *word) {
    const char *names[COMMAND_COUNT];
    for (int i = 0; i < COMMAND_COUNT; i++) names[i] = commands[i]->name;
    const char *nearest = shd_nearest_name(word, names, COMMAND_COUNT, (int)sizeof *names);
    if (nearest)
        shd_say_error("unknown command '%s'; did you mean '%s'?", word, nearest);
    else
        shd_say_error("unknown command '%s'", word);
    fprintf(stderr, "'sherd --help' lists the commands.\n");
    return SHD_EXIT_USAGE;
}

/* A command's name is one word or two ("checkpoint export"): how many of the arguments it takes, 0 when it is another
 * one. */
static int match_words(const char *name, int argc, char **argv) {
    const char *space = strchr(name, ' ');
    size_t first = space ? (size_t)(space - name) : strlen(name);
    if (strlen(argv[0]) != first || strncmp(argv[0], name, first)) return 0;
    if (!space) return 1;
    return argc > 1 && !strcmp(argv[1], space + 1) ? 2 : 0;
}

/* The commands whose first word is `word`, on `out`; false when there is none. */
static bool list_subcommands(const char *word, FILE *out) {
    bool any = false;
    size_t length = strlen(word);
    for (int i = 0; i < COMMAND_COUNT; i++) {
        if (strncmp(commands[i]->name, word, length) || commands[i]->name[length] != ' ') continue;
        fprintf(out, "%s sherd %s %s\n", any ? "      " : "usage:", commands[i]->name, commands[i]->usage);
        any = true;
    }
    return any;
}

static int help_of(int argc, char **argv) {
    for (int i = 0; i < COMMAND_COUNT; i++)
        if (match_words(commands[i]->name, argc, argv)) {
            shd_command_help(commands[i]);
            return SHD_EXIT_DONE;
        }
    return list_subcommands(argv[0], stdout) ? SHD_EXIT_DONE : unknown_command(argv[0]);
}

int main(int argc, char **argv) {
    if (argc < 2) {
        fprintf(stderr, "usage: sherd COMMAND [ARGUMENTS]\n'sherd --help' lists the commands.\n");
        return SHD_EXIT_USAGE;
    }
    if (!strcmp(argv[1], "help") && argc > 2) return finish(help_of(argc - 2, argv + 2));
    if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help")) return finish(print_help());
    if (!strcmp(argv[1], "--version")) {
        printf("sherd %s\n", SHERD_VERSION);
        return finish(SHD_EXIT_DONE);
    }
    for (int i = 0; i < COMMAND_COUNT; i++) {
        int words = match_words(commands[i]->name, argc - 1, argv + 1);
        if (words) return finish(commands[i]->run(commands[i], argc - 1 - words, argv + 1 + words));
    }
    bool asked = argc > 2 && (!strcmp(argv[2], "--help") || !strcmp(argv[2], "-h"));
    if (list_subcommands(argv[1], asked ? stdout : stderr)) return finish(asked ? SHD_EXIT_DONE : SHD_EXIT_USAGE);
    return unknown_command(argv[1]);
}
