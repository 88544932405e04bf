#include "io/checkpoint_removal.h"

#include "io/checkpoint_names.h"
#include "io/folder.h"
#include "runtime/base/log.h"
#include "runtime/base/memory.h"
#include "runtime/base/status.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* A listing of the folder itself, not of what a link leads to; NULL with errno. */
static DIR *open_folder(const char *path) {
    int descriptor = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *listing = descriptor >= 0 ? fdopendir(descriptor) : NULL;
    if (!listing && descriptor >= 0) close(descriptor);
    return listing;
}

static const char *next_name(DIR *listing) {
    for (struct dirent *entry; (entry = readdir(listing)) != NULL;)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) return entry->d_name;
    return NULL;
}

/* Whether everything in it is a checkpoint's; says what is not. */
static bool is_ours(DIR *listing, const char *path) {
    rewinddir(listing);
    for (const char *name; (name = next_name(listing)) != NULL;) {
        struct stat about;
        bool link_or_folder =
            fstatat(dirfd(listing), name, &about, AT_SYMLINK_NOFOLLOW) == 0 && !S_ISREG(about.st_mode);
        if (shd_checkpoint_owns(name) && !link_or_folder) continue;
        shd_log(SHERD_LOG_WARN, "%s is kept: %s in it is no part of a checkpoint", path, name);
        return false;
    }
    return true;
}

/* Removes what it can, once through; whether there was any. */
static bool remove_files(DIR *listing, const char *path) {
    bool any = false;
    rewinddir(listing);
    for (const char *name; (name = next_name(listing)) != NULL;) {
        if (!shd_checkpoint_owns(name)) continue;
        if (unlinkat(dirfd(listing), name, 0) == 0)
            any = true;
        else if (errno != ENOENT)
            shd_log(SHERD_LOG_WARN, "cannot remove %s/%s: %s", path, name, strerror(errno));
    }
    return any;
}

/* Removes what is in it, which is a checkpoint's, then the folder. Listings may pass over names while others go. */
static bool remove_listed(DIR *listing, const char *path) {
    while (remove_files(listing, path)) {}
    if (rmdir(path) == 0 || errno == ENOENT) return true;
    shd_log(SHERD_LOG_WARN, "cannot remove the folder %s: %s", path, strerror(errno));
    return false;
}

bool shd_partial_remove(const char *path) {
    DIR *listing = open_folder(path);
    if (!listing) {
        if (errno == ENOENT) return true;
        shd_log(SHERD_LOG_WARN, "cannot remove the folder %s: %s", path, strerror(errno));
        return false;
    }
    bool gone = is_ours(listing, path) && remove_listed(listing, path);
    closedir(listing);
    return gone;
}

static shd_partial_owner lock_alone(int descriptor) {
    while (flock(descriptor, LOCK_EX | LOCK_NB) != 0)
        if (errno != EINTR) return errno == EWOULDBLOCK ? SHD_PARTIAL_SOMEBODYS : SHD_PARTIAL_UNLOCKABLE;
    return SHD_PARTIAL_NOBODYS;
}

static sherd_status take_off_name(const char *parent, const char *path, int64_t step, uint64_t id,
                                  char partial[SHD_PATH_BYTES]) {
    SHD_TRY(shd_step_path(partial, parent, SHD_STEP_PARTIAL, step, id));
    SHD_TRY(shd_path_rename(path, partial));
    return shd_folder_sync(parent);
}

/* The lock that `listing` has stays until the folder is gone: who waits for it shall not find it in half. */
static bool remove_open(DIR *listing, const char *parent, const char *path, int64_t step, uint64_t id) {
    char partial[SHD_PATH_BYTES];
    if (lock_alone(dirfd(listing)) == SHD_PARTIAL_SOMEBODYS) {
        shd_log(SHERD_LOG_INFO, "%s is kept for now: somebody reads it", path);
        return false;
    }
    if (!is_ours(listing, path)) return false;
    if (take_off_name(parent, path, step, id, partial) == SHERD_OK) return remove_listed(listing, partial);
    shd_log(SHERD_LOG_WARN, "%s is kept: %s", path, sherd_last_error());
    return false;
}

