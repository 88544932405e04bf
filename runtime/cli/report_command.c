/* `sherd report`: a page that shows how a run went. */
#include "runtime/cli/commands.h"
#include "runtime/cli/progress.h"
#include "runtime/cli/verdict.h"
#include "runtime/report/report.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static const shd_option options[] = {
    {'o', "output", "FILE", "Where the page goes (default DIR/report.html); - is standard output."},
    {0},
};

static int fail_to_write(const char *path) {
    shd_say_error("cannot write %s: %s", path, strerror(errno));
    return SHD_EXIT_FAILED;
}

static bool write_all(FILE *file, const char *html) {
    bool written = fputs(html, file) >= 0 && fflush(file) == 0;
    return fclose(file) == 0 && written;
}

/* A reader never sees half of a page: a new file takes the place of an older one once it is whole. Other than regular
 * files are written into. */
static int write_page(const char *path, const char *html) {
    struct stat there;
    char fresh[PATH_MAX];
    bool into = stat(path, &there) == 0 && !S_ISREG(there.st_mode);
    int length = snprintf(fresh, sizeof fresh, into ? "%s" : "%s.%ld.tmp", path, (long)getpid());
    if (length >= (int)sizeof fresh) {
        errno = ENAMETOOLONG;
        return fail_to_write(path);
    }
    FILE *file = fopen(fresh, "we");
    if (!file) return fail_to_write(path);
    if (write_all(file, html) && (into || rename(fresh, path) == 0)) return SHD_EXIT_DONE;
    int code = fail_to_write(path);
    if (!into) unlink(fresh);
    return code;
}

static int report(const char *dir, const char *output) {
    char *html, path[PATH_MAX], size[16];
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    sherd_status status = shd_report_make(dir, (double)now.tv_sec, &html);
    if (status != SHERD_OK) {
        shd_say_error("%s", sherd_last_error());
        return shd_status_exit_code(status);
    }
    int code = SHD_EXIT_DONE;
    if (output && !strcmp(output, "-")) {
        fputs(html, stdout);
    } else if (snprintf(path, sizeof path, output ? "%s" : "%s/report.html", output ? output : dir) <
               (int)sizeof path) {
        code = write_page(path, html);
        shd_bytes_text((double)strlen(html), size);
        if (code == SHD_EXIT_DONE) printf("%s  %s\n", path, size);
    } else {
        errno = ENAMETOOLONG;
        code = fail_to_write(output ? output : dir);
    }
    shd_report_release(html);
    return code;
}

static int run(const shd_command *command, int argc, char **argv) {
    const char *dir = NULL, *output = NULL;
    shd_arguments arguments = shd_arguments_begin(command, argc, argv);
    for (int id; (id = shd_arguments_next(&arguments)) != SHD_ARGUMENT_END;) switch (id) {
        case 'o': output = arguments.value; break;
        case SHD_ARGUMENT_OPERAND:
            if (dir) return shd_usage_error(command, "one run at a time: %s is a second one", arguments.value);
            dir = arguments.value;
            break;
        default: return arguments.exit_code;
        }
    if (!dir) return shd_usage_error(command, "no folder of a run is given");
    return report(dir, output);
}

const shd_command shd_command_report = {
    .name = "report",
    .summary = "show how a run went, on one page",
    .usage = "DIR [-o FILE]",
    .about =
        "Makes one HTML page of what is in DIR, which is log.dir of a job (run.dir by default): losses, learning "
        "rate,\n"
        "gradient norm, throughput, where the time of steps went, the spread over ranks, memory, events, alerts, a\n"
        "failure, checkpoints, the job and where it came from. What DIR does not have is not shown; only "
        "metrics.jsonl\n"
        "must be there. A run that goes on may be reported too.\n\n"
        "The page needs nothing else: open it from disk, send it, print it. However many steps there are, each column\n"
        "of a chart has the least, the mean and the greatest of its steps, so that no spike is lost.",
    .options = options,
    .examples = "sherd report runs/gpt2\n"
                "sherd report runs/gpt2 -o gpt2.html && xdg-open gpt2.html",
    .exit_codes = "0 written; 1 it could not be written, or DIR not be read; 2 bad usage; 3 DIR has no metrics.jsonl",
    .run = run,
};
