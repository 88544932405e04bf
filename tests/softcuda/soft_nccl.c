/* NCCL's entry points: communicators and what is called on them. */
#include "tests/softcuda/soft_nccl.h"

#include "tests/softcuda/soft_internal.h"

#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* Calls whose sides must agree. */
enum { CALL_ALL_GATHER, CALL_REDUCE_SCATTER, CALL_SEND_RECV, CALLS };

static const double BLOCKING_LIMIT_S = 20;
enum { GROUP_KERNELS = 16 };

static _Thread_local char last_error[256];
static soft_nccl_host *hosts;
static _Thread_local soft_nccl_host *this_host;
static _Thread_local struct {
    int depth;
    soft_nccl_kernel *kernels[GROUP_KERNELS]; /* one for each communicator */
    int count;
    ncclResult_t failure;
} group;

const char *soft_nccl_call_name(int call) {
    static const char *const names[CALLS] = {"ncclAllGather", "ncclReduceScatter", "ncclSend and ncclRecv"};
    return call >= 0 && call < CALLS ? names[call] : "something";
}

static ncclResult_t fail(ncclResult_t result, const char *format, ...) __attribute__((format(printf, 2, 3)));
static ncclResult_t fail(ncclResult_t result, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(last_error, sizeof last_error, format, arguments);
    va_end(arguments);
    return result;
}

/* Misuse: reported, and refused. */
static ncclResult_t misuse(const char *what, const char *function) {
    softcuda_add_report("nccl: %s: %s", function, what);
    return fail(ncclInvalidUsage, "%s: %s", function, what);
}

#define ENTER()                                                                                                        \
    do {                                                                                                               \
        int code_ = softcuda_enter(__func__);                                                                          \
        if (code_) return fail((ncclResult_t)code_, "%s was made to fail", __func__);                                  \
    } while (0)

/* --- shared memory ------------------------------------------------------------------------------------------------ */

