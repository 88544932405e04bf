#include "tests/comm/ranks.h"

#include "runtime/base/clock.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct rank_run {
    rank_fn body;
    void *argument;
    int32_t rank, world_size;
    ranks_result *result;
    double start_ms;
} rank_run;

static void *run_rank(void *argument) {
    rank_run *run = argument;
    int32_t r = run->rank;
    run->result->code[r] = run->body(r, run->world_size, run->argument);
    snprintf(run->result->text[r], RANKS_TEXT, "%s", sherd_last_error());
    run->result->ended_ms[r] = shd_clock_ms() - run->start_ms;
    return NULL;
}

static void run_threads(rank_run *runs, int32_t world_size) {
    pthread_t threads[RANKS_MAX];
    for (int32_t r = 0; r < world_size; r++) pthread_create(&threads[r], NULL, run_rank, &runs[r]);
    for (int32_t r = 0; r < world_size; r++) pthread_join(threads[r], NULL);
}

static void run_processes(rank_run *runs, int32_t world_size, double limit_s) {
    pid_t children[RANKS_MAX];
    ranks_result *result = runs->result;
    for (int32_t r = 0; r < world_size; r++) {
        result->code[r] = 127;
        children[r] = fork();
        if (children[r]) continue;
        run_rank(&runs[r]);
        _exit(0);
    }
    double start_ms = shd_clock_ms();
    for (int32_t left = world_size; left > 0;) {
        for (int32_t r = 0; r < world_size; r++) {
            int status;
            if (!children[r] || waitpid(children[r], &status, WNOHANG) != children[r]) continue;
            if (WIFSIGNALED(status)) {
                result->code[r] = 128 + WTERMSIG(status);
                result->ended_ms[r] = shd_clock_ms() - start_ms;
            }
            children[r] = 0;
            left--;
        }
        if (shd_clock_ms() - start_ms > limit_s * 1e3) {
            for (int32_t r = 0; r < world_size; r++)
                if (children[r]) kill(children[r], SIGKILL);
            for (int32_t r = 0; r < world_size; r++)
                if (children[r]) waitpid(children[r], NULL, 0);
            return; /* those keep their 127 */
        }
        usleep(1000);
    }
}

ranks_result ranks_run(rank_style style, int32_t world_size, rank_fn body, void *argument, double limit_s) {
    ranks_result *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    rank_run runs[RANKS_MAX];
    for (int32_t r = 0; r < world_size; r++)
        runs[r] = (rank_run){.body = body,
                             .argument = argument,
                             .rank = r,
                             .world_size = world_size,
                             .result = shared,
                             .start_ms = shd_clock_ms()};
    if (style == AS_THREADS)
        run_threads(runs, world_size);
    else
        run_processes(runs, world_size, limit_s);
    ranks_result result = *shared;
    munmap(shared, sizeof *shared);
    return result;
}

bool ranks_all_ok(const ranks_result *result, int32_t world_size) {
    bool ok = true;
    for (int32_t r = 0; r < world_size; r++) {
        if (result->code[r] == 0) continue;
        fprintf(stderr, "rank %d of %d: code %d, last error: %s\n", r, world_size, result->code[r], result->text[r]);
        ok = false;
    }
    return ok;
}

const char *ranks_new_name(char *room, int room_bytes) {
    static atomic_int calls;
    snprintf(room, (size_t)room_bytes, "test-%d-%d", (int)getpid(), atomic_fetch_add(&calls, 1));
    return room;
}

shd_comm_config ranks_config(int32_t rank, int32_t world_size, const char *name, int64_t exported_bytes) {
    return (shd_comm_config){.rank = rank,
                             .world_size = world_size,
                             .rendezvous = name,
                             .fingerprint = 42,
                             .exported_bytes = exported_bytes,
                             .unit_count = 4,
                             .timeout_s = 20,
                             .start_timeout_s = 20};
}