bool shd_complete_remove(const char *parent, const char *path, int64_t step, uint64_t id) {
    DIR *listing = open_folder(path);
    if (!listing) {
        shd_log(SHERD_LOG_WARN, "%s is kept: it cannot be listed, or is a link (%s)", path, strerror(errno));
        return false;
    }
    bool gone = remove_open(listing, parent, path, step, id);
    closedir(listing);
    return gone;
}

/* --- whose it is -------------------------------------------------------------------------------------------------- */

/* Locks of files, kept until all are closed. */
typedef struct lock_list {
    int *descriptors;
    int64_t count, capacity;
} lock_list;

static bool keep_lock(lock_list *locks, int descriptor) {
    if (locks->count == locks->capacity) {
        int64_t capacity = 2 * locks->capacity + 16;
        int *grown = shd_realloc(locks->descriptors, (size_t)capacity * sizeof *grown);
        if (!grown) return false;
        locks->descriptors = grown;
        locks->capacity = capacity;
    }
    locks->descriptors[locks->count++] = descriptor;
    return true;
}

static void close_locks(lock_list *locks) {
    for (int64_t i = 0; i < locks->count; i++) close(locks->descriptors[i]);
    shd_free(locks->descriptors);
}

/* Network file systems lock for writing only what is open for writing. */
static shd_partial_owner lock_file(int folder, const char *name, lock_list *locks) {
    int descriptor = openat(folder, name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (descriptor < 0 && errno == ENOENT) return SHD_PARTIAL_NOBODYS;
    if (descriptor < 0) return SHD_PARTIAL_UNLOCKABLE;
    shd_partial_owner owner = lock_alone(descriptor);
    if (owner == SHD_PARTIAL_NOBODYS && keep_lock(locks, descriptor)) return owner;
    close(descriptor);
    return owner == SHD_PARTIAL_NOBODYS ? SHD_PARTIAL_UNLOCKABLE : owner;
}

static shd_partial_owner lock_files(DIR *listing, lock_list *locks) {
    shd_partial_owner owner = SHD_PARTIAL_NOBODYS;
    for (const char *name; owner == SHD_PARTIAL_NOBODYS && (name = next_name(listing)) != NULL;)
        if (shd_rank_name_parse(name) >= 0) owner = lock_file(dirfd(listing), name, locks);
    return owner;
}

/* Who had the lock may have committed the folder, or removed it, before it was ours. */
static bool has_name(int folder, const char *path) {
    struct stat open, named;
    return fstat(folder, &open) == 0 && lstat(path, &named) == 0 && named.st_dev == open.st_dev &&
           named.st_ino == open.st_ino;
}

static shd_partial_owner judge_open(DIR *listing, const char *path, lock_list *locks) {
    shd_partial_owner owner = lock_alone(dirfd(listing));
    if (owner == SHD_PARTIAL_NOBODYS) owner = lock_files(listing, locks);
    if (owner != SHD_PARTIAL_NOBODYS) return owner;
    return has_name(dirfd(listing), path) ? SHD_PARTIAL_NOBODYS : SHD_PARTIAL_GONE;
}

shd_partial_owner shd_partial_judge(const char *path, bool remove, bool *removed) {
    lock_list locks = {0};
    *removed = false;
    DIR *listing = open_folder(path);
    if (!listing) return errno == ENOENT ? SHD_PARTIAL_GONE : SHD_PARTIAL_UNLOCKABLE;
    shd_partial_owner owner = judge_open(listing, path, &locks);
    if (owner == SHD_PARTIAL_NOBODYS && remove) *removed = is_ours(listing, path) && remove_listed(listing, path);
    close_locks(&locks);
    closedir(listing);
    return owner;
}
