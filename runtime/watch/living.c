#include "runtime/watch/living.h"

#include "runtime/base/status.h"
#include "runtime/comm/recorder.h"
#include "runtime/watch/dump.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Opens it if descriptor `name` of the process is a flight recorder: the kernel's link has the name of its memory. */
static bool open_recorder(const char *descriptors, const char *name, shd_recorder **out) {
    static const char wanted[] = "/memfd:sherd-recorder";
    char path[320], target[sizeof wanted] = "";
    snprintf(path, sizeof path, "%s/%s", descriptors, name);
    if (readlink(path, target, sizeof target - 1) < 0 || strcmp(target, wanted) != 0) return false;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    bool opened = file >= 0 && shd_recorder_open(file, -1, out) == SHERD_OK;
    if (file >= 0) close(file);
    return opened;
}

static sherd_status find_recorder(int64_t pid, shd_recorder **out) {
    char descriptors[64];
    bool found = false;
    snprintf(descriptors, sizeof descriptors, "/proc/%lld/fd", (long long)pid);
    DIR *folder = opendir(descriptors);
    if (!folder && errno == ENOENT) return shd_fail(SHERD_ARGUMENT, "there is no process %lld", (long long)pid);
    if (!folder) return shd_fail(SHERD_ARGUMENT, "cannot look into process %lld: %s", (long long)pid, strerror(errno));
    for (struct dirent *entry; !found && (entry = readdir(folder));)
        found = entry->d_name[0] != '.' && open_recorder(descriptors, entry->d_name, out);
    closedir(folder);
    return found ? SHERD_OK
                 : shd_fail(SHERD_ARGUMENT,
                            "process %lld holds no flight recorder of this build; give the number of the `sherd train "
                            "-n` that has started the ranks",
                            (long long)pid);
}

static sherd_status dump(const shd_recorder *recorder, const char *dir) {
    for (int32_t rank = 0; rank < shd_recorder_world(recorder); rank++)
        SHD_TRY(shd_dump_write(recorder, rank, SHD_DUMP_VISITOR, dir));
    return access(dir, F_OK) ? shd_fail(SHERD_ARGUMENT, "no rank of the job has come so far yet") : SHERD_OK;
}

sherd_status shd_living_dump(int64_t pid, const char *dir) {
    shd_recorder *recorder;
    if (!access(dir, F_OK))
        return shd_fail(SHERD_ARGUMENT, "%s is there already: dumps are put into a new folder", dir);
    SHD_TRY(find_recorder(pid, &recorder));
    sherd_status status = dump(recorder, dir);
    shd_recorder_close(recorder);
    return status;
}