static double now_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Joins the communicator of this name, making it where this rank is the first. NULL: it cannot be. */
static struct ncclComm *join(const char *name, int size, int rank, bool is_blocking) {
    size_t bytes = sizeof(soft_nccl_shared) + (size_t)size * (size_t)size * sizeof(soft_nccl_ring);
    int file = shm_open(name, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    if (file < 0) return NULL;
    void *memory =
        ftruncate(file, (off_t)bytes) ? MAP_FAILED : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (memory == MAP_FAILED) return NULL;
    struct ncclComm *communicator = calloc(1, sizeof *communicator);
    if (!this_host) {
        this_host = calloc(1, sizeof *this_host);
        this_host->next = hosts;
        hosts = this_host;
    }
    if (this_host->communicators++ == 0) this_host->launched = this_host->started = 0;
    snprintf(communicator->name, sizeof communicator->name, "%s", name);
    communicator->shared = memory;
    communicator->shared_bytes = bytes;
    communicator->size = size;
    communicator->rank = rank;
    communicator->is_blocking = is_blocking;
    communicator->job = SOFT_NCCL_JOIN;
    communicator->delay = (int)(softcuda_random() % 4);
    communicator->references = 1;
    communicator->host = this_host;
    int32_t none = 0;
    if (!atomic_compare_exchange_strong(&communicator->shared->size, &none, size) && none != size)
        softcuda_add_report("nccl: rank %d joins %s of %d ranks where others join %d", rank, name, size, none);
    atomic_fetch_add(&communicator->shared->joined, 1);
    softcuda_watch_progress((const volatile uint64_t *)&communicator->shared->progress);
    return communicator;
}

void soft_nccl_release(struct ncclComm *communicator) {
    if (--communicator->references > 0) return;
    communicator->host->communicators--;
    softcuda_unwatch_progress((const volatile uint64_t *)&communicator->shared->progress);
    munmap(communicator->shared, communicator->shared_bytes);
    free(communicator);
}

/* --- jobs: what communicators without blocking do while they are looked at ---------------------------------------- */

static bool has_joined(struct ncclComm *communicator) {
    if (atomic_load(&communicator->shared->joined) < communicator->size) return false;
    shm_unlink(communicator->name); /* all have it; whoever comes second finds nothing */
    return true;
}

static void look(struct ncclComm *communicator);

/* This rank's place among those of its color: by key, then by rank. False: some have not chosen yet. */
static bool find_place(const struct ncclComm *communicator, int *size, int *rank) {
    uint64_t number = communicator->splits;
    const struct soft_nccl_choice *all = communicator->shared->choices[number % SOFT_NCCL_SPLITS];
    const struct soft_nccl_choice *own = &all[communicator->rank];
    *size = *rank = 0;
    for (int r = 0; r < communicator->size; r++)
        if (atomic_load(&all[r].number) != number) return false;
    for (int r = 0; r < communicator->size; r++) {
        if (all[r].color != own->color) continue;
        *size += 1;
        *rank += all[r].key < own->key || (all[r].key == own->key && r < communicator->rank);
    }
    return true;
}

static bool has_split(struct ncclComm *communicator) {
    char name[96];
    int size, rank;
    uint64_t number = communicator->splits;
    if (!communicator->child) {
        if (!find_place(communicator, &size, &rank)) return false;
        int color = communicator->shared->choices[number % SOFT_NCCL_SPLITS][communicator->rank].color;
        snprintf(name, sizeof name, "%.70s-%llu-%d", communicator->name, (unsigned long long)number, color);
        communicator->child = join(name, size, rank, communicator->is_blocking);
        if (!communicator->child) {
            communicator->failure = fail(ncclSystemError, "no shared memory for %s", name);
            return true;
        }
    }
    look(communicator->child);
    if (communicator->child->job != SOFT_NCCL_IDLE) return false;
    *communicator->child_out = communicator->child;
    communicator->child = NULL;
    return true;
}

static bool has_launched(struct ncclComm *communicator) {
    soft_nccl_kernel *kernel = communicator->kernel;
    communicator->kernel = NULL;
    ncclResult_t result = soft_nccl_launch(kernel);
    if (result != ncclSuccess) communicator->failure = fail(result, "a kernel could not be launched");
    return true;
}

static void report_quarrel(struct ncclComm *communicator) {
    const soft_nccl_quarrel *quarrel = &communicator->quarrel;
    const soft_nccl_heading *ours = &quarrel->ours, *theirs = &quarrel->theirs;
    softcuda_add_report("nccl: rank %d has %s of %llu bytes, its call %llu, where rank %d has %s of %llu, its call "
                        "%llu, in communicator %s",
                        communicator->rank, soft_nccl_call_name((int)ours->call), (unsigned long long)ours->bytes,
                        (unsigned long long)ours->launch, quarrel->peer, soft_nccl_call_name((int)theirs->call),
                        (unsigned long long)theirs->bytes, (unsigned long long)theirs->launch, communicator->name);
    communicator->quarrel.is_there = false;
}

/* Goes on with the communicator's job. */
static void look(struct ncclComm *communicator) {
    bool is_done = false;
    if (communicator->quarrel.is_there) report_quarrel(communicator);
    if (communicator->job == SOFT_NCCL_IDLE || communicator->is_aborted || communicator->failure != ncclSuccess) return;
    if (communicator->delay > 0 && !communicator->is_blocking) {
        communicator->delay--;
        return;
    }
    switch (communicator->job) {
    case SOFT_NCCL_IDLE: break;
    case SOFT_NCCL_JOIN: is_done = has_joined(communicator); break;
    case SOFT_NCCL_SPLIT: is_done = has_split(communicator); break;
    case SOFT_NCCL_LAUNCH: is_done = has_launched(communicator); break;
    case SOFT_NCCL_END: is_done = communicator->finished == communicator->launched; break;
    }
    if (is_done) communicator->job = SOFT_NCCL_IDLE;
}

static ncclResult_t state_of(const struct ncclComm *communicator) {
    if (communicator->failure != ncclSuccess) return communicator->failure;
    return communicator->job == SOFT_NCCL_IDLE ? ncclSuccess : ncclInProgress;
}

/* Begins a job. With blocking: returns when it is done, under the device's lock but for the waits. */
static ncclResult_t begin(struct ncclComm *communicator, soft_nccl_job job) {
    communicator->job = job;
    communicator->delay = (int)(softcuda_random() % 4);
    if (!communicator->is_blocking) return ncclInProgress;
    double end_s = now_s() + BLOCKING_LIMIT_S;
    for (look(communicator); state_of(communicator) == ncclInProgress; look(communicator)) {
        if (now_s() > end_s) return fail(ncclSystemError, "peers of %s did not come", communicator->name);
        soft_unlock();
        sched_yield();
        soft_lock();
        (void)soft_step();
    }
    return state_of(communicator);
}

/* --- communicators ------------------------------------------------------------------------------------------------ */

ncclResult_t ncclGetVersion(int *version) {
    *version = NCCL_VERSION_CODE;
    return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t result) {
    static const char *const texts[] = {"no error",
                                        "unhandled cuda error",
                                        "unhandled system error",
                                        "internal error",
                                        "invalid argument",
                                        "invalid usage",
                                        "remote process exited or there was a network error",
                                        "in progress"};
    return (size_t)result < sizeof texts / sizeof *texts ? texts[result] : "unknown result code";
}

const char *ncclGetLastError(ncclComm_t communicator) {
    (void)communicator;
    return last_error;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
    static atomic_int count;
    ENTER();
    memset(id, 0, sizeof *id);
    snprintf(id->internal, sizeof id->internal, "/softnccl-%d-%d-%.0f", (int)getpid(), atomic_fetch_add(&count, 1),
             now_s() * 1e6);
    return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *communicator, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t *config) {
    ENTER();
    if (size < 1 || size > SOFT_NCCL_RANKS || rank < 0 || rank >= size) return misuse("no such rank", __func__);
    bool is_blocking = !config || config->blocking != 0;
    soft_lock();
    *communicator = join(id.internal, size, rank, is_blocking);
    ncclResult_t result = *communicator ? begin(*communicator, SOFT_NCCL_JOIN)
                                        : fail(ncclSystemError, "no shared memory for %s", id.internal);
    soft_unlock();
    return result;
}

/* Refuses calls on a communicator that has not done the last one, or has failed. */
static ncclResult_t check(const struct ncclComm *communicator, const char *function) {
    if (!communicator) return misuse("no communicator", function);
    if (communicator->failure != ncclSuccess) return fail(communicator->failure, "%s has failed", communicator->name);
    if (communicator->job != SOFT_NCCL_IDLE) return misuse("the communicator is still in progress", function);
    return ncclSuccess;
}

ncclResult_t ncclCommSplit(ncclComm_t communicator, int color, int key, ncclComm_t *out, ncclConfig_t *config) {
    ENTER();
    ncclResult_t result = check(communicator, __func__);
    if (result != ncclSuccess) return result;
    if (color < 0) return misuse("ranks that get no communicator are not played", __func__);
    if (config && (config->blocking != 0) != communicator->is_blocking)
        return misuse("a split that blocks otherwise than its parent is not played", __func__);
    soft_lock();
    *out = NULL;
    uint64_t number = ++communicator->splits;
    struct soft_nccl_choice *own = &communicator->shared->choices[number % SOFT_NCCL_SPLITS][communicator->rank];
    own->color = color;
    own->key = key;
    atomic_store(&own->number, number);
    communicator->child_out = out;
    result = begin(communicator, SOFT_NCCL_SPLIT);
    soft_unlock();
    return result;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t communicator, ncclResult_t *state) {
    ENTER();
    if (!communicator) return misuse("no communicator", __func__);
    int code = softcuda_enter("ncclAsyncError");
    soft_lock();
    if (code && communicator->failure == ncclSuccess)
        communicator->failure = fail((ncclResult_t)code, "the communicator was made to fail");
    look(communicator);
    *state = state_of(communicator);
    soft_unlock();
    return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t communicator) {
    ENTER();
    ncclResult_t result = check(communicator, __func__);
    if (result != ncclSuccess) return result;
    soft_lock();
    result = begin(communicator, SOFT_NCCL_END);
    soft_unlock();
    return result;
}

/* Kernels that run end as they are, and the memory goes with the last of them. */
static ncclResult_t end(struct ncclComm *communicator) {
    soft_lock();
    communicator->is_aborted = true;
    if (communicator->kernel) soft_nccl_kernel_drop(communicator->kernel);
    communicator->kernel = NULL;
    if (communicator->child) end(communicator->child);
    shm_unlink(communicator->name);
    soft_nccl_release(communicator);
    soft_unlock();
    return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t communicator) {
    ENTER();
    return communicator ? end(communicator) : ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t communicator) {
    ENTER();
    if (!communicator) return ncclSuccess;
    if (communicator->finished != communicator->launched) return misuse("kernels are under way", __func__);
    return end(communicator);
}

/* --- groups ------------------------------------------------------------------------------------------------------- */

ncclResult_t ncclGroupStart(void) {
    ENTER();
    group.depth++;
    return ncclSuccess;
}

static ncclResult_t close_group(void) {
    ncclResult_t result = group.failure;
    soft_lock();
    for (int i = 0; i < group.count; i++) {
        struct ncclComm *communicator = group.kernels[i]->communicator;
        if (group.failure != ncclSuccess) {
            soft_nccl_kernel_drop(group.kernels[i]);
            continue;
        }
        communicator->kernel = group.kernels[i];
        ncclResult_t began = begin(communicator, SOFT_NCCL_LAUNCH);
        if (began != ncclSuccess && (result == ncclSuccess || result == ncclInProgress)) result = began;
    }
    soft_unlock();
    group.count = 0;
    group.failure = ncclSuccess;
    return result;
}

ncclResult_t ncclGroupEnd(void) {
    ENTER();
    if (group.depth == 0) return misuse("there is no group", __func__);
    return --group.depth == 0 ? close_group() : ncclSuccess;
}

/* The group's kernel for the communicator. NULL: the call is refused, and the group with it. */
static soft_nccl_kernel *open_kernel(struct ncclComm *communicator, cudaStream_t stream, const char *function) {
    group.failure = check(communicator, function);
    for (int i = 0; i < group.count && group.failure == ncclSuccess; i++) {
        if (group.kernels[i]->communicator != communicator) continue;
        if (group.kernels[i]->stream == stream) return group.kernels[i];
        group.failure = misuse("a group on several streams is not played", function);
    }
    if (group.failure == ncclSuccess && group.count == GROUP_KERNELS)
        group.failure = misuse("a group of so many communicators is not played", function);
    if (group.failure != ncclSuccess) return NULL;
    soft_lock();
    group.kernels[group.count] = soft_nccl_kernel_create(communicator, stream);
    soft_unlock();
    return group.kernels[group.count++];
}

/* Begins a call, in a group of its own where there is none. */
#define OPEN(kernel, count, type, communicator, stream)                                                                \
    soft_nccl_kernel *kernel;                                                                                          \
    ENTER();                                                                                                           \
    if ((count) == 0) return ncclSuccess;                                                                              \
    if (bytes_of(type) == 0) return misuse("a type that is not played", __func__);                                     \
    kernel = open_kernel(communicator, stream, __func__);                                                              \
    if (!kernel) return group.depth == 0 ? close_group() : group.failure

static ncclResult_t close_call(void) { return group.depth == 0 ? close_group() : ncclSuccess; }

static size_t bytes_of(ncclDataType_t type) {
    switch (type) {
    case ncclInt8:
    case ncclUint8: return 1;
    case ncclFloat16:
    case ncclBfloat16: return 2;
    case ncclInt32:
    case ncclUint32:
    case ncclFloat32: return 4;
    case ncclInt64:
    case ncclUint64:
    case ncclFloat64: return 8;
    default: return 0;
    }
}

static bool overlap(const void *a, size_t a_bytes, const void *b, size_t b_bytes) {
    uintptr_t at = (uintptr_t)a, bt = (uintptr_t)b;
    return at < bt + b_bytes && bt < at + a_bytes;
}

ncclResult_t ncclAllGather(const void *from, void *to, size_t count, ncclDataType_t type, ncclComm_t communicator,
                           cudaStream_t stream) {
    OPEN(kernel, count, type, communicator, stream);
    size_t bytes = count * bytes_of(type);
    char *own = (char *)to + (size_t)communicator->rank * bytes;
    if (from != own && overlap(from, bytes, to, bytes * (size_t)communicator->size))
        softcuda_add_report("nccl: %s: rank %d gives what lies in the result, but not in its place", __func__,
                            communicator->rank);
    soft_nccl_add_access(kernel, from, bytes, false);
    for (int peer = 0; peer < communicator->size; peer++) {
        char *place = (char *)to + (size_t)peer * bytes;
        soft_nccl_part part = {.kind = SOFT_NCCL_GIVE, .peer = peer, .call = CALL_ALL_GATHER, .bytes = bytes};
        part.from = from;
        part.to = place;
        if (place != from) soft_nccl_add_access(kernel, place, bytes, true);
        if (peer == communicator->rank) part.kind = SOFT_NCCL_COPY;
        soft_nccl_add_part(kernel, part);
        part.kind = SOFT_NCCL_TAKE;
        if (peer != communicator->rank) soft_nccl_add_part(kernel, part);
    }
    return close_call();
}

/* Peers' parts are taken to scratch memory and added in an order that begins with the next rank, as a ring does. */
ncclResult_t ncclReduceScatter(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t sum,
                               ncclComm_t communicator, cudaStream_t stream) {
    OPEN(kernel, count, type, communicator, stream);
    size_t bytes = count * sizeof(float), size = (size_t)communicator->size;
    const char *own = (const char *)from + (size_t)communicator->rank * bytes;
    if (type != ncclFloat32 || sum != ncclSum || kernel->scratch)
        group.failure = misuse("only one sum of floats in a group is played", __func__);
    if (to != own && overlap(to, bytes, from, bytes * size))
        softcuda_add_report("nccl: %s: rank %d takes its result into what it gives, but not in its place", __func__,
                            communicator->rank);
    if (group.failure != ncclSuccess) return group.depth == 0 ? close_group() : group.failure;
    char *scratch = kernel->scratch = malloc(bytes * size);
    soft_nccl_add_access(kernel, from, bytes * size, false);
    soft_nccl_add_access(kernel, to, bytes, true);
    for (int peer = 0; peer < communicator->size; peer++) {
        soft_nccl_part part = {.kind = SOFT_NCCL_GIVE, .peer = peer, .call = CALL_REDUCE_SCATTER, .bytes = bytes};
        part.from = (const char *)from + (size_t)peer * bytes;
        part.to = scratch + (size_t)peer * bytes;
        if (peer == communicator->rank) part.kind = SOFT_NCCL_COPY;
        soft_nccl_add_part(kernel, part);
        part.kind = SOFT_NCCL_TAKE;
        if (peer != communicator->rank) soft_nccl_add_part(kernel, part);
    }
    soft_nccl_part last = {.kind = SOFT_NCCL_ADD, .call = CALL_REDUCE_SCATTER, .bytes = bytes, .is_after = true};
    last.to = scratch + (size_t)((communicator->rank + 1) % communicator->size) * bytes;
    for (int step = 2; step <= communicator->size; step++) {
        last.from = scratch + (size_t)((communicator->rank + step) % communicator->size) * bytes;
        soft_nccl_add_part(kernel, last);
    }
    last.kind = SOFT_NCCL_COPY;
    last.from = last.to;
    last.to = to;
    soft_nccl_add_part(kernel, last);
    return close_call();
}

static ncclResult_t add_pair(soft_nccl_kernel *kernel, soft_nccl_part part, const char *function) {
    if (part.peer < 0 || part.peer >= kernel->communicator->size) group.failure = misuse("no such peer", function);
    part.call = CALL_SEND_RECV;
    soft_nccl_add_access(kernel, part.to ? part.to : part.from, part.bytes, part.to != NULL);
    soft_nccl_add_part(kernel, part);
    return close_call();
}

ncclResult_t ncclSend(const void *from, size_t count, ncclDataType_t type, int peer, ncclComm_t communicator,
                      cudaStream_t stream) {
    OPEN(kernel, count, type, communicator, stream);
    soft_nccl_part part = {.kind = SOFT_NCCL_GIVE, .peer = peer, .from = from, .bytes = count * bytes_of(type)};
    return add_pair(kernel, part, __func__);
}

ncclResult_t ncclRecv(void *to, size_t count, ncclDataType_t type, int peer, ncclComm_t communicator,
                      cudaStream_t stream) {
    OPEN(kernel, count, type, communicator, stream);
    soft_nccl_part part = {.kind = SOFT_NCCL_TAKE, .peer = peer, .to = to, .bytes = count * bytes_of(type)};
    return add_pair(kernel, part, __func__);
}
