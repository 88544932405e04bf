#include "runtime/cli/job_arguments.h"

#include "runtime/cli/verdict.h"

#include <stdio.h>
#include <string.h>

static bool add_setting(shd_job_arguments *given, const shd_command *command, shd_job_setting setting) {
    if (given->setting_count >= SHD_JOB_MAX_SETTINGS) {
        shd_usage_error(command, "more than %d settings; put them into the job file", SHD_JOB_MAX_SETTINGS);
        return false;
    }
    given->settings[given->setting_count++] = setting;
    return true;
}

static bool take_ranks(shd_job_arguments *given, const shd_command *command, const char *value) {
    enum { LONGEST = 20 };
    if (!*value || strlen(value) > LONGEST) {
        shd_usage_error(command, "-n %.*s: a number of ranks is needed", LONGEST, value);
        return false;
    }
    given->ranks = value;
    snprintf(given->ranks_source, sizeof given->ranks_source, "-n %s", value);
    snprintf(given->ranks_text, sizeof given->ranks_text, "run.ranks=%s", value);
    return add_setting(given, command, (shd_job_setting){.source = given->ranks_source, .text = given->ranks_text});
}

static bool take_path(shd_job_arguments *given, const shd_command *command, const char *value) {
    if (given->path) {
        shd_usage_error(command, "one job file is needed, not two: %s and %s", given->path, value);
        return false;
    }
    given->path = value;
    return true;
}

bool shd_job_arguments_take(shd_job_arguments *given, const shd_command *command, int id, const char *value) {
    switch (id) {
    case 'n': return take_ranks(given, command, value);
    case SHD_OPTION_SET: return add_setting(given, command, (shd_job_setting){.text = value});
    default: return take_path(given, command, value);
    }
}

/* For these there is room beyond what users may give. */
static void add_own(shd_job_arguments *given, const char *source, const char *text) {
    given->settings[given->setting_count++] = (shd_job_setting){.source = source, .text = text};
}

void shd_job_arguments_go_on(shd_job_arguments *given) { add_own(given, "a restart", "checkpoint.resume=auto"); }

void shd_job_arguments_set_world(shd_job_arguments *given, const char *source, int32_t ranks) {
    snprintf(given->world_text, sizeof given->world_text, "run.ranks=%d", ranks);
    add_own(given, source, given->world_text);
}

int shd_job_arguments_load(const shd_job_arguments *given, const shd_command *command, shd_job **out) {
    if (!given->path) return shd_usage_error(command, "no job file is given");
    static const char *const streams[] = {"-", "/dev/stdin", "/dev/fd/", "/proc/self/fd/"};
    for (size_t i = 0; i < sizeof streams / sizeof *streams; i++) {
        if (i < 2 ? strcmp(given->path, streams[i]) : strncmp(given->path, streams[i], strlen(streams[i]))) continue;
        shd_say_error("%s: a job file is a regular file with a name, as its paths are relative to its folder; save it, "
                      "and give its path",
                      given->path);
        return SHD_EXIT_USAGE;
    }
    sherd_status status = shd_job_load(given->path, given->settings, given->setting_count, out);
    if (status == SHERD_OK) return SHD_EXIT_DONE;
    shd_say_error("%s", sherd_last_error());
    return status == SHERD_IO ? SHD_EXIT_USAGE : shd_status_exit_code(status);
}
