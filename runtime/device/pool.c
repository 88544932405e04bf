/* The pool: one ticket from which every thread takes task numbers, and threads that sleep between runs.
 *
 * - `ticket` holds (run number, tasks left to take). A thread takes a task by lowering it with a compare-and-swap, so a
 *   thread that wakes late finds another run number, or nothing left, and takes nothing; nobody has to wait for it.
 * - `task`, `argument` and `count` are written while nothing is left to take, before the ticket of their run is
 *   published, and stay until all tasks of the run are done. A thread reads them between loading the ticket and the
 *   swap: if the swap succeeds, a task was left, so the run was not over and what it read was that run's.
 * - Waiting is a few pauses, then some sched_yield, then sleep: ranks share cores, and a spinning thread takes the core
 *   from the one it waits for. */
#include "runtime/device/pool.h"

#include "runtime/base/memory.h"
#include "runtime/base/spin.h"
#include "runtime/base/status.h"

#include <assert.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

enum { CACHE_LINE_BYTES = 64, PAUSES = 200, YIELDS = 60, THREADS_MAX = 1024 };

typedef struct worker {
    shd_pool *pool;
    pthread_t thread;
    int32_t index;
} worker;

struct shd_pool {
    _Atomic uint64_t ticket; /* run number << 32 | tasks left */
    char apart_1[CACHE_LINE_BYTES];
    _Atomic int64_t done; /* finished tasks of this run */
    char apart_2[CACHE_LINE_BYTES];
    _Atomic(shd_task_fn) task;
    _Atomic(void *) argument;
    _Atomic int64_t count;
    _Atomic uint32_t run;       /* raised when a run, or the end, is to be noticed */
    _Atomic int32_t sleepers;   /* threads that wait on `work` */
    _Atomic bool caller_sleeps; /* the caller waits on `finished` */
    _Atomic bool stop;
    pthread_mutex_t mutex;
    pthread_cond_t work, finished;
    int32_t thread_count;
    int32_t started;
    worker workers[]; /* thread_count - 1 */
};

static bool run_changed(shd_pool *pool, int64_t seen) { return atomic_load(&pool->run) != (uint32_t)seen; }
static bool all_done(shd_pool *pool, int64_t count) { return atomic_load(&pool->done) == count; }

/* Waits awake for a bounded time; false when it gave up. */
static bool wait_awake(shd_pool *pool, bool (*over)(shd_pool *, int64_t), int64_t value) {
    for (int i = 0; i < PAUSES; i++) {
        if (over(pool, value)) return true;
        shd_spin_pause();
    }
    for (int i = 0; i < YIELDS; i++) {
        if (over(pool, value)) return true;
        sched_yield();
    }
    return over(pool, value);
}

/* Takes and runs tasks of run `run` until none is left. */
static void work_on(shd_pool *pool, uint32_t run, int32_t worker_index) {
    uint64_t ticket = atomic_load(&pool->ticket);
    while ((uint32_t)(ticket >> 32) == run) {
        const int64_t left = (int64_t)(uint32_t)ticket;
        if (left == 0) return;
        shd_task_fn task = atomic_load_explicit(&pool->task, memory_order_relaxed);
        void *argument = atomic_load_explicit(&pool->argument, memory_order_relaxed);
        const int64_t count = atomic_load_explicit(&pool->count, memory_order_relaxed);
        if (!atomic_compare_exchange_weak(&pool->ticket, &ticket, ticket - 1)) continue;
        const int64_t index = count - left;
        task(argument, index, worker_index);
        if (atomic_fetch_add(&pool->done, 1) + 1 == count && worker_index != 0 && atomic_load(&pool->caller_sleeps)) {
            pthread_mutex_lock(&pool->mutex);
            pthread_cond_signal(&pool->finished);
            pthread_mutex_unlock(&pool->mutex);
        }
        ticket = atomic_load(&pool->ticket);
    }
}

