#include "runtime/cli/output_arguments.h"

#include <errno.h>
#include <sherd/status.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool shd_output_arguments_take(shd_output_arguments *given, int id, const char *value) {
    switch (id) {
    case 'r': given->redirects = value; return true;
    case 't': given->tee = value; return true;
    case SHD_OUTPUT_FILTER: given->filter = value; return true;
    case SHD_OUTPUT_LOG_DIR: given->log_dir = value; return true;
    default: return false;
    }
}

static const char *find_temporary(void) {
    const char *place = getenv("TMPDIR");
    return place && *place == '/' ? place : "/tmp";
}

/* Ranks may change their folder: what they are told is absolute. */
static bool find_folder(shd_output_arguments *given) {
    char here[PATH_MAX] = "";
    const char *asked = given->log_dir;
    bool relative = *asked != '/';
    if (relative && !getcwd(here, sizeof here)) return false;
    int bytes = snprintf(given->folder, sizeof given->folder, "%s%s%s", here, relative ? "/" : "", asked);
    errno = ENAMETOOLONG;
    return bytes > 0 && bytes < PATH_MAX;
}

static bool make_folder(shd_output_arguments *given) {
    snprintf(given->folder, sizeof given->folder, "%s/sherd-logs-XXXXXX", find_temporary());
    if (!mkdtemp(given->folder)) return false;
    fprintf(stderr, "sherd: what the ranks write is in %s\n", given->folder);
    return true;
}

int shd_output_arguments_fill(shd_output_arguments *given, const shd_command *command, int32_t rank_count,
                              shd_output *output) {
    *output = (shd_output){.temporary = find_temporary()};
    if (given->log_dir && !*given->log_dir) return shd_usage_error(command, "--log-dir needs a folder");
    if (shd_routes_init(&output->routes, rank_count, given->redirects, given->tee, given->filter) != SHERD_OK)
        return shd_usage_error(command, "%s", sherd_last_error());
    bool asked = given->log_dir;
    if (!asked && !shd_routes_file(&output->routes)) return SHD_EXIT_DONE;
    if (asked ? find_folder(given) : make_folder(given)) {
        output->log_dir = given->folder;
        return SHD_EXIT_DONE;
    }
    shd_say_error("no folder for the output of the ranks: %s", strerror(errno));
    shd_output_fini(output);
    return SHD_EXIT_FAILED;
}
