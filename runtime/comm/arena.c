#include "runtime/comm/arena.h"

#include "runtime/base/arith.h"
#include "runtime/base/spare.h"
#include "runtime/base/status.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SEALS = F_SEAL_SHRINK | F_SEAL_GROW };

/* Takes the pages of a new file now: otherwise running out would be a SIGBUS in the middle of a step. In steps, since
 * other ranks take theirs at the same time. Returns errno. */
static int reserve(int fd, int64_t bytes) {
    if (!shd_memory_can_spare(bytes)) return ENOMEM;
    for (int64_t at = 0; at < bytes;) {
        int64_t step = shd_min(SHD_MEMORY_STEP_BYTES, bytes - at);
        if (!shd_memory_can_spare(step)) return ENOMEM;
        if (!fallocate(fd, 0, at, step))
            at += step;
        else if (errno != EINTR)
            return errno;
    }
    return 0;
}

sherd_status shd_arena_create(const char *name, int64_t bytes, int *fd) {
    int file = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (file < 0) return shd_fail(SHERD_MEMORY, "cannot make shared memory: %s", strerror(errno));
    int error = ftruncate(file, bytes) ? errno : 0;
    if (!error) error = reserve(file, bytes);
    if (!error && fcntl(file, F_ADD_SEALS, SEALS | F_SEAL_SEAL)) error = errno;
    if (error) {
        close(file);
        return shd_fail(SHERD_MEMORY, "no shared memory for %s: %lld bytes are wanted, %lld available: %s", name,
                        (long long)bytes, (long long)shd_memory_available(), strerror(error));
    }
    *fd = file;
    return SHERD_OK;
}

bool shd_arena_is(int fd, int64_t bytes) {
    struct stat facts;
    int seals = fcntl(fd, F_GET_SEALS);
    return seals >= 0 && (seals & SEALS) == SEALS && !fstat(fd, &facts) && facts.st_size == bytes;
}

sherd_status shd_arena_map(int fd, int64_t bytes, bool writable, void **out) {
    void *pointer = mmap(NULL, (size_t)bytes, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, fd, 0);
    if (pointer == MAP_FAILED)
        return shd_fail(SHERD_MEMORY, "cannot map %lld bytes of shared memory: %s", (long long)bytes, strerror(errno));
    /* Whether shared memory gets huge pages is the administrator's choice; refusal only costs speed. */
    (void)madvise(pointer, (size_t)bytes, MADV_HUGEPAGE);
    *out = pointer;
    return SHERD_OK;
}
