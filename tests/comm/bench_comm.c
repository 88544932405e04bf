/* Time of the collectives over shared memory, beside plain copies of the same bytes by the same ranks in the same run.
 *
 * S is the full buffer. reduce-scatter: every rank folds its S/N from all N; all-gather: every rank copies all N shards
 * into private memory; copy: every rank copies S bytes of its own; barrier: one counter raised and awaited, which is
 * also part of each of the others. Medians over repetitions on rank 0, in microseconds. */
#include "runtime/base/clock.h"
#include "tests/comm/ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const int64_t sizes[] = {1 << 10, 64 << 10, 1 << 20, 16 << 20, 256 << 20};
enum { SIZES = sizeof sizes / sizeof *sizes, MAX_TURNS = 2001 };

typedef struct bench {
    char name[64];
    shd_comm *comm;
    int32_t rank, world;
    int64_t rounds; /* of the barrier */
    unsigned char *private_from, *private_to, *exported;
    int64_t bytes;
} bench;

static void barrier(bench *b) {
    shd_comm_signal(b->comm, 0, 0);
    b->rounds++;
    shd_patience patience = {0};
    while (!shd_comm_reached(b->comm, SHD_SCOPE_ALL, 0, 0, b->rounds))
        if (shd_comm_pause(b->comm, &patience, "barrier")) exit(1);
}

static void do_barrier(bench *b) { (void)b; }
static void do_reduce(bench *b) {
    int64_t count = b->bytes / 4 / b->world;
    if (shd_comm_reduce(b->comm, (float *)(void *)b->private_to, (float *)(void *)b->exported, SHERD_FP32, count, true))
        exit(1);
}
static void do_gather(bench *b) {
    if (shd_comm_gather(b->comm, SHD_COLLECTIVE_GATHER, b->private_to, b->exported, b->bytes / b->world)) exit(1);
}
static void do_copy(bench *b) { memcpy(b->private_to, b->private_from, (size_t)b->bytes); }

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median_us(bench *b, void (*work)(bench *)) {
    int turns = b->bytes > 64 << 20 ? 5 : b->bytes > 4 << 20 ? 31 : b->bytes > 100000 ? 301 : MAX_TURNS;
    double *times = malloc(MAX_TURNS * sizeof *times);
    for (int t = -2; t < turns; t++) { /* two to warm up */
        double start_ms = shd_clock_ms();
        barrier(b);
        work(b);
        if (t >= 0) times[t] = (shd_clock_ms() - start_ms) * 1e3;
    }
    barrier(b);
    qsort(times, (size_t)turns, sizeof *times, ascending);
    double median = times[turns / 2];
    free(times);
    return median;
}

static int bench_body(int32_t rank, int32_t world, void *argument) {
    bench b = *(bench *)argument;
    b.rank = rank;
    b.world = world;
    int64_t most = sizes[SIZES - 1];
    shd_comm_config config = ranks_config(rank, world, b.name, most);
    if (shd_comm_create(&config, &b.comm)) return 1;
    b.exported = shd_comm_exported(b.comm, rank);
    b.private_from = aligned_alloc(4096, (size_t)most);
    b.private_to = aligned_alloc(4096, (size_t)most);
    memset(b.exported, 0, (size_t)most);
    memset(b.private_from, 1, (size_t)most);
    memset(b.private_to, 1, (size_t)most);
    for (int s = 0; s < SIZES; s++) {
        b.bytes = sizes[s];
        double empty = median_us(&b, do_barrier), reduce = median_us(&b, do_reduce), gather = median_us(&b, do_gather),
               copy = median_us(&b, do_copy);
        if (rank == 0) {
            printf("%5d %8lld KB %12.1f %12.1f %12.1f %12.1f %10.1f\n", world, (long long)sizes[s] >> 10, empty, reduce,
                   gather, copy, 2e-3 * (double)sizes[s] * world / copy);
            fflush(stdout);
        }
    }
    shd_comm_destroy(b.comm);
    return 0;
}

int main(void) {
    printf("ranks         S      barrier  reduce-sc.   all-gather         copy  copy GB/s (read + write, all ranks)\n");
    fflush(stdout); /* before ranks inherit it */
    for (int32_t world = 2; world <= 4; world *= 2) {
        bench b = {.rounds = 0};
        ranks_new_name(b.name, sizeof b.name);
        ranks_result result = ranks_run(AS_PROCESSES, world, bench_body, &b, 300);
        if (!ranks_all_ok(&result, world)) return 1;
    }
    return 0;
}
