#include "io/checkpoint_names.h"

#include "io/checkpoint_manifest.h"
#include "runtime/base/memory.h"
#include "runtime/base/status.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { PREFIX_BYTES = 5, ID_DIGITS = 16, NAME_BYTES = 64 };

static const char *const words[] = {
    [SHD_STEP_PARTIAL] = "partial", [SHD_STEP_REPLACED] = "replaced", [SHD_STEP_ASIDE] = "aside"};

/* What a name ought to be; false: longer than any. */
static bool print_name(char out[NAME_BYTES], const shd_step_name *name) {
    int length = name->kind == SHD_STEP_COMPLETE
                     ? snprintf(out, NAME_BYTES, "step-%08lld", (long long)name->step)
                     : snprintf(out, NAME_BYTES, "step-%08lld.%s-%016llx", (long long)name->step, words[name->kind],
                                (unsigned long long)name->id);
    return length < NAME_BYTES;
}

/* Reads what it can; whether the name is that of what was read, printing tells. */
static shd_step_name guess(const char *name) {
    char *end;
    errno = 0;
    shd_step_name guessed = {.kind = SHD_STEP_COMPLETE, .step = strtoll(name + PREFIX_BYTES, &end, 10)};
    for (shd_step_kind kind = SHD_STEP_PARTIAL; kind <= SHD_STEP_ASIDE; kind++) {
        size_t length = strlen(words[kind]);
        if (end[0] != '.' || strncmp(end + 1, words[kind], length) != 0 || end[1 + length] != '-') continue;
        guessed.kind = kind;
        guessed.id = strtoull(end + 2 + length, NULL, 16);
    }
    if (errno || guessed.step < 0) guessed.kind = SHD_STEP_OTHER;
    return guessed;
}

bool shd_step_name_parse(const char *name, shd_step_name *out) {
    char again[NAME_BYTES];
    if (strncmp(name, "step-", PREFIX_BYTES) != 0) return false;
    shd_step_name guessed = guess(name);
    if (guessed.kind == SHD_STEP_OTHER || !print_name(again, &guessed) || strcmp(again, name) != 0)
        guessed = (shd_step_name){.kind = SHD_STEP_OTHER, .step = -1};
    *out = guessed;
    return true;
}

sherd_status shd_step_path(char out[SHD_PATH_BYTES], const char *parent, shd_step_kind kind, int64_t step,
                           uint64_t id) {
    char name[NAME_BYTES];
    const shd_step_name parts = {.kind = kind, .step = step, .id = id};
    print_name(name, &parts);
    return shd_path_make(out, "%s/%s", parent, name);
}

shd_step_name shd_step_name_of_path(const char *path) {
    char name[NAME_BYTES];
    shd_step_name parsed = {.kind = SHD_STEP_OTHER, .step = -1};
    size_t end = strlen(path);
    while (end > 1 && path[end - 1] == '/') end--;
    size_t begin = end;
    while (begin > 0 && path[begin - 1] != '/') begin--;
    if (end - begin >= sizeof name) return parsed;
    memcpy(name, path + begin, end - begin);
    name[end - begin] = 0;
    shd_step_name_parse(name, &parsed);
    return parsed;
}

sherd_status shd_step_path_check(const char *path, int64_t step) {
    shd_step_name name = shd_step_name_of_path(path);
    if (name.kind == SHD_STEP_OTHER || name.step == step) return SHERD_OK;
    return shd_fail(SHERD_DATA, "%s was renamed: its manifest is that of step %lld", path, (long long)step);
}

int32_t shd_rank_name_parse(const char *name) {
    char again[32];
    int32_t rank = strncmp(name, "rank-", 5) == 0 ? (int32_t)strtol(name + 5, NULL, 10) : -1;
    snprintf(again, sizeof again, "rank-%05d.bin", rank);
    return rank >= 0 && strcmp(again, name) == 0 ? rank : -1;
}

bool shd_checkpoint_owns(const char *name) {
    return shd_rank_name_parse(name) >= 0 || strcmp(name, SHD_MANIFEST_NAME) == 0;
}

static int compare_folders(const void *left, const void *right) {
    const shd_step_folder *a = left, *b = right;
    if (a->parsed.step != b->parsed.step) return a->parsed.step < b->parsed.step ? -1 : 1;
    return strcmp(a->name, b->name);
}

/* Grown as entries come. */
typedef struct folder_list {
    shd_step_folder *entries;
    int64_t count, capacity;
} folder_list;

static sherd_status add_entry(folder_list *list, int folder, const char *name, shd_keep *keep) {
    struct stat about;
    shd_step_name parsed;
    if (!shd_step_name_parse(name, &parsed)) return SHERD_OK;
    if (list->count == list->capacity) {
        int64_t capacity = 2 * list->capacity + 16;
        shd_step_folder *grown = shd_realloc(list->entries, (size_t)capacity * sizeof *grown);
        if (!grown) return shd_fail(SHERD_MEMORY, "out of memory for a list of checkpoints");
        list->entries = grown;
        list->capacity = capacity;
    }
    const char *kept = shd_keep_text(keep, name, strlen(name));
    if (!kept) return shd_fail(SHERD_MEMORY, "out of memory for a list of checkpoints");
    bool is_folder = fstatat(folder, name, &about, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(about.st_mode);
    list->entries[list->count++] = (shd_step_folder){.name = kept, .parsed = parsed, .is_folder = is_folder};
    return SHERD_OK;
}

static sherd_status read_entries(const char *parent, shd_keep *keep, folder_list *list) {
    DIR *listing = opendir(parent);
    if (!listing && (errno == ENOENT || errno == ENOTDIR)) return SHERD_OK;
    if (!listing) return shd_fail(SHERD_IO, "cannot list the folder %s: %s", parent, strerror(errno));
    sherd_status status = SHERD_OK;
    struct dirent *entry;
    errno = 0;
    while (status == SHERD_OK && (entry = readdir(listing)) != NULL) {
        status = add_entry(list, dirfd(listing), entry->d_name, keep);
        errno = 0;
    }
    if (status == SHERD_OK && errno != 0)
        status = shd_fail(SHERD_IO, "cannot list the folder %s: %s", parent, strerror(errno));
    closedir(listing);
    return status;
}

sherd_status shd_step_folders_read(const char *parent, shd_keep *keep, shd_step_folder **out, int64_t *count) {
    folder_list list = {0};
    sherd_status status = read_entries(parent, keep, &list);
    shd_step_folder *kept = status == SHERD_OK ? shd_keep_take(keep, (size_t)list.count * sizeof *kept + 1) : NULL;
    if (status == SHERD_OK && !kept) status = shd_fail(SHERD_MEMORY, "out of memory for a list of checkpoints");
    if (status == SHERD_OK) {
        if (list.count > 0) memcpy(kept, list.entries, (size_t)list.count * sizeof *kept);
        qsort(kept, (size_t)list.count, sizeof *kept, compare_folders);
        *out = kept;
        *count = list.count;
    }
    shd_free(list.entries);
    return status;
}

bool shd_step_folder_stands(const shd_step_folder *folders, int64_t index) {
    const shd_step_name *name = &folders[index].parsed;
    if (name->kind == SHD_STEP_COMPLETE) return true;
    if (name->kind != SHD_STEP_REPLACED) return false;
    /* step-%08d comes before all other names of its step. */
    for (int64_t i = index; i >= 0 && folders[i].parsed.step == name->step; i--)
        if (folders[i].parsed.kind == SHD_STEP_COMPLETE) return false;
    return true;
}
