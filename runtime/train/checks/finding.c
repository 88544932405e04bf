#include "runtime/train/checks/finding.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *shd_check_state_text(shd_check_state state) {
    static const char *const texts[] = {[SHD_CHECK_OK] = "ok",
                                        [SHD_CHECK_WARNING] = "warning",
                                        [SHD_CHECK_ERROR] = "error",
                                        [SHD_CHECK_SKIPPED] = "skipped"};
    return texts[state];
}

/* Appends at the end of `text`, of SHD_FINDING_BYTES. */
static void append(char *text, const char *format, va_list list) {
    size_t used = strlen(text);
    vsnprintf(text + used, SHD_FINDING_BYTES - used, format, list);
}

void shd_finding_say(shd_finding *finding, const char *format, ...) {
    va_list list;
    finding->state = SHD_CHECK_OK;
    finding->text[0] = 0;
    va_start(list, format);
    append(finding->text, format, list);
    va_end(list);
}

void shd_finding_add(shd_finding *finding, const char *format, ...) {
    va_list list;
    va_start(list, format);
    append(finding->text, format, list);
    va_end(list);
}

void shd_finding_warn(shd_finding *finding, const char *advice, ...) {
    va_list list;
    if (finding->state == SHD_CHECK_OK) finding->state = SHD_CHECK_WARNING;
    /* A second one goes on where the first has ended. */
    if (finding->advice[0]) snprintf(finding->advice + strlen(finding->advice), 3, "; ");
    va_start(list, advice);
    append(finding->advice, advice, list);
    va_end(list);
}

void shd_finding_advise(shd_finding *finding, const char *advice, ...) {
    va_list list;
    finding->advice[0] = 0;
    va_start(list, advice);
    append(finding->advice, advice, list);
    va_end(list);
}

void shd_finding_skip(shd_finding *finding, const char *format, ...) {
    va_list list;
    finding->state = SHD_CHECK_SKIPPED;
    finding->text[0] = 0;
    va_start(list, format);
    append(finding->text, format, list);
    va_end(list);
}

void shd_finding_note(shd_finding *finding, const char *name, double number) {
    if (finding->value_count == SHD_FINDING_VALUES) return;
    finding->values[finding->value_count++] = (shd_finding_value){.name = name, .number = number};
}

shd_bytes_words shd_bytes_say(double bytes) {
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    enum { UNITS = sizeof units / sizeof *units };
    shd_bytes_words words;
    int unit = 0;
    for (; bytes >= 1000 && unit < UNITS - 1; unit++) bytes /= 1024;
    snprintf(words.text, sizeof words.text, unit == 0 || bytes >= 99.95 ? "%.0f %s" : "%.1f %s", bytes, units[unit]);
    return words;
}