static void *worker_main(void *argument) {
    worker *self = argument;
    shd_pool *pool = self->pool;
    uint32_t seen = 0;
    for (;;) {
        if (!wait_awake(pool, run_changed, seen)) {
            pthread_mutex_lock(&pool->mutex);
            atomic_fetch_add(&pool->sleepers, 1);
            while (!run_changed(pool, seen)) pthread_cond_wait(&pool->work, &pool->mutex);
            atomic_fetch_sub(&pool->sleepers, 1);
            pthread_mutex_unlock(&pool->mutex);
        }
        if (atomic_load(&pool->stop)) return NULL;
        seen = atomic_load(&pool->run);
        work_on(pool, seen, self->index);
    }
}

/* Makes every thread notice the next run number. The order of `run` and `sleepers` here is the reverse of a sleeper's,
 * so one sees the other. */
static void announce(shd_pool *pool, uint32_t run) {
    atomic_store(&pool->run, run);
    if (atomic_load(&pool->sleepers) == 0) return;
    pthread_mutex_lock(&pool->mutex);
    pthread_cond_broadcast(&pool->work);
    pthread_mutex_unlock(&pool->mutex);
}

void shd_pool_destroy(shd_pool *pool) {
    if (!pool) return;
    atomic_store(&pool->stop, true);
    announce(pool, atomic_load(&pool->run) + 1);
    for (int32_t i = 0; i < pool->started; i++) pthread_join(pool->workers[i].thread, NULL);
    pthread_cond_destroy(&pool->finished);
    pthread_cond_destroy(&pool->work);
    pthread_mutex_destroy(&pool->mutex);
    shd_free(pool);
}

/* Starts the threads with every signal blocked: signals are the business of the thread that made the pool. */
static sherd_status start_threads(shd_pool *pool) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = 0;
    while (pool->started < pool->thread_count - 1 && !error) {
        worker *next = &pool->workers[pool->started];
        *next = (worker){.pool = pool, .index = pool->started + 1};
        error = pthread_create(&next->thread, NULL, worker_main, next);
        if (!error) pool->started++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error)
        return shd_fail(SHERD_MEMORY, "cannot start compute thread %d of %d: %s", pool->started + 2, pool->thread_count,
                        strerror(error));
    return SHERD_OK;
}

sherd_status shd_pool_create(int32_t thread_count, shd_pool **out) {
    if (thread_count < 1 || thread_count > THREADS_MAX)
        return shd_fail(SHERD_ARGUMENT, "%d compute threads: 1 to %d are possible", thread_count, THREADS_MAX);
    shd_pool *pool = shd_alloc(1, sizeof(shd_pool) + sizeof(worker) * (size_t)(thread_count - 1));
    if (!pool) return shd_fail(SHERD_MEMORY, "no memory for a pool of %d threads", thread_count);
    pool->thread_count = thread_count;
    pthread_mutex_init(&pool->mutex, NULL);
    pthread_cond_init(&pool->work, NULL);
    pthread_cond_init(&pool->finished, NULL);
    sherd_status status = start_threads(pool);
    if (status != SHERD_OK) {
        shd_pool_destroy(pool);
        return status;
    }
    *out = pool;
    return SHERD_OK;
}

int32_t shd_pool_threads(const shd_pool *pool) { return pool->thread_count; }

void shd_pool_run(shd_pool *pool, shd_task_fn task, void *argument, int64_t task_count) {
    assert(task_count < (int64_t)UINT32_MAX);
    if (pool->thread_count == 1 || task_count <= 1) {
        for (int64_t i = 0; i < task_count; i++) task(argument, i, 0);
        return;
    }
    uint32_t run = atomic_load(&pool->run) + 1;
    atomic_store_explicit(&pool->task, task, memory_order_relaxed);
    atomic_store_explicit(&pool->argument, argument, memory_order_relaxed);
    atomic_store_explicit(&pool->count, task_count, memory_order_relaxed);
    atomic_store(&pool->done, 0);
    atomic_store(&pool->ticket, (uint64_t)run << 32 | (uint64_t)task_count);
    announce(pool, run);
    work_on(pool, run, 0);
    if (wait_awake(pool, all_done, task_count)) return;
    pthread_mutex_lock(&pool->mutex);
    atomic_store(&pool->caller_sleeps, true);
    while (!all_done(pool, task_count)) pthread_cond_wait(&pool->finished, &pool->mutex);
    atomic_store(&pool->caller_sleeps, false);
    pthread_mutex_unlock(&pool->mutex);
}
