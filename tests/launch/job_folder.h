/* The folder of a test whose ranks are shell scripts, which know it as $DIR and write into it what the test then reads. */
#ifndef TESTS_LAUNCH_JOB_FOLDER_H
#define TESTS_LAUNCH_JOB_FOLDER_H

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static char folder[64];

static inline void make_folder(void) {
    snprintf(folder, sizeof folder, "/tmp/sherd-launch-XXXXXX");
    cr_assert(mkdtemp(folder));
    setenv("DIR", folder, 1);
}

static inline void remove_folder(void) {
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    if (system(command)) return;
}

/* What a rank wrote to the file `name`; "" when it has not. Good until the next call. */
static inline const char *written(const char *name) {
    static char text[4096];
    char path[160];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "r");
    size_t got = file ? fread(text, 1, sizeof text - 1, file) : 0;
    if (file) fclose(file);
    text[got] = 0;
    return text;
}

/* Twenty seconds at most. */
static inline void wait_written(const char *name) {
    for (int i = 0; i < 4000 && !*written(name); i++) usleep(5000);
    cr_assert(*written(name), "%s was not written", name);
}

#endif
