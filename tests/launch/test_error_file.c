#include "runtime/launch/error_file.h"

#include "runtime/base/memory.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static char folder[64], path[128];

static void make_folder(void) {
    snprintf(folder, sizeof folder, "/tmp/sherd-error-XXXXXX");
    cr_assert(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/error.json", folder);
}
static void remove_folder(void) {
    unlink(path);
    rmdir(folder);
}
TestSuite(error_file, .init = make_folder, .fini = remove_folder);

static void put(const char *text) {
    FILE *file = fopen(path, "w");
    fputs(text, file);
    fclose(file);
}

static shd_error_file must_read(void) {
    shd_error_file file = {0};
    bool found = false;
    cr_assert_eq(shd_error_file_read(path, &found, &file), SHERD_OK, "%s", sherd_last_error());
    cr_assert(found);
    return file;
}

/* As torch 2 writes them. */
Test(error_file, of_torch_is_read) {
    put("{\"message\": {\"message\": \"ValueError: bad\\nlr\", \"extraInfo\": {\"py_callstack\": \"Traceback (most "
        "recent call "
        "last):\\n  File\", \"timestamp\": \"1700000123\"}}}");
    shd_error_file file = must_read();
    cr_assert_str_eq(file.message, "ValueError: bad\nlr");
    cr_assert_str_eq(file.callstack, "Traceback (most recent call last):\n  File");
    cr_assert_eq(file.time_s, 1700000123);
    cr_assert_gt(file.made_ns, 1700000000LL * 1000000000);
    shd_error_file_fini(&file);
    put("{\"message\": \"just text\"}");
    file = must_read();
    cr_assert_str_eq(file.message, "just text");
    cr_assert_null(file.callstack);
    cr_assert_eq(file.time_s, 0);
    shd_error_file_fini(&file);
    cr_assert_eq(shd_memory_held(SHD_MEMORY_OBJECTS), 0);
}

Test(error_file, of_another_form_is_a_message_as_it_stands) {
    static const char *const texts[] = {"oh no\n", "{\"message\": 3}", "[1]", "{\"message\": {\"message\": \"torn"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        put(texts[i]);
        shd_error_file file = must_read();
        cr_assert_str_eq(file.message, texts[i]);
        shd_error_file_fini(&file);
    }
}

Test(error_file, that_is_none_is_none) {
    bool found = true;
    shd_error_file file;
    cr_assert_eq(shd_error_file_read(path, &found, &file), SHERD_OK);
    cr_assert_not(found);
    put("");
    found = true;
    cr_assert_eq(shd_error_file_read(path, &found, &file), SHERD_OK);
    cr_assert_not(found);
    unlink(path);
    cr_assert_eq(mkfifo(path, 0600), 0);
    cr_assert_eq(shd_error_file_read(path, &found, &file), SHERD_IO, "a pipe is not waited for");
    cr_assert_eq(shd_memory_held(SHD_MEMORY_OBJECTS), 0);
}

Test(error_file, is_written_in_the_form_of_torch) {
    cr_assert_eq(shd_error_file_write(path, "rank 1: \"x\"\n\xff!"), SHERD_OK, "%s", sherd_last_error());
    shd_error_file file = must_read();
    cr_assert_str_eq(file.message, "rank 1: \"x\"\n?!");
    cr_assert_null(file.callstack);
    cr_assert_leq(labs((long)(time(NULL) - file.time_s)), 5);
    shd_error_file_fini(&file);
    cr_assert_eq(shd_error_file_write("/nowhere/at/all", "x"), SHERD_IO);
    cr_assert(strstr(sherd_last_error(), "/nowhere/at/all"));
}
