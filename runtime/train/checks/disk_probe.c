#include "runtime/train/checks/disk_probe.h"

#include "io/file.h"
#include "runtime/base/arith.h"
#include "runtime/base/clock.h"
#include "runtime/base/memory.h"
#include "runtime/base/status.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <unistd.h>

enum { BLOCK_BYTES = 4 << 20, SECTOR_BYTES = 4096, WORDS = BLOCK_BYTES / (int)sizeof(uint64_t) };

typedef struct probe {
    const char *folder;
    int file;
    int64_t block_bytes;      /* BLOCK_BYTES, or less where fewer are wanted */
    uint64_t *written, *read; /* a block each, in one mapping */
    shd_disk_rates rates;
} probe;

/* A file that is nowhere: by one call, or where the file system cannot, by taking its name away at once. */
static int open_nameless(const char *folder, int flags, bool *named) {
    char path[SHD_PATH_BYTES];
    int file = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC | flags, 0600);
    *named = false;
    if (file >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != ENOENT)) return file;
    snprintf(path, sizeof path, "%s/.sherd-probe-%lld", folder, (long long)getpid());
    file = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | flags, 0600);
    if (file < 0) return file;
    unlink(path);
    *named = true;
    return file;
}

static sherd_status fail_open(const char *folder) {
    return shd_fail(SHERD_IO, "cannot make a file in %s: %s", folder, strerror(errno));
}

static sherd_status open_file(probe *p) {
    p->rates.direct = true;
    p->file = open_nameless(p->folder, O_DIRECT, &p->rates.named);
    if (p->file < 0 && errno == EINVAL) {
        p->rates.direct = false;
        p->file = open_nameless(p->folder, O_DSYNC, &p->rates.named);
    }
    return p->file >= 0 ? SHERD_OK : fail_open(p->folder);
}

sherd_status shd_disk_abilities_find(const char *folder, shd_disk_abilities *out) {
    shd_disk_abilities found;
    bool named;
    int opened = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (opened < 0) return shd_fail(SHERD_IO, "cannot open %s: %s", folder, strerror(errno));
    found.syncs = fsync(opened) == 0;
    int cause = errno;
    close(opened);
    if (!found.syncs && cause != EINVAL) return shd_fail(SHERD_IO, "cannot sync %s: %s", folder, strerror(cause));
    int file = open_nameless(folder, 0, &named);
    if (file < 0) return fail_open(folder);
    int flags = fcntl(file, F_GETFL);
    found.locks = flock(file, LOCK_EX | LOCK_NB) == 0;
    found.direct = fcntl(file, F_SETFL, flags | O_DIRECT) == 0;
    close(file);
    *out = found;
    return SHERD_OK;
}

/* Bytes that no disk finds shorter words for, and that say where they belong. */
static void fill(probe *p) {
    uint64_t x = 0x9e3779b97f4a7c15u;
    for (int64_t i = 0; i < p->block_bytes / (int64_t)sizeof x; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        p->written[i] = x;
    }
}
static void stamp(probe *p, int64_t at) {
    for (int64_t i = 0; i < p->block_bytes; i += SECTOR_BYTES)
        p->written[i / (int64_t)sizeof(uint64_t)] = (uint64_t)(at + i);
}

static double rate(int64_t bytes, double ms) { return ms > 0 ? (double)bytes / ms * 1e3 : 0; }

static sherd_status write_blocks(probe *p, int64_t most_bytes, double most_ms) {
    double spent_ms = 0;
    int64_t at = 0;
    while (at == 0 || (at + p->block_bytes <= most_bytes && spent_ms < most_ms)) {
        stamp(p, at);
        double start_ms = shd_clock_ms();
        SHD_TRY(shd_file_write_at(p->file, p->folder, at, p->written, p->block_bytes));
        spent_ms += shd_clock_ms() - start_ms;
        at += p->block_bytes;
    }
    double start_ms = shd_clock_ms();
    SHD_TRY(shd_file_sync(p->file, p->folder));
    spent_ms += shd_clock_ms() - start_ms;
    p->rates.bytes = at;
    p->rates.write_bytes_per_s = rate(at, spent_ms);
    return SHERD_OK;
}

static sherd_status read_blocks(probe *p, double most_ms) {
    double spent_ms = 0;
    int64_t at = 0;
    if (!p->rates.direct) (void)posix_fadvise(p->file, 0, 0, POSIX_FADV_DONTNEED);
    for (; at < p->rates.bytes && (at == 0 || spent_ms < most_ms); at += p->block_bytes) {
        double start_ms = shd_clock_ms();
        SHD_TRY(shd_file_read(p->file, p->folder, at, p->read, p->block_bytes));
        spent_ms += shd_clock_ms() - start_ms;
        stamp(p, at);
        if (memcmp(p->written, p->read, (size_t)p->block_bytes) != 0)
            return shd_fail(SHERD_IO, "%s: what was written there reads back otherwise, in bytes %lld to %lld",
                            p->folder, (long long)at, (long long)(at + p->block_bytes));
    }
    p->rates.read_bytes_per_s = rate(at, spent_ms);
    return SHERD_OK;
}

/* A file must not grow beyond the limit. */
static int64_t limit_bytes(int64_t most_bytes) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return most_bytes;
    return shd_min(most_bytes, (int64_t)shd_min(limit.rlim_cur, (rlim_t)INT64_MAX));
}

static sherd_status run(probe *p, int64_t most_bytes, double most_ms) {
    SHD_TRY(open_file(p));
    fill(p);
    SHD_TRY(write_blocks(p, most_bytes, most_ms));
    return read_blocks(p, most_ms);
}

sherd_status shd_disk_probe(const char *folder, int64_t most_bytes, double most_ms, shd_disk_rates *out) {
    most_bytes = limit_bytes(most_bytes);
    probe p = {.folder = folder, .file = -1};
    p.block_bytes = shd_min(BLOCK_BYTES, most_bytes / SECTOR_BYTES * SECTOR_BYTES);
    if (p.block_bytes <= 0) return shd_fail(SHERD_IO, "%s: there is no room to measure in", folder);
    p.written = shd_map(2 * BLOCK_BYTES);
    if (!p.written) return shd_fail(SHERD_MEMORY, "no memory for %d bytes to write", 2 * BLOCK_BYTES);
    p.read = p.written + WORDS;
    sherd_status status = run(&p, most_bytes, most_ms);
    shd_file_close(p.file);
    shd_unmap(p.written, 2 * BLOCK_BYTES);
    if (status == SHERD_OK) *out = p.rates;
    return status;
}
