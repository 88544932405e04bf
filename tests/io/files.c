#include "files.h"

#include "tests/support/scratch.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct block {
    struct block *before;
    max_align_t bytes[];
} block;
static block *last;

void *take(size_t bytes) {
    block *next = malloc(sizeof *next + bytes);
    next->before = last;
    last = next;
    return next->bytes;
}

void *mark_taken(void) { return last; }

void release_taken(void *mark) {
    while (last != mark) {
        block *before = last->before;
        free(last);
        last = before;
    }
}

char *make_folder(void) {
    char *path = take(SCRATCH_BYTES);
    cr_assert(scratch_folder(path));
    return path;
}

char *path_in(const char *folder, const char *name) {
    char *path = take(strlen(folder) + strlen(name) + 2);
    sprintf(path, "%s/%s", folder, name);
    return path;
}

int count_files(const char *folder) {
    int count = 0;
    DIR *opened = opendir(folder);
    cr_assert_not_null(opened);
    for (struct dirent *entry; (entry = readdir(opened));) count += entry->d_name[0] != '.';
    closedir(opened);
    return count;
}

void remove_folder(const char *folder) {
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

char *read_whole(const char *path, size_t *bytes) {
    FILE *file = fopen(path, "rb");
    cr_assert_not_null(file, "%s", path);
    fseek(file, 0, SEEK_END);
    *bytes = (size_t)ftell(file);
    rewind(file);
    char *content = take(*bytes + 1);
    cr_assert_eq(fread(content, 1, *bytes, file), *bytes);
    content[*bytes] = 0;
    fclose(file);
    return content;
}

void write_whole(const char *path, const void *content, size_t bytes) {
    FILE *file = fopen(path, "wb");
    cr_assert_not_null(file, "%s", path);
    cr_assert_eq(fwrite(content, 1, bytes, file), bytes);
    cr_assert_eq(fclose(file), 0);
}
