/* The reader of the metrics that an earlier run left. Input: the step of the next row in one byte, then metrics.jsonl.
 *
 * Rows of earlier steps stay, all whole lines from the first other one on lie beside them, and the next row follows. */
#include "io/metrics.h"
#include "tests/fuzz/fuzz.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ROW_BYTES_MIN = 1024 }; /* the longest line that is a row whatever the bound */

static fuzz_text read_file(const char *path) {
    char block[1 << 14];
    fuzz_text content = {0};
    FILE *file = fopen(path, "rb");
    for (size_t got; file && (got = fread(block, 1, sizeof block, file)) > 0;) fuzz_add(&content, block, got);
    if (file) fclose(file);
    return content;
}

static bool is_earlier(const char *line, size_t bytes, int64_t first_step) {
    if (memchr(line, 0, bytes)) return false; /* jansson would skip one behind a number */
    json_t *row = json_loadb(line, bytes, JSON_REJECT_DUPLICATES, NULL);
    const json_t *step = json_object_get(row, "step");
    bool earlier = json_is_integer(step) && json_integer_value(step) < first_step;
    json_decref(row);
    return earlier;
}

/* The first `kept` of `bytes` are rows of earlier steps, and the next line is none. */
static void check_rows(const char *content, size_t bytes, size_t kept, int64_t first_step) {
    fuzz_check(kept <= bytes);
    for (size_t at = 0, end; at < bytes; at = end) {
        const char *newline = memchr(content + at, '\n', bytes - at);
        fuzz_check(newline);
        end = (size_t)(newline - content) + 1;
        bool earlier = is_earlier(content + at, end - at, first_step);
        if (at >= kept) {
            fuzz_check(!earlier || end - at > ROW_BYTES_MIN);
            return;
        }
        fuzz_check(earlier && end <= kept);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    static const char *folder, *path, *aside;
    if (!folder) {
        folder = fuzz_path(".");
        path = fuzz_path("metrics.jsonl");
        aside = fuzz_path("metrics.jsonl.1");
    }
    if (bytes == 0) return 0;
    int64_t first_step = data[0];
    const char *content = (const char *)data + 1;
    size_t whole = bytes - 1;
    fuzz_write(path, content, whole);
    unlink(aside);
    while (whole > 0 && content[whole - 1] != '\n') whole--; /* a torn last line is dropped */

    shd_metrics *metrics = NULL;
    fuzz_check(shd_metrics_open(folder, first_step, &metrics) == SHERD_OK);
    fuzz_text kept = read_file(path), moved = read_file(aside);
    fuzz_check(kept.length + moved.length == whole);
    fuzz_check(kept.length == 0 || memcmp(kept.bytes, content, kept.length) == 0);
    fuzz_check(moved.length == 0 || memcmp(moved.bytes, content + kept.length, moved.length) == 0);
    check_rows(content, whole, kept.length, first_step);

    const shd_metrics_row row = {.step = first_step, .loss = 1, .items = "tokens"};
    fuzz_check(shd_metrics_write(metrics, &row) == SHERD_OK);
    shd_metrics_close(metrics);
    fuzz_text after = read_file(path);
    fuzz_check(after.length > kept.length && after.bytes[after.length - 1] == '\n');
    fuzz_check(kept.length == 0 || memcmp(after.bytes, kept.bytes, kept.length) == 0);
    fuzz_check(is_earlier(after.bytes + kept.length, after.length - kept.length, first_step + 1));
    fuzz_check_released();
    if (kept.length > 0) fuzz_note_accepted();
    free(kept.bytes);
    free(moved.bytes);
    free(after.bytes);
    return 0;
}
