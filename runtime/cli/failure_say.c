#include "runtime/cli/failure_say.h"

#include "runtime/cli/options.h"
#include "runtime/launch/error_file.h"

#include <sherd/status.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Whoever started this launcher with an error file wants to know what went wrong below it. */
static void pass_on(const shd_failure *failure) {
    const char *path = getenv("TORCHELASTIC_ERROR_FILE");
    const char *said = failure->error.message ? failure->error.message : failure->cause;
    char text[2000];
    if (!path || !*path) return;
    snprintf(text, sizeof text, "rank %d failed: %s", failure->report->failed_rank, said ? said : "it left no message");
    if (shd_error_file_write(path, text) != SHERD_OK) shd_say_error("%s", sherd_last_error());
}

void shd_failure_say(const shd_launch *launch, const shd_launch_report *report, const shd_failure_story *story) {
    shd_failure failure;
    char host[SHD_FAILURE_HOST_BYTES] = "", path[PATH_MAX];
    if (!launch->output || !shd_failure_collect(&failure, report, launch->output)) return;
    failure.host = gethostname(host, sizeof host - 1) ? NULL : host;
    failure.peer_failed_code = launch->peer_failed_code;
    failure.cause = story->cause;
    failure.noticed = story->noticed;
    failure.step = story->step;
    failure.phase = story->phase;
    char *text = shd_failure_text(&failure);
    if (text) fputs(text, stderr);
    shd_failure_text_free(text);
    if (launch->output->log_dir) {
        int bytes = snprintf(path, sizeof path, "%s/failure.json", launch->output->log_dir);
        if (bytes < PATH_MAX && shd_failure_write(&failure, path) != SHERD_OK) shd_say_error("%s", sherd_last_error());
    }
    pass_on(&failure);
    shd_failure_fini(&failure);
}
