#include "runtime/launch/terminal.h"

#include "runtime/base/memory.h"
#include "tests/support/file_limit.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *content(int file) {
    static char text[1024];
    ssize_t got = pread(file, text, sizeof text - 1, 0);
    text[got > 0 ? got : 0] = 0;
    return text;
}

/* `sherd run … >out` on a disk that is full for a while, which the limit of a file's size plays. */
Test(terminal, that_is_a_file_on_a_full_disk_loses_lines_and_says_how_many, .timeout = 60) {
    char path[] = "/tmp/sherd-terminal-XXXXXX";
    int file = mkstemp(path);
    unlink(path);
    shd_terminal terminal;
    shd_terminal_init(&terminal, file);
    shd_terminal_say(&terminal, "one\n");
    shd_terminal_write(&terminal, false);
    limit_files(6);
    shd_terminal_say(&terminal, "two\n");
    shd_terminal_say(&terminal, "three\n");
    shd_terminal_write(&terminal, false);
    shd_terminal_say(&terminal, "four\n");
    shd_terminal_write(&terminal, false);
    cr_assert_not(shd_terminal_waits(&terminal), "it is kept for ever");
    limit_files(-1);
    shd_terminal_say(&terminal, "five\n");
    shd_terminal_write(&terminal, false);
    cr_assert_str_eq(content(file), "one\ntw\nsherd: 3 lines of ranks are left out here: there was no room\nfive\n");
    shd_terminal_fini(&terminal);
    close(file);
    cr_assert_eq(shd_memory_held(SHD_MEMORY_OBJECTS), 0);
}
