#include "runtime/train/preflight.h"

#include "io/checkpoint_folder.h"
#include "io/file.h"
#include "io/folder.h"
#include "io/job_keys.h"
#include "runtime/base/arith.h"
#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/base/spare.h"
#include "runtime/base/status.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

static double gib(int64_t bytes) { return (double)bytes / (1 << 30); }

/* OpenBLAS's work memory: 128 MiB a thread of its own pool and one more, hardly touched. Where it cannot have them it
 * tries for ever, inside the first product: so room is asked for before. */
enum { BLAS_BYTES = 320 << 20 };

/* A rank maps its own arena and those of its peers, and what every replica shares. */
static sherd_status check_address_space(const shd_plan *plan) {
    const int64_t *arenas = plan->arena_bytes;
    if (plan->policy.on_device) return SHERD_OK; /* drivers map more than there is, and say so themselves */
    struct rlimit limit;
    if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return SHERD_OK;
    int64_t wanted = BLAS_BYTES + arenas[SHD_PLACE_PRIVATE];
    wanted += arenas[SHD_PLACE_EXPORTED] * plan->policy.world_size + arenas[SHD_PLACE_HOST] * plan->policy.replicas;
    if (shd_memory_can_map(wanted)) return SHERD_OK;
    return shd_fail(
        SHERD_MEMORY,
        "a rank maps %.0f MiB, but the limit on address space is %.0f MiB, programs and libraries included; "
        "raise it (ulimit -v unlimited), or limit memory by a control group",
        1024 * gib(wanted), 1024 * gib((int64_t)limit.rlim_cur));
}

int64_t shd_preflight_host_bytes(const shd_plan *plan) {
    return plan->policy.on_device ? plan->arena_bytes[SHD_PLACE_PINNED] : plan->allocated_bytes;
}

sherd_status shd_preflight_memory(const shd_job *job, const shd_plan *plan) {
    int64_t wanted, there = shd_memory_total();
    int64_t rank_bytes = shd_preflight_host_bytes(plan);
    if (!shd_mul_checked(rank_bytes, job->run.ranks, &wanted)) wanted = INT64_MAX;
    if (wanted <= there) return check_address_space(plan);
    const char *stage = job->run.ranks > 1 && job->shard.stage < 3 ? ", or set shard.stage: 3" : "";
    sherd_status status = shd_fail(
        SHERD_CONFIG,
        "%lld rank%s of %lld bytes need %.1f GiB, and this machine has %.1f GiB; lower train.micro_batch%s or the "
        "size of the model%s ('sherd plan' shows what takes how much)",
        (long long)job->run.ranks, job->run.ranks == 1 ? "" : "s", (long long)rank_bytes, gib(wanted), gib(there),
        shd_job_has(job, "model.context") ? ", model.context" : "", stage);
    return shd_job_fail_within(job, status);
}

/* --- looking at folders ------------------------------------------------------------------------------------------- */

/* A folder of outputs, by the key that names it. */
typedef struct output {
    const char *key, *path;
} output;

static sherd_status refuse(const shd_job *job, const output *out, const char *what, const char *path, int cause) {
    return shd_job_fail_within(
        job, shd_fail(SHERD_DATA, "%s is %s: %s %s: %s", out->key, out->path, what, path, strerror(cause)));
}

/* `above` = the nearest that is there of the path and the folders above it. */
static sherd_status find_existing(const shd_job *job, const output *out, char above[SHD_PATH_BYTES]) {
    struct stat about;
    SHD_TRY(shd_path_make(above, "%s", out->path));
    while (stat(above, &about) != 0) {
        char next[SHD_PATH_BYTES];
        if (errno != ENOENT && errno != ENOTDIR) return refuse(job, out, "cannot look at", above, errno);
        SHD_TRY(shd_path_folder(next, above));
        SHD_TRY(shd_path_make(above, "%s", next));
    }
    if (S_ISDIR(about.st_mode)) return SHERD_OK;
    return shd_job_fail_within(
        job, shd_fail(SHERD_DATA, "%s is %s, but %s is a file; a folder is needed", out->key, out->path, above));
}

static sherd_status look(const shd_job *job, const output *out, char above[SHD_PATH_BYTES]) {
    SHD_TRY(find_existing(job, out, above));
    return access(above, W_OK | X_OK) == 0 ? SHERD_OK : refuse(job, out, "cannot write in", above, errno);
}

