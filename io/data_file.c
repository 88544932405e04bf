#include "io/data_file.h"

#include "runtime/base/arith.h"
#include "runtime/base/status.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

static void note_open(shd_open_files *group, shd_data_file *file) {
    if (group->count < group->limit) {
        group->files[group->count++] = file;
        return;
    }
    shd_data_file_close(group->files[group->oldest]);
    group->files[group->oldest] = file;
    group->oldest = (group->oldest + 1) % group->limit;
}

/* Opens the path and checks that it is still what it was. */
static sherd_status reopen(shd_data_file *file) {
    int descriptor = open(file->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor < 0)
        return shd_fail(SHERD_DATA, "%s: cannot open the %s: %s", file->path, file->what, strerror(errno));
    struct stat about;
    sherd_status status = SHERD_OK;
    if (fstat(descriptor, &about) != 0 || !S_ISREG(about.st_mode))
        status = shd_fail(SHERD_DATA, "%s: not a regular file; a %s is one", file->path, file->what);
    else if (file->bytes >= 0 && about.st_size != file->bytes)
        status = shd_fail(SHERD_DATA,
                          "%s: has %lld bytes, it had %lld bytes when the job started; do not change it during a run",
                          file->path, (long long)about.st_size, (long long)file->bytes);
    if (status != SHERD_OK) {
        close(descriptor);
        return status;
    }
    file->descriptor = descriptor;
    file->bytes = about.st_size;
    if (file->group) note_open(file->group, file);
    return SHERD_OK;
}

sherd_status shd_data_file_open(const char *path, const char *what, shd_open_files *group, shd_data_file *out) {
    *out = (shd_data_file){.path = path, .what = what, .descriptor = -1, .bytes = -1, .group = group};
    return reopen(out);
}

void shd_data_file_close(shd_data_file *file) {
    if (file->descriptor >= 0) close(file->descriptor);
    file->descriptor = -1;
}

void shd_open_files_close(shd_open_files *group) {
    for (int32_t i = 0; i < group->count; i++) shd_data_file_close(group->files[i]);
    group->count = group->oldest = 0;
}

sherd_status shd_data_file_read(shd_data_file *file, int64_t offset, int64_t bytes, void *out) {
    if (file->descriptor < 0) SHD_TRY(reopen(file));
    for (int64_t done = 0; done < bytes;) {
        ssize_t got = pread(file->descriptor, (char *)out + done, (size_t)(bytes - done), offset + done);
        if (got == 0)
            return shd_fail(
                SHERD_DATA,
                "%s: ends at byte %lld, it had %lld bytes when the job started; do not change it during a run",
                file->path, (long long)(offset + done), (long long)file->bytes);
        if (got < 0 && errno != EINTR)
            return shd_fail(SHERD_IO, "%s: cannot read at byte %lld: %s", file->path, (long long)(offset + done),
                            strerror(errno));
        if (got > 0) done += got;
    }
    return SHERD_OK;
}

sherd_status shd_data_file_fingerprint(shd_data_file *file, const int64_t *head, int32_t head_count, int32_t samples,
                                       uint64_t *hash) {
    enum { SAMPLE_BYTES = 1024 };
    unsigned char sample[SAMPLE_BYTES];
    size_t head_bytes = (size_t)head_count * sizeof *head;
    uint64_t seen = *hash ? XXH3_64bits_withSeed(head, head_bytes, *hash) : XXH3_64bits(head, head_bytes);
    int64_t last = shd_max(0, file->bytes - SAMPLE_BYTES);
    for (int64_t i = 0; i < samples; i++) {
        int64_t offset = i == samples - 1 ? last : last / (samples - 1) * i;
        int64_t bytes = shd_min(SAMPLE_BYTES, file->bytes - offset);
        SHD_TRY(shd_data_file_read(file, offset, bytes, sample));
        seen = XXH3_64bits_withSeed(sample, (size_t)bytes, seen);
    }
    *hash = seen;
    return SHERD_OK;
}
