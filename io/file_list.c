#include "io/file_list.h"

#include "runtime/base/memory.h"
#include "runtime/base/status.h"

#include <errno.h>
#include <glob.h>
#include <string.h>
#include <unistd.h>

bool shd_path_is_glob(const char *path) { return strpbrk(path, "*?[") != NULL; }

/* The list while it grows. */
typedef struct growing {
    shd_keep *keep;
    const char **files;
    int32_t count, capacity;
} growing;

static sherd_status add(growing *list, const char *key, const char *path) {
    if (list->count == list->capacity) {
        int32_t capacity = list->capacity ? 2 * list->capacity : 8;
        const char **files = shd_keep_take(list->keep, sizeof *files * (size_t)capacity);
        if (!files) return shd_fail(SHERD_MEMORY, "%s: no memory for a list of %d files", key, capacity);
        if (list->count) memcpy(files, list->files, sizeof *files * (size_t)list->count);
        list->files = files;
        list->capacity = capacity;
    }
    const char *copy = shd_keep_text(list->keep, path, strlen(path));
    if (!copy) return shd_fail(SHERD_MEMORY, "%s: no memory for a list of files", key);
    list->files[list->count++] = copy;
    return SHERD_OK;
}

/* Sorts texts by their bytes: Shell's method, with no memory of its own. */
static void sort(char **texts, size_t count) {
    for (size_t gap = count / 2; gap > 0; gap /= 2)
        for (size_t i = gap; i < count; i++) {
            char *text = texts[i];
            size_t j = i;
            for (; j >= gap && strcmp(texts[j - gap], text) > 0; j -= gap) texts[j] = texts[j - gap];
            texts[j] = text;
        }
}

static sherd_status add_matches(growing *list, const char *key, const char *pattern) {
    glob_t found;
    int result = glob(pattern, GLOB_ERR | GLOB_NOSORT, NULL, &found);
    if (result == GLOB_NOMATCH) return shd_fail(SHERD_DATA, "%s: no file matches %s", key, pattern);
    if (result == GLOB_NOSPACE) return shd_fail(SHERD_MEMORY, "%s: no memory to look for %s", key, pattern);
    if (result != 0)
        return shd_fail(SHERD_DATA, "%s: cannot read the folders of %s: %s", key, pattern, strerror(errno));
    sort(found.gl_pathv, found.gl_pathc);
    sherd_status status = SHERD_OK;
    for (size_t i = 0; i < found.gl_pathc && status == SHERD_OK; i++) status = add(list, key, found.gl_pathv[i]);
    globfree(&found);
    return status;
}

sherd_status shd_file_list_expand(const char *key, const char *const *paths, int32_t path_count, shd_keep *keep,
                                  const char *const **files, int32_t *file_count) {
    growing list = {.keep = keep};
    for (int32_t i = 0; i < path_count; i++) {
        bool pattern = shd_path_is_glob(paths[i]) && access(paths[i], F_OK) != 0;
        SHD_TRY(pattern ? add_matches(&list, key, paths[i]) : add(&list, key, paths[i]));
    }
    *files = list.files;
    *file_count = list.count;
    return SHERD_OK;
}