int64_t shd_preflight_checkpoint_bytes(const shd_plan *plan) {
    int64_t bytes = plan->parameter_count * SHD_FLOAT_BYTES;
    for (int32_t t = 0; t < plan->tensor_count; t++) {
        const shd_tensor_place *place = &plan->places[t];
        for (int32_t s = 0; s < SHD_MAX_OWNED_STATES; s++) bytes += place->state_counts[s] * SHD_FLOAT_BYTES;
        if (!place->whole && !plan->tensors[t].frozen)
            bytes += plan->policy.state_count * shd_span_bytes(plan->policy.state_dtype, place->element_count);
    }
    return bytes;
}

/* What the checkpoints that are there take; 0: none, or nobody knows. */
static int64_t count_bytes_there(const char *dir) {
    shd_checkpoint_list list = {0};
    int64_t bytes = 0;
    if (shd_checkpoint_list_folders(dir, &list) != SHERD_OK) return 0;
    for (int64_t i = 0; i < list.count; i++)
        if (!list.entries[i].flaw) bytes += list.entries[i].stored_bytes;
    shd_checkpoint_list_release(&list);
    return bytes;
}

/* One save is refused when there is no room for it; of those that will stay the caller may say something: compression
 * makes them smaller, and others may make room. */
static sherd_status check_room(const shd_job *job, const shd_plan *plan, shd_preflight_room *room) {
    struct statvfs about;
    room->one_bytes = shd_preflight_checkpoint_bytes(plan);
    /* A file system that does not tell may have room. */
    if (statvfs(room->folder, &about) != 0 || about.f_blocks == 0) return SHERD_OK;
    room->there_bytes = (int64_t)about.f_bavail * (int64_t)about.f_frsize;
    if (room->one_bytes > room->there_bytes)
        return shd_job_fail_within(
            job,
            shd_fail(SHERD_DATA,
                     "checkpoint.dir is %s, which has %lld bytes free, but one checkpoint takes %lld; make room, or "
                     "set checkpoint.dir to where there is some",
                     job->checkpoint.dir, (long long)room->there_bytes, (long long)room->one_bytes));
    int64_t all_bytes;
    if (job->checkpoint.keep > 0 && shd_mul_checked(room->one_bytes, job->checkpoint.keep + 1, &all_bytes)) {
        room->all_bytes = all_bytes;
        room->taken_bytes = count_bytes_there(job->checkpoint.dir);
    }
    return SHERD_OK;
}

sherd_status shd_preflight_outputs(const shd_job *job, const shd_plan *plan, shd_preflight_room *room) {
    const output checkpoints = {"checkpoint.dir", job->checkpoint.dir}, logs = {"log.dir", job->log.dir};
    *room = (shd_preflight_room){.there_bytes = -1};
    SHD_TRY(look(job, &logs, room->folder));
    SHD_TRY(look(job, &checkpoints, room->folder));
    return check_room(job, plan, room);
}

/* --- claiming them ------------------------------------------------------------------------------------------------ */

enum { PATIENCE_MS = 3000, PAUSE_NS = 20 * 1000 * 1000 };

/* Whether files can be made, before hours are spent on what goes into them. */
static sherd_status probe(const shd_job *job, const output *out) {
    char path[SHD_PATH_BYTES];
    SHD_TRY(shd_path_make(path, "%s/.sherd-probe", out->path));
    int file = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    if (file < 0) return refuse(job, out, "cannot make", path, errno);
    close(file);
    return unlink(path) == 0 ? SHERD_OK : refuse(job, out, "cannot remove", path, errno);
}

/* Waits for the lock a while. 0, or the errno. */
static int wait_lock(int file) {
    const struct timespec pause = {.tv_nsec = PAUSE_NS};
    for (double until_ms = shd_clock_ms() + PATIENCE_MS; flock(file, LOCK_EX | LOCK_NB) != 0; nanosleep(&pause, NULL))
        if (errno != EINTR && (errno != EWOULDBLOCK || shd_clock_ms() > until_ms)) return errno;
    return 0;
}

