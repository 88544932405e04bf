#include "runtime/cli/job_arguments.h"

#include "runtime/cli/verdict.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

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

static int say_loaded(sherd_status status) {
    if (status == SHERD_OK) return SHD_EXIT_DONE;
    shd_say_error("%s", sherd_last_error());
    return status == SHERD_IO ? SHD_EXIT_USAGE : shd_status_exit_code(status);
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
    return say_loaded(shd_job_load(given->path, given->settings, given->setting_count, out));
}

int shd_job_text_file(const shd_job *job) {
    int file = memfd_create("sherd-job", 0);
    if (file >= 0 && write(file, job->text, job->text_bytes) == (ssize_t)job->text_bytes) return file;
    if (file >= 0) close(file);
    return -1;
}

int shd_job_arguments_load_text(const shd_job_arguments *given, int file, shd_job **out) {
    struct stat about;
    /* Some other file, were the number an old one. */
    bool is_ours = given->path && file >= 0 && fcntl(file, F_GET_SEALS) >= 0 && fstat(file, &about) == 0;
    char *text = is_ours ? malloc((size_t)about.st_size + 1) : NULL;
    if (!text || pread(file, text, (size_t)about.st_size, 0) != about.st_size) {
        shd_say_error("the job's text cannot be read from its launcher");
        free(text);
        return SHD_EXIT_FAILED;
    }
    int code = say_loaded(
        shd_job_load_text(given->path, text, (size_t)about.st_size, given->settings, given->setting_count, out));
    free(text);
    return code;
}
