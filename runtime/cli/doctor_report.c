#include "runtime/cli/doctor_report.h"

#include "io/json.h"
#include "runtime/cli/options.h"
#include "runtime/cli/verdict.h"
#include "runtime/launch/screen.h"

#include <math.h>
#include <sherd/version.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { NAME_COLUMNS = 18 };

static double now_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

void shd_doctor_report_init(shd_doctor_report *report, bool json) {
    *report = (shd_doctor_report){.json = json ? json_array() : NULL, .start_s = now_s()};
}

/* --- text --------------------------------------------------------------------------------------------------------- */

/* Names of files may hold anything: what would move the cursor, and what is no character, is not shown. */
static void print_text(const char *text) {
    size_t count = strlen(text);
    char *shown = malloc(shd_screen_room(count));
    if (shown) fwrite(shown, 1, shd_screen_plain(text, count, shown), stdout);
    free(shown);
}

static void print_finding(const shd_finding *finding) {
    printf("%-8s %-*s ", shd_check_state_text(finding->state), NAME_COLUMNS, finding->check);
    print_text(finding->text);
    putchar('\n');
    if (!finding->advice[0]) return;
    printf("%-8s %-*s -> ", "", NAME_COLUMNS, "");
    print_text(finding->advice);
    putchar('\n');
}

/* --- JSON --------------------------------------------------------------------------------------------------------- */

/* JSON has no words for what is not finite: metrics.jsonl has texts. */
static json_t *number_json(double number) {
    if (!isfinite(number)) return json_string(isnan(number) ? "nan" : number > 0 ? "inf" : "-inf");
    bool whole = number == floor(number) && fabs(number) < 9007199254740992.0;
    return whole ? json_integer((json_int_t)number) : json_real(number);
}

static json_t *finding_json(const shd_finding *finding) {
    json_t *values = json_object();
    for (int32_t i = 0; i < finding->value_count; i++)
        json_object_set_new(values, finding->values[i].name, number_json(finding->values[i].number));
    json_t *json =
        json_pack("{s:s, s:s, s:o, s:f, s:o}", "check", finding->check, "state", shd_check_state_text(finding->state),
                  "text", shd_json_from_text(finding->text), "ms", finding->ms, "values", values);
    if (finding->advice[0]) json_object_set_new(json, "advice", shd_json_from_text(finding->advice));
    if (finding->state == SHD_CHECK_ERROR)
        json_object_set_new(json, "cause", json_string(sherd_status_text(finding->status)));
    return json;
}

static bool print_json(const shd_doctor_report *report, const char *job, const char *verdict, double seconds) {
    json_t *whole = json_pack("{s:s, s:o?, s:s, s:i, s:i, s:f, s:O}", "sherd", SHERD_VERSION, "job",
                              job ? shd_json_from_text(job) : NULL, "verdict", verdict, "errors", report->errors,
                              "warnings", report->warnings, "seconds", seconds, "checks", report->json);
    bool written = whole && json_dumpf(whole, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(9)) == 0;
    json_decref(whole);
    putchar('\n');
    return written;
}

/* --- both --------------------------------------------------------------------------------------------------------- */

void shd_doctor_report_take(void *user, const shd_finding *finding) {
    shd_doctor_report *report = user;
    if (finding->state == SHD_CHECK_ERROR && report->errors++ == 0) report->first = finding->status;
    report->warnings += finding->state == SHD_CHECK_WARNING;
    if (report->json) {
        json_array_append_new(report->json, finding_json(finding));
        return;
    }
    print_finding(finding);
    fflush(stdout);
}

static void say_verdict(const shd_doctor_report *report, double seconds) {
    if (report->errors > 0)
        printf("\n%d error%s, %d warning%s, in %.1f s\n", report->errors, report->errors == 1 ? "" : "s",
               report->warnings, report->warnings == 1 ? "" : "s", seconds);
    else if (report->warnings > 0)
        printf("\nno error, %d warning%s, in %.1f s\n", report->warnings, report->warnings == 1 ? "" : "s", seconds);
    else
        printf("\nall good, in %.1f s\n", seconds);
}

int shd_doctor_report_exit_code(const shd_doctor_report *report) {
    if (report->errors == 0) return SHD_EXIT_DONE;
    int code = shd_status_exit_code(report->first);
    return code == SHD_EXIT_USAGE || code == SHD_EXIT_DATA ? code : SHD_EXIT_FAILED;
}

int shd_doctor_report_finish(shd_doctor_report *report, const char *job) {
    const char *verdict = report->errors > 0 ? "error" : report->warnings > 0 ? "warning" : "ok";
    int code = shd_doctor_report_exit_code(report);
    double seconds = now_s() - report->start_s;
    if (!report->json) {
        say_verdict(report, seconds);
        return code;
    }
    if (!print_json(report, job, verdict, seconds)) {
        shd_say_error("the findings cannot be written as JSON: memory or the disk is full");
        code = code ? code : SHD_EXIT_FAILED;
    }
    json_decref(report->json);
    return code;
}
