/* What the software device's tests share: a device begun anew, with two streams, events and memory. */
#ifndef SHD_TESTS_SOFT_RIG_H
#define SHD_TESTS_SOFT_RIG_H

#include "tests/softcuda/softcuda.h"

#include <criterion/criterion.h>

#define OK(call) cr_assert_eq((call), cudaSuccess, #call)
#define REPORTED(text)                                                                                                 \
    cr_assert(softcuda_reported(text), "no report has '%s'; the first of %zu: %s", (text), softcuda_report_count(),    \
              softcuda_report(0))
#define NOTHING_REPORTED() cr_assert_eq(softcuda_report_count(), 0, "%s", softcuda_report(0))

typedef struct soft_rig {
    cudaStream_t first, second;
    cudaEvent_t event, other;
} soft_rig;

static inline cudaStream_t make_stream(const char *name) {
    cudaStream_t stream;
    OK(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, 0));
    softcuda_name_stream(stream, name);
    return stream;
}

static inline soft_rig begin_rig(uint64_t seed, softcuda_order order) {
    soft_rig rig;
    softcuda_restart(seed, order);
    rig.first = make_stream("first");
    rig.second = make_stream("second");
    OK(cudaEventCreateWithFlags(&rig.event, cudaEventDisableTiming));
    OK(cudaEventCreateWithFlags(&rig.other, cudaEventDisableTiming));
    return rig;
}

static inline void end_rig(soft_rig *rig) {
    OK(cudaStreamDestroy(rig->first));
    OK(cudaStreamDestroy(rig->second));
    OK(cudaEventDestroy(rig->event));
    OK(cudaEventDestroy(rig->other));
}

static inline void *device_memory(size_t bytes) {
    void *memory;
    OK(cudaMalloc(&memory, bytes));
    return memory;
}

static inline void *pinned_memory(size_t bytes) {
    void *memory;
    OK(cudaHostAlloc(&memory, bytes, cudaHostAllocDefault));
    return memory;
}

/* Copies between host and device, and waits. */
static inline void copy_now(cudaStream_t stream, void *to, const void *from, size_t bytes) {
    OK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream));
    OK(cudaStreamSynchronize(stream));
}

#endif
