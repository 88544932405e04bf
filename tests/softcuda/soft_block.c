#include "tests/softcuda/soft_block.h"

#include "tests/softcuda/soft_fiber.h"
#include "tests/softcuda/soft_internal.h"

#include <stdlib.h>
#include <string.h>

enum {
    WARP = 32,
    MOST_THREADS = 1024,
    MOST_WARPS = MOST_THREADS / WARP,
    SHARED_BYTES = 48 << 10, /* without an attribute of the kernel */
    MOST_SHARED_BYTES = 227 << 10,
    KERNELS = 512
};

typedef struct cuda_thread {
    unsigned number; /* in the block */
    struct worker *worker;
    unsigned exchanges;
    void *tsan;
} cuda_thread;

/* A stack that runs threads: fresh ones one after the other until one of them has to wait on it. */
typedef struct worker {
    soft_fiber fiber;
    cuda_thread *first; /* what it runs when it is next switched to, if that thread is fresh */
} worker;

typedef struct warp {
    unsigned can_run; /* lanes */
    unsigned arrived; /* lanes in the current exchange */
    int site;
    unsigned rank; /* among the warps, by priority */
    shd_soft_slot slots[2][WARP];
    char edges[2]; /* addresses for ThreadSanitizer */
} warp;

shd_soft_place shd_soft_here;

static cuda_thread threads[MOST_THREADS];
static warp warps[MOST_WARPS];
static warp *by_rank[MOST_WARPS];
static worker workers[MOST_THREADS];
static worker *idle[MOST_THREADS];
static size_t worker_count, idle_count;
static worker *woken; /* who was given a thread last; it is switched to next */
static soft_fiber main_fiber;

static struct {
    const shd_soft_launch *launch;
    cuda_thread *thread; /* the one that runs */
    unsigned thread_count, warp_count, done_count;
    unsigned ranks_to_run; /* bit i: the warp of rank i has lanes that can run */
    bool from_last_lane;
    unsigned waiting[MOST_WARPS], waiting_count; /* lanes at the block's barrier */
    int site;
    unsigned barriers;
    void *tsan; /* the stream's fiber */
} block;
static char edge_begin, edge_end, edge_barrier[2];

static warp *warp_of(const cuda_thread *thread) { return &warps[thread->number / WARP]; }
static unsigned lane_of(const cuda_thread *thread) { return thread->number % WARP; }

static void let_run(unsigned w, unsigned lanes) {
    warps[w].can_run |= lanes;
    block.ranks_to_run |= 1u << warps[w].rank;
}

/* The next thread to run, which then counts as running; NULL: all wait or are done. */
static cuda_thread *pick(void) {
    if (!block.ranks_to_run) return NULL;
    warp *w = by_rank[__builtin_ctz(block.ranks_to_run)];
    unsigned lane = (unsigned)(block.from_last_lane ? WARP - 1 - __builtin_clz(w->can_run) : __builtin_ctz(w->can_run));
    w->can_run &= ~(1u << lane);
    if (!w->can_run) block.ranks_to_run &= ~(1u << w->rank);
    return &threads[(size_t)(w - warps) * WARP + lane];
}

static void enter(cuda_thread *thread) {
    block.thread = thread;
    shd_soft_here.thread.x = thread->number;
    shd_soft_here.lane = lane_of(thread);
}

static void release_barrier(void) {
    if (block.waiting_count == 0 || block.waiting_count + block.done_count < block.thread_count) return;
    if (block.done_count > 0)
        softcuda_add_report("barrier: %u threads of %s have left it while others wait in __syncthreads of line %d",
                            block.done_count, block.launch->name, block.site);
    for (unsigned w = 0; w < block.warp_count; w++) {
        if (block.waiting[w]) let_run(w, block.waiting[w]);
        block.waiting[w] = 0;
    }
    block.waiting_count = 0;
    block.barriers++;
}

static void run_fresh(cuda_thread *thread) {
    enter(thread);
    if (block.tsan) {
        soft_tsan_switch(thread->tsan = soft_tsan_fiber(thread->tsan, "a CUDA thread"));
        soft_tsan_acquire(&edge_begin);
    }
    block.launch->body(block.launch->state);
    if (block.tsan) {
        soft_tsan_release(&edge_end);
        soft_tsan_switch(block.tsan);
    }
    block.done_count++;
    release_barrier();
}

static void work(void);

