/* A folder for what a test writes: in TMPDIR, which ./dev sets to where syncing costs nothing. */
#ifndef TESTS_SUPPORT_SCRATCH_H
#define TESTS_SUPPORT_SCRATCH_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

enum { SCRATCH_BYTES = 40 };

/* A TMPDIR that is too long for that is passed over. False: it cannot be made. */
static inline bool scratch_folder(char path[SCRATCH_BYTES]) {
    const char *base = getenv("TMPDIR"), *form = "%s/sherd-test-XXXXXX";
    if (!base || snprintf(path, SCRATCH_BYTES, form, base) >= SCRATCH_BYTES)
        snprintf(path, SCRATCH_BYTES, form, "/tmp");
    return mkdtemp(path);
}

#endif
