/* torchrun's options for the output of ranks. */
#ifndef SHD_CLI_OUTPUT_ARGUMENTS_H
#define SHD_CLI_OUTPUT_ARGUMENTS_H

#include "runtime/cli/options.h"
#include "runtime/launch/output.h"

#include <limits.h>
#include <stdbool.h>

enum { SHD_OUTPUT_LOG_DIR = 1300, SHD_OUTPUT_FILTER };

#define SHD_OUTPUT_OPTIONS                                                                                             \
    {SHD_OUTPUT_LOG_DIR, "log-dir", "DIR",                                                                             \
     "Where logs and the report of a failure go: DIR/attempt_K/RANK/{stdout,stderr}.log and\n"                         \
     "error.json, DIR/failure.json (default with -r or -t: a new folder, which is named)."},                           \
        {'r', "redirects", "STREAMS",                                                                                  \
         "What ranks write to these goes to files only: 0 none, 1 stdout, 2 stderr, 3 both, or for\n"                  \
         "some local ranks 0:1,1:3 (default 0)."},                                                                     \
        {'t', "tee", "STREAMS", "To files, and line by line behind [rankN]: to the terminal (default 0)."}, {          \
        SHD_OUTPUT_FILTER, "local-ranks-filter", "RANKS", "Show the output of these local ranks only, as 0,3."         \
    }

typedef struct shd_output_arguments {
    const char *redirects, *tee, *filter, *log_dir; /* as given, or NULL */
    char folder[PATH_MAX];                          /* the absolute path of log_dir */
} shd_output_arguments;

/* Whether `id` is one of SHD_OUTPUT_OPTIONS, which it then takes. */
bool shd_output_arguments_take(shd_output_arguments *given, int id, const char *value);
/* Fills *output for `rank_count` ranks; `given` is borrowed as long as it is used. Returns an exit code, what is wrong said. */
int shd_output_arguments_fill(shd_output_arguments *given, const shd_command *command, int32_t rank_count,
                              shd_output *output);

#endif