static worker *take_worker(cuda_thread *thread) {
    worker *w = idle_count > 0 ? idle[--idle_count] : NULL;
    if (!w) {
        w = &workers[worker_count++];
        soft_fiber_prepare(&w->fiber, work);
    }
    w->first = thread;
    return woken = thread->worker = w;
}

static soft_fiber *fiber_of(cuda_thread *thread) {
    if (!thread) return &main_fiber;
    return thread->worker ? &thread->worker->fiber : &take_worker(thread)->fiber;
}

/* ThreadSanitizer is told who goes on; a fresh thread tells it itself. */
static void turn_to(const cuda_thread *thread) {
    if (block.tsan) soft_tsan_switch(thread && thread->worker ? thread->tsan : block.tsan);
}

/* What a worker does for ever. */
static void work(void) {
    for (;;) {
        worker *own = woken;
        cuda_thread *thread = own->first;
        while (thread) {
            run_fresh(thread);
            thread = pick();
            if (!thread || thread->worker) break;
            thread->worker = own;
        }
        turn_to(thread);
        idle[idle_count++] = own;
        soft_fiber_switch(&own->fiber, thread ? &thread->worker->fiber : &main_fiber);
    }
}

/* The running thread waits until it is picked again. */
static void wait_for_turn(void) {
    cuda_thread *own = block.thread, *next = pick();
    if (next != own) {
        turn_to(next);
        soft_fiber_switch(&own->worker->fiber, fiber_of(next));
    }
    enter(own);
}

void shd_soft_barrier(int site) {
    cuda_thread *own = block.thread;
    char *edge = &edge_barrier[block.barriers & 1];
    if (block.waiting_count > 0 && block.site != site)
        softcuda_add_report("barrier: threads of a block of %s meet in __syncthreads of line %d and of line %d",
                            block.launch->name, block.site, site);
    soft_tsan_release(edge);
    block.site = site;
    block.waiting[own->number / WARP] |= 1u << lane_of(own);
    block.waiting_count++;
    release_barrier();
    wait_for_turn();
    soft_tsan_acquire(edge);
}

const shd_soft_slot *shd_soft_exchange(unsigned mask, int site, const void *value, size_t bytes) {
    cuda_thread *own = block.thread;
    warp *w = warp_of(own);
    unsigned parity = own->exchanges++ & 1, all = ~0u;
    if (mask != all)
        softcuda_add_report("warp: an operation of %s at line %d has the mask 0x%08x, not all lanes",
                            block.launch->name, site, mask);
    if (w->arrived && w->site != site)
        softcuda_add_report("warp: lanes of %s meet in operations of line %d and of line %d", block.launch->name,
                            w->site, site);
    memcpy(w->slots[parity][lane_of(own)].bytes, value, bytes);
    soft_tsan_release(&w->edges[parity]);
    w->site = site;
    w->arrived |= 1u << lane_of(own);
    if (w->arrived == all) {
        w->arrived = 0;
        let_run(own->number / WARP, all & ~(1u << lane_of(own)));
    } else {
        wait_for_turn();
    }
    soft_tsan_acquire(&w->edges[parity]);
    return w->slots[parity];
}

static void begin_block(void) {
    block.done_count = block.waiting_count = block.ranks_to_run = 0;
    block.from_last_lane = softcuda_random() % 2;
    for (unsigned i = 0; i < block.thread_count; i++) {
        threads[i].number = i;
        threads[i].worker = NULL;
        threads[i].exchanges = 0;
    }
    for (unsigned i = 0; i < block.warp_count; i++) { /* a permutation, drawn as it grows */
        unsigned at = (unsigned)(softcuda_random() % (i + 1));
        by_rank[i] = by_rank[at];
        by_rank[at] = &warps[i];
        warps[i].arrived = block.waiting[i] = 0;
    }
    for (unsigned i = 0; i < block.warp_count; i++) by_rank[i]->rank = i;
    for (unsigned i = 0; i < block.warp_count; i++) let_run(i, ~0u);
}

/* Threads that nothing can wake are given up with their stacks' contents. */
static void report_stuck(void) {
    unsigned at_barrier = block.waiting_count, left = block.thread_count - block.done_count;
    softcuda_add_report(
        "barrier: %u of %u threads of a block of %s never go on: %u wait in __syncthreads, %u in warp operations", left,
        block.thread_count, block.launch->name, at_barrier, left - at_barrier);
    worker_count = idle_count = 0;
}

