#include "support/ranks.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

typedef struct rank_thread {
    pthread_t thread;
    sherd_options options;
    rank_fn body;
    void *user;
    int result;
} rank_thread;

static void *start(void *argument) {
    rank_thread *rank = argument;
    rank->result = rank->body(rank->user, &rank->options);
    if (rank->result)
        fprintf(stderr, "rank %d of %d failed at line %d: %s\n", rank->options.rank, rank->options.world_size,
                rank->result, sherd_last_error());
    return NULL;
}

int run_ranks(int world_size, const sherd_options *options, rank_fn body, void *user) {
    static atomic_int job_count;
    char name[64];
    snprintf(name, sizeof name, "sherd-test-%ld-%d", (long)getpid(), atomic_fetch_add(&job_count, 1));
    rank_thread ranks[RANKS_MAX];
    for (int r = 0; r < world_size; r++) {
        ranks[r] = (rank_thread){.options = *options, .body = body, .user = user};
        ranks[r].options.rank = r;
        ranks[r].options.world_size = world_size;
        ranks[r].options.rendezvous = world_size > 1 ? name : NULL;
        if (pthread_create(&ranks[r].thread, NULL, start, &ranks[r])) return -1;
    }
    int result = 0;
    for (int r = 0; r < world_size; r++) {
        pthread_join(ranks[r].thread, NULL);
        if (result == 0) result = ranks[r].result;
    }
    return result;
}
