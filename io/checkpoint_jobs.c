#include "io/checkpoint_reader_parts.h"
#include "runtime/base/arith.h"

#include <assert.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

typedef struct job_list {
    int64_t count;
    atomic_llong next;
    void (*run)(void *user, int64_t job, const shd_decode_room *room);
    void *user;
} job_list;

typedef struct job_thread {
    pthread_t thread;
    job_list *jobs;
    shd_decode_room room;
} job_thread;

int64_t shd_decode_room_bytes(void) {
    int64_t portion_bytes = SHD_PORTION_COUNT * (int64_t)sizeof(float);
    return shd_block_codec_bytes(0) + 2 * shd_block_stored_bytes_max(SHD_BLOCK_RAW_BYTES_MAX) + portion_bytes;
}

shd_decode_room shd_decode_room_init(void *memory) {
    int64_t block_bytes = shd_block_stored_bytes_max(SHD_BLOCK_RAW_BYTES_MAX);
    char *stored = (char *)memory + shd_block_codec_bytes(0), *values = stored + block_bytes;
    void *portion = values + block_bytes;
    return (shd_decode_room){
        .codec = shd_block_codec_init(memory, 0), .stored = stored, .values = values, .portion = portion};
}

int64_t shd_reader_memory_bytes(int32_t threads) { return threads * shd_decode_room_bytes(); }

/* One job; false: none is left. */
static bool run_next(job_thread *self) {
    int64_t job = atomic_fetch_add(&self->jobs->next, 1);
    if (job >= self->jobs->count) return false;
    self->jobs->run(self->jobs->user, job, &self->room);
    return true;
}

static void *run_all(void *argument) {
    while (run_next(argument)) continue;
    return NULL;
}

void shd_jobs_run(const shd_reader_config *config, int64_t count,
                  void (*run)(void *user, int64_t job, const shd_decode_room *room), void (*after)(void *user),
                  void *user) {
    job_thread threads[SHD_READER_THREADS_MAX];
    job_list jobs = {.count = count, .run = run, .user = user};
    sigset_t all, before;
    int32_t wanted = (int32_t)shd_max(shd_min(config->threads, count), 1), started = 1;
    assert(config->threads >= 1 && config->threads <= SHD_READER_THREADS_MAX);
    assert((uintptr_t)config->memory % SHD_BLOCK_ALIGN_BYTES == 0);
    for (int32_t i = 0; i < wanted; i++) {
        void *memory = (char *)config->memory + i * shd_decode_room_bytes();
        threads[i] = (job_thread){.jobs = &jobs, .room = shd_decode_room_init(memory)};
    }
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (started < wanted && pthread_create(&threads[started].thread, NULL, run_all, &threads[started]) == 0)
        started++;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    while (run_next(&threads[0]))
        if (after) after(user);
    for (int32_t i = 1; i < started; i++) pthread_join(threads[i].thread, NULL);
}