static void run_block(void) {
    begin_block();
    if (block.launch->shared_bytes > 0) memset(shd_soft_here.dynamic_shared, 0xFF, (size_t)block.launch->shared_bytes);
    soft_tsan_release(&edge_begin);
    soft_fiber_switch(&main_fiber, fiber_of(pick()));
    soft_tsan_acquire(&edge_end);
    if (block.done_count < block.thread_count) report_stuck();
}

static softcuda_progress run_kernel(void *state) {
    static _Alignas(16) unsigned char shared[MOST_SHARED_BYTES];
    const shd_soft_launch *launch = state;
    int64_t first = (int64_t)(softcuda_random() % (uint64_t)launch->blocks);
    block.launch = launch;
    block.thread_count = (unsigned)launch->threads;
    block.warp_count = block.thread_count / WARP;
    block.tsan = soft_tsan_current();
    shd_soft_here = (shd_soft_place){.block_dim = {block.thread_count, 1, 1},
                                     .grid_dim = {(unsigned)launch->blocks, 1, 1},
                                     .dynamic_shared = shared};
    for (int64_t i = 0; i < launch->blocks; i++) {
        shd_soft_here.block.x = (unsigned)((first + i) % launch->blocks);
        run_block();
    }
    return SOFTCUDA_DONE;
}

static void drop_kernel(void *state) {
    shd_soft_launch *launch = state;
    launch->drop(launch->state);
    free(launch);
}

/* attributes of kernels */

static struct {
    const void *kernel;
    int shared_bytes;
} attributes[KERNELS];

static int shared_limit(const void *kernel) {
    for (int i = 0; i < KERNELS && attributes[i].kernel; i++)
        if (attributes[i].kernel == kernel) return attributes[i].shared_bytes;
    return SHARED_BYTES;
}

cudaError_t cudaFuncSetAttribute(const void *kernel, enum cudaFuncAttribute attribute, int value) {
    SOFT_ENTER();
    if (!kernel) return soft_leave(cudaErrorInvalidDeviceFunction);
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return soft_leave(cudaSuccess);
    if (value < 0 || value > MOST_SHARED_BYTES) return soft_leave(cudaErrorInvalidValue);
    int i = 0;
    while (i < KERNELS - 1 && attributes[i].kernel && attributes[i].kernel != kernel) i++;
    attributes[i].kernel = kernel;
    attributes[i].shared_bytes = value;
    return soft_leave(cudaSuccess);
}

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *out, const void *kernel) {
    SOFT_ENTER();
    if (!kernel) return soft_leave(cudaErrorInvalidDeviceFunction);
    *out = (struct cudaFuncAttributes){.maxThreadsPerBlock = MOST_THREADS,
                                       .numRegs = 32,
                                       .ptxVersion = 80,
                                       .binaryVersion = 80,
                                       .maxDynamicSharedSizeBytes = shared_limit(kernel)};
    return soft_leave(cudaSuccess);
}

static cudaError_t launch_kernel(const shd_soft_launch *launch) {
    if (launch->blocks < 1 || launch->blocks > INT32_MAX || launch->threads < 1 || launch->threads > MOST_THREADS)
        return cudaErrorInvalidConfiguration;
    if (launch->threads % WARP != 0) {
        softcuda_add_report("warp: %s is launched with %d threads a block, no multiple of %d", launch->name,
                            (int)launch->threads, WARP);
        return cudaErrorInvalidConfiguration;
    }
    if (launch->shared_bytes < 0 || launch->shared_bytes > shared_limit(launch->kernel)) return cudaErrorInvalidValue;
    shd_soft_launch *state = malloc(sizeof *state);
    *state = *launch;
    return soft_enqueue(launch->stream, &(softcuda_operation){.name = launch->name,
                                                              .run = run_kernel,
                                                              .drop = drop_kernel,
                                                              .state = state,
                                                              .accesses = launch->accesses,
                                                              .access_count = launch->access_count,
                                                              .is_instrumented = true});
}

cudaError_t shd_soft_enqueue_kernel(const shd_soft_launch *launch) {
    cudaError_t code = soft_enter("cudaLaunchKernel");
    bool is_kept = code == cudaSuccess; /* by the operation, which also frees it when it does not fit a stream */
    if (is_kept) {
        code = launch_kernel(launch);
        is_kept = code == cudaSuccess || code == cudaErrorInvalidResourceHandle;
    }
    if (!is_kept) launch->drop(launch->state);
    soft_leave(code);
    return cudaGetLastError();
}
