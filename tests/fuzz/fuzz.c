#include "tests/fuzz/fuzz.h"

#include "runtime/base/memory.h"

#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* --- stopping ----------------------------------------------------------------------------------------------------- */

_Noreturn void fuzz_stop(const char *file, int line, const char *what) {
    fprintf(stderr, "%s:%d: does not hold: %s\nlast cause: %s\n", file, line, what, sherd_last_error());
    abort();
}

static bool is_shown(const char *text) {
    const unsigned char *at = (const unsigned char *)text;
    while (*at) {
        int more = *at < 0x80 ? 0 : *at >= 0xf0 ? 3 : *at >= 0xe0 ? 2 : *at >= 0xc2 ? 1 : -1;
        if (*at < 0x20 || *at == 0x7f || more < 0) return false;
        if (*at == 0xc2 && at[1] < 0xa0) return false; /* U+0080 to U+009F */
        for (at++; more > 0; more--, at++)
            if ((*at & 0xc0) != 0x80) return false;
    }
    return true;
}

void fuzz_check_refusal(sherd_status status, sherd_status expected) {
    fuzz_check(status == expected);
    fuzz_check(*sherd_last_error() != 0);
    fuzz_check(is_shown(sherd_last_error()));
}

static int64_t accepted_count;
void fuzz_note_accepted(void) { accepted_count++; }
int64_t fuzz_accepted_count(void) { return accepted_count; }

void fuzz_check_released(void) { fuzz_check(shd_memory_held(SHD_MEMORY_OBJECTS) == 0); }

/* --- files -------------------------------------------------------------------------------------------------------- */

static char folder[256];

static int remove_one(const char *path, const struct stat *about, int kind, struct FTW *place) {
    (void)about, (void)kind, (void)place;
    return remove(path);
}

static void remove_all(void) { nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS); }

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc, (void)argv;
    json_object_seed(1); /* the same input takes the same way every time */
    const char *base = getenv("TMPDIR"), *memory = "/dev/shm";
    if (!base) base = access(memory, W_OK) == 0 ? memory : "/tmp"; /* syncing costs nothing there */
    snprintf(folder, sizeof folder, "%s/sherd-fuzz-XXXXXX", base);
    fuzz_check(mkdtemp(folder));
    atexit(remove_all);
    return 0;
}

const char *fuzz_path(const char *name) {
    size_t bytes = strlen(folder) + strlen(name) + 2;
    char *path = malloc(bytes);
    fuzz_check(path);
    snprintf(path, bytes, "%s/%s", folder, name);
    return path;
}

void fuzz_write(const char *path, const void *content, size_t bytes) {
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    fuzz_check(file >= 0);
    fuzz_check(write(file, content, bytes) == (ssize_t)bytes);
    close(file);
}

/* --- texts -------------------------------------------------------------------------------------------------------- */

void fuzz_add(fuzz_text *text, const void *bytes, size_t length) {
    if (text->length + length > text->capacity) {
        text->capacity = 2 * (text->length + length);
        text->bytes = realloc(text->bytes, text->capacity);
        fuzz_check(text->bytes);
    }
    if (length > 0) memcpy(text->bytes + text->length, bytes, length);
    text->length += length;
}

void fuzz_fill(fuzz_text *out, const char *in, size_t length, const char *key, const uint64_t *values, size_t count) {
    if (length == 0) return;
    static const char blank[] = "????????????????";
    enum { BLANK = sizeof blank - 1 };
    const char *end = in + length, *done = in;
    for (size_t i = 0; i < count; i++) {
        const char *at = memmem(done, (size_t)(end - done), key, strlen(key));
        if (!at) break;
        at += strlen(key);
        while (at < end && (*at == '"' || *at == ':' || *at == ' ')) at++;
        fuzz_add(out, done, (size_t)(at - done));
        done = at;
        if (end - at < BLANK || memcmp(at, blank, BLANK) != 0) continue;
        char digits[32];
        snprintf(digits, sizeof digits, at[-1] == '"' ? "%016" PRIx64 : "%" PRIu64, values[i]);
        fuzz_add(out, digits, strlen(digits));
        done = at + BLANK;
    }
    fuzz_add(out, done, (size_t)(end - done));
}
