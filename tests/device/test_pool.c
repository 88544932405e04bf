/* The pool is tried with every thread count a small host meets, more threads than cores included, and with runs of
 * every length, among them those that end before a sleeping thread has woken. */
#include "runtime/device/pool.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const int32_t thread_counts[] = {1, 2, 3, 4, 8};
enum { THREAD_COUNTS = sizeof thread_counts / sizeof *thread_counts };

typedef struct tally {
    int32_t *runs; /* how often each task ran; a plain int, so that TSan sees a task given to two threads */
    int32_t threads;
    _Atomic int32_t strangers; /* worker numbers out of range */
    _Atomic int32_t *inside;   /* tasks now running under each worker number */
    _Atomic int32_t clashes;
} tally;

static void count_task(void *argument, int64_t index, int32_t worker) {
    tally *t = argument;
    if (worker < 0 || worker >= t->threads) {
        atomic_fetch_add(&t->strangers, 1);
        return;
    }
    if (atomic_fetch_add(&t->inside[worker], 1) != 0) atomic_fetch_add(&t->clashes, 1);
    t->runs[index]++;
    atomic_fetch_sub(&t->inside[worker], 1);
}

Test(pool, runs_every_task_exactly_once_whatever_the_number_of_threads) {
    static const int64_t counts[] = {0, 1, 2, 3, 17, 1000, 4369};
    for (int n = 0; n < THREAD_COUNTS; n++) {
        shd_pool *pool;
        cr_assert_eq(shd_pool_create(thread_counts[n], &pool), SHERD_OK);
        cr_assert_eq(shd_pool_threads(pool), thread_counts[n]);
        for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
            tally t = {.runs = calloc((size_t)counts[c] + 1, sizeof(int32_t)),
                       .threads = thread_counts[n],
                       .inside = calloc((size_t)thread_counts[n], sizeof(_Atomic int32_t))};
            shd_pool_run(pool, count_task, &t, counts[c]);
            int64_t wrong = 0;
            for (int64_t i = 0; i < counts[c]; i++) wrong += t.runs[i] != 1;
            cr_assert_eq(wrong, 0, "%d of %d tasks did not run once", (int)wrong, (int)counts[c]);
            cr_assert_eq(t.runs[counts[c]], 0);
            cr_assert_eq(atomic_load(&t.strangers), 0);
            cr_assert_eq(atomic_load(&t.clashes), 0);
            free(t.runs);
            free((void *)t.inside);
        }
        shd_pool_destroy(pool);
    }
}

typedef struct chain {
    int64_t *values;
    int64_t count;
} chain;

static void add_neighbour(void *argument, int64_t index, int32_t worker) {
    (void)worker;
    chain *c = argument;
    c->values[c->count + index] = c->values[index] + c->values[(index + 1) % c->count];
}

/* Short runs in quick succession: threads wake late, see runs that are over, and must neither lose nor repeat a
 * task. */
Test(pool, many_short_runs_see_each_others_results) {
    for (int n = 0; n < THREAD_COUNTS; n++) {
        shd_pool *pool;
        cr_assert_eq(shd_pool_create(thread_counts[n], &pool), SHERD_OK);
        int64_t values[14], wrong = 0;
        for (int round = 0; round < 3000; round++) {
            chain c = {.values = values, .count = 2 + round % 6};
            memset(values, 0, sizeof values);
            for (int64_t i = 0; i < c.count; i++) values[i] = round + i;
            shd_pool_run(pool, add_neighbour, &c, c.count);
            for (int64_t i = 0; i < c.count; i++) wrong += values[c.count + i] != 2 * round + i + (i + 1) % c.count;
        }
        cr_assert_eq(wrong, 0, "%d sums are wrong", (int)wrong);
        shd_pool_destroy(pool);
    }
}

static void sleep_a_little(void *argument, int64_t index, int32_t worker) {
    (void)index, (void)worker;
    nanosleep(&(struct timespec){.tv_nsec = 100 * 1000 * 1000}, NULL);
    atomic_fetch_add((_Atomic int32_t *)argument, 1);
}

static double seconds(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void meet(void *argument, int64_t index, int32_t worker) {
    (void)worker;
    _Atomic int32_t *here = argument; /* [0], [1]: arrivals; [2]: meetings */
    atomic_store(&here[index], 1);
    for (int i = 0; i < 20000 && !atomic_load(&here[1 - index]); i++)
        nanosleep(&(struct timespec){.tv_nsec = 1000 * 1000}, NULL);
    atomic_fetch_add(&here[2], atomic_load(&here[1 - index]));
}

/* Two tasks that wait for each other, which one thread alone could not run. */
Test(pool, tasks_run_at_the_same_time) {
    shd_pool *pool;
    cr_assert_eq(shd_pool_create(2, &pool), SHERD_OK);
    _Atomic int32_t here[3] = {0};
    shd_pool_run(pool, meet, here, 2);
    cr_assert_eq(atomic_load(&here[2]), 2);
    shd_pool_destroy(pool);
}

/* Idle threads, and a caller that waits for a long task, must sleep: they use no processor time. */
Test(pool, waiting_threads_sleep) {
    shd_pool *pool;
    cr_assert_eq(shd_pool_create(4, &pool), SHERD_OK);
    _Atomic int32_t ran = 0;
    double start = seconds(CLOCK_PROCESS_CPUTIME_ID);
    shd_pool_run(pool, sleep_a_little, &ran, 5);
    nanosleep(&(struct timespec){.tv_nsec = 200 * 1000 * 1000}, NULL);
    double used = seconds(CLOCK_PROCESS_CPUTIME_ID) - start;
    cr_assert_lt(used, 0.1, "%g s of processor time while everything slept", used);
    shd_pool_destroy(pool);
}

Test(pool, refuses_impossible_thread_counts_and_forgives_null) {
    shd_pool *pool = NULL;
    cr_assert_eq(shd_pool_create(0, &pool), SHERD_ARGUMENT);
    cr_assert_eq(shd_pool_create(-3, &pool), SHERD_ARGUMENT);
    cr_assert_null(pool);
    shd_pool_destroy(NULL);
}
