/* Folders of their own for tests that write files, and memory that lasts as long as the test. */
#ifndef TESTS_IO_FILES_H
#define TESTS_IO_FILES_H

#include <stddef.h>

/* Memory that stays reachable until the test's process ends, or until it is released back to a mark. */
void *take(size_t bytes);
void *mark_taken(void);
void release_taken(void *mark);

/* A new empty folder; its path, like those below, is taken. */
char *make_folder(void);
char *path_in(const char *folder, const char *name);
/* Entries but for dot files. */
int count_files(const char *folder);
void remove_folder(const char *folder);

/* The content, taken and terminated. */
char *read_whole(const char *path, size_t *bytes);
void write_whole(const char *path, const void *content, size_t bytes);

#endif
