/* Folders of their own for tests that write files. What they return is never released: each test is a process. */
#ifndef TESTS_IO_FILES_H
#define TESTS_IO_FILES_H

#include <criterion/criterion.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static inline char *make_folder(void) {
    const char *base = getenv("TMPDIR"), *memory = "/dev/shm";
    if (!base) base = access(memory, W_OK) == 0 ? memory : "/tmp"; /* syncing costs nothing there */
    char *path = malloc(4096);
    snprintf(path, 4096, "%s/sherd-test-XXXXXX", base);
    cr_assert_not_null(mkdtemp(path));
    return path;
}

static inline char *path_in(const char *folder, const char *name) {
    char *path = malloc(4096);
    snprintf(path, 4096, "%s/%s", folder, name);
    return path;
}

static inline int count_files(const char *folder) {
    int count = 0;
    DIR *opened = opendir(folder);
    cr_assert_not_null(opened);
    for (struct dirent *entry; (entry = readdir(opened));) count += entry->d_name[0] != '.';
    closedir(opened);
    return count;
}

static inline void remove_folder(const char *folder) {
    DIR *opened = opendir(folder);
    if (!opened) return;
    for (struct dirent *entry; (entry = readdir(opened));) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        char *path = path_in(folder, entry->d_name);
        struct stat about;
        if (lstat(path, &about) == 0 && S_ISDIR(about.st_mode))
            remove_folder(path);
        else
            unlink(path);
    }
    closedir(opened);
    rmdir(folder);
}

static inline char *read_whole(const char *path, size_t *bytes) {
    FILE *file = fopen(path, "rb");
    cr_assert_not_null(file, "%s", path);
    fseek(file, 0, SEEK_END);
    *bytes = (size_t)ftell(file);
    rewind(file);
    char *content = malloc(*bytes + 1);
    cr_assert_eq(fread(content, 1, *bytes, file), *bytes);
    content[*bytes] = 0;
    fclose(file);
    return content;
}

static inline void write_whole(const char *path, const void *content, size_t bytes) {
    FILE *file = fopen(path, "wb");
    cr_assert_not_null(file, "%s", path);
    cr_assert_eq(fwrite(content, 1, bytes, file), bytes);
    cr_assert_eq(fclose(file), 0);
}

#endif
