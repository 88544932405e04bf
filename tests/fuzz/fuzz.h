/* What the fuzzers of the readers share. Each fuzz_*.c is one reader: it gets arbitrary bytes, and stops the process when
 * a promise of the reader is broken, so that libFuzzer keeps the input. Without libFuzzer, replay_inputs.c feeds it files.
 *
 * Promises that every reader is held to: no memory error, leak or undefined behaviour (the sanitizers), no endless work
 * or memory out of proportion to the file (libFuzzer's limits), only the failures its header names, and a cause that can
 * be shown. */
#ifndef TESTS_FUZZ_FUZZ_H
#define TESTS_FUZZ_FUZZ_H

#include <sherd/status.h>
#include <stddef.h>
#include <stdint.h>

/* The reader under test; returns 0. Defined by each fuzz_*.c. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);
/* Called once before the first input. */
int LLVMFuzzerInitialize(int *argc, char ***argv);

/* Stops the process, telling what does not hold and the last cause, where it does not. */
#define fuzz_check(condition)                                                                                          \
    do {                                                                                                               \
        if (!(condition)) fuzz_stop(__FILE__, __LINE__, #condition);                                                   \
    } while (0)
_Noreturn void fuzz_stop(const char *file, int line, const char *what);

/* Something was read to its end: that of some seed must be, or they no longer fit the format and nothing deep is reached. */
void fuzz_note_accepted(void);
int64_t fuzz_accepted_count(void);

/* The last failure was `expected`, with a cause that is one line of UTF-8 without control characters. */
void fuzz_check_refusal(sherd_status status, sherd_status expected);
/* The library holds no memory. */
void fuzz_check_released(void);

/* The path of `name` in this process's own folder, which goes when the process ends. Lives for ever; ask once. */
const char *fuzz_path(const char *name);
void fuzz_write(const char *path, const void *content, size_t bytes);

/* A text that is put together; released by the caller with free(bytes). All zero is empty. */
typedef struct fuzz_text {
    char *bytes;
    size_t length, capacity;
} fuzz_text;
void fuzz_add(fuzz_text *text, const void *bytes, size_t length);

/* Appends the JSON text `in` with the blanks of `key` filled in: a blank is 16 question marks, and where the i-th
 * occurrence of `key` has one as its value, values[i] is put there, in 16 hexadecimal digits when it is in quotes and in
 * decimal otherwise. Checksums and sizes are what no mutation would get right; blanks get an input past them, and any other
 * text stays as it is. */
void fuzz_fill(fuzz_text *out, const char *in, size_t length, const char *key, const uint64_t *values, size_t count);

#endif