/* The holder's process number, as it has written it. */
static sherd_status refuse_second(const output *out, int file) {
    char holder[32] = "";
    ssize_t got = pread(file, holder, sizeof holder - 1, 0);
    return shd_fail(SHERD_IO,
                    "%s is %s, which another job writes to (process %lld); wait for its end, or set another run.dir",
                    out->key, out->path, got > 0 ? strtoll(holder, NULL, 10) : 0);
}

sherd_status shd_preflight_claimable(const shd_job *job, bool *known) {
    const output outputs[] = {{"checkpoint.dir", job->checkpoint.dir}, {"log.dir", job->log.dir}};
    bool all_known = true;
    for (int i = 0; i < 2; i++) {
        char path[SHD_PATH_BYTES];
        SHD_TRY(shd_path_make(path, "%s/.sherd-lock", outputs[i].path));
        int file = open(path, O_RDONLY | O_CLOEXEC);
        if (file < 0) continue;
        bool locked = flock(file, LOCK_SH | LOCK_NB) == 0, held = !locked && errno == EWOULDBLOCK;
        all_known &= locked || held;
        sherd_status status = held ? refuse_second(&outputs[i], file) : SHERD_OK;
        close(file);
        SHD_TRY(status);
    }
    *known = all_known;
    return SHERD_OK;
}

static void sign(int file) {
    char text[32];
    int length = snprintf(text, sizeof text, "%lld\n", (long long)getpid());
    if (ftruncate(file, 0) != 0 || pwrite(file, text, (size_t)length, 0) != length)
        shd_log(SHERD_LOG_DEBUG, "cannot write into a lock file: %s", strerror(errno));
}

/* Programs that are started inherit the descriptor: ranks that outlive a killed launcher for an instant still write. */
static sherd_status lock(const shd_job *job, const output *out, int *file) {
    char path[SHD_PATH_BYTES];
    SHD_TRY(shd_path_make(path, "%s/.sherd-lock", out->path));
    *file = open(path, O_RDWR | O_CREAT, 0666); /* without O_CLOEXEC */
    if (*file < 0) return refuse(job, out, "cannot open", path, errno);
    int cause = wait_lock(*file);
    if (cause == EWOULDBLOCK) return refuse_second(out, *file);
    if (cause != 0)
        shd_log(SHERD_LOG_WARN, "%s cannot be locked (%s): nothing stops a second job from writing there", path,
                strerror(cause));
    else
        sign(*file);
    return SHERD_OK;
}

static sherd_status take(const shd_job *job, const output *out, int *file) {
    char above[SHD_PATH_BYTES];
    SHD_TRY(look(job, out, above));
    if (shd_folder_make(out->path) != SHERD_OK) return shd_fail_within(SHERD_DATA, "%s", out->key);
    SHD_TRY(probe(job, out));
    return file ? lock(job, out, file) : SHERD_OK;
}

/* Also where one is reached through a link. */
static bool is_same(const char *a, const char *b) {
    struct stat one, other;
    return stat(a, &one) == 0 && stat(b, &other) == 0 && one.st_dev == other.st_dev && one.st_ino == other.st_ino;
}

/* What killed jobs have left there is of no use, and nobody's: this job alone may write. */
static void clear_leftovers(const char *dir) {
    int32_t removed;
    if (shd_checkpoint_clear_leftovers(dir, &removed) != SHERD_OK)
        shd_log(SHERD_LOG_WARN, "%s", sherd_last_error());
    else if (removed > 0)
        shd_log(SHERD_LOG_INFO, "%s: removed %d unfinished checkpoint%s that a job has left", dir, removed,
                removed == 1 ? "" : "s");
}

sherd_status shd_claim_take(const shd_job *job, shd_claim *claim) {
    const output checkpoints = {"checkpoint.dir", job->checkpoint.dir}, logs = {"log.dir", job->log.dir};
    *claim = (shd_claim)SHD_CLAIM_INIT;
    SHD_TRY(take(job, &checkpoints, &claim->locks[0]));
    clear_leftovers(job->checkpoint.dir);
    return take(job, &logs, is_same(checkpoints.path, logs.path) ? NULL : &claim->locks[1]);
}

void shd_claim_release(shd_claim *claim) {
    for (int i = 0; i < 2; i++)
        if (claim->locks[i] >= 0) close(claim->locks[i]);
    *claim = (shd_claim)SHD_CLAIM_INIT;
}
