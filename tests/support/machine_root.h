/* A folder that stands for / . */
#ifndef TESTS_SUPPORT_MACHINE_ROOT_H
#define TESTS_SUPPORT_MACHINE_ROOT_H

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

static char root[64];

static inline void put(const char *path, const char *text) {
    char whole[256], command[300];
    snprintf(whole, sizeof whole, "%s%s", root, path);
    snprintf(command, sizeof command, "mkdir -p $(dirname %s)", whole);
    cr_assert_eq(system(command), 0);
    FILE *file = fopen(whole, "w");
    fputs(text, file);
    fclose(file);
}

static inline void make_root(void) {
    snprintf(root, sizeof root, "/tmp/sherd-machine-XXXXXX");
    cr_assert(mkdtemp(root));
}

static inline void remove_root(void) {
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", root);
    if (system(command)) return;
}

#endif
