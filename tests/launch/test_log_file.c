/* A full disk is played by the limit of a file's size, and by a mkdir that finds no room. */
#include "runtime/launch/log_file.h"

#include "runtime/base/memory.h"
#include "tests/support/file_limit.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <sherd/status.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static char folder[64];
static bool is_full;

/* Takes the place of the C library's. */
int mkdir(const char *path, mode_t mode) {
    if (!is_full) return (int)syscall(SYS_mkdirat, AT_FDCWD, path, mode);
    errno = ENOSPC;
    return -1;
}

static void set_up(void) {
    snprintf(folder, sizeof folder, "/tmp/sherd-log-file-XXXXXX");
    cr_assert(mkdtemp(folder));
}
static void tear_down(void) {
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    if (system(command)) return;
}
TestSuite(log_file, .init = set_up, .fini = tear_down, .timeout = 60);

static const char *content(void) {
    static char text[4096];
    char path[128];
    snprintf(path, sizeof path, "%s/3/stdout.log", folder);
    FILE *file = fopen(path, "r");
    size_t got = file ? fread(text, 1, sizeof text - 1, file) : 0;
    if (file) fclose(file);
    text[got] = 0;
    return file ? text : NULL;
}

static void add(shd_log_file *file, const char *text) { shd_log_file_write(file, text, strlen(text)); }

Test(log_file, says_how_much_is_missing_and_goes_on_once_there_is_room) {
    shd_log_file file;
    cr_assert_eq(shd_log_file_open(&file, folder, 3, "stdout.log"), SHERD_OK);
    add(&file, "before\n");
    limit_files(10);
    add(&file, "twelve more\n"); /* of which three come in */
    add(&file, "and three\n");
    cr_assert_eq(file.cause, EFBIG);
    cr_assert_str_eq(content(), "before\ntwe");
    limit_files(-1);
    add(&file, "after\n");
    add(&file, "that\n");
    cr_assert_str_eq(content(), "before\ntwe\n[sherd: 19 bytes are missing here: File too large]\nafter\nthat\n");
    shd_log_file_close(&file);
}

Test(log_file, that_could_not_be_made_is_made_once_there_is_room) {
    shd_log_file file;
    is_full = true;
    cr_assert_eq(shd_log_file_open(&file, folder, 3, "stdout.log"), SHERD_OK);
    cr_assert_eq(file.cause, ENOSPC);
    add(&file, "lost\n");
    cr_assert_null(content());
    is_full = false;
    add(&file, "after\n");
    add(&file, "that\n");
    cr_assert_str_eq(content(), "\n[sherd: 5 bytes are missing here: No space left on device]\nafter\nthat\n");
    shd_log_file_close(&file);
    cr_assert_eq(shd_memory_held(SHD_MEMORY_OBJECTS), 0);
}

Test(log_file, that_is_never_made_leaves_nothing_behind) {
    shd_log_file file;
    is_full = true;
    cr_assert_eq(shd_log_file_open(&file, folder, 3, "stdout.log"), SHERD_OK);
    add(&file, "lost\n");
    shd_log_file_close(&file);
    cr_assert_eq(shd_memory_held(SHD_MEMORY_OBJECTS), 0);
}
