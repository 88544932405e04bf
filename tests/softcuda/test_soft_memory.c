#include "tests/softcuda/soft_rig.h"
#include "tests/softcuda/test_kernels.h"

#include <signal.h>
#include <string.h>
#include <sys/mman.h>

Test(softcuda, gives_fresh_memory_that_is_no_number) {
    soft_rig rig = begin_rig(1, SOFTCUDA_RANDOM);
    unsigned char *device = device_memory(1000), *host = pinned_memory(1000);
    cr_assert_eq((uintptr_t)device % 256, 0);
    cr_assert_eq((uintptr_t)host % 4096, 0);
    memset(host, 0, 1000);
    copy_now(rig.first, host, device, 1000);
    for (int i = 0; i < 1000; i++) cr_assert_eq(host[i], 0xFF);
    NOTHING_REPORTED();
}

Test(softcuda, counts_memory_and_keeps_its_limit) {
    begin_rig(1, SOFTCUDA_RANDOM);
    softcuda_limit_memory(10000);
    void *a = device_memory(6000), *b;
    cr_assert_eq(cudaMalloc(&b, 5000), cudaErrorMemoryAllocation);
    cr_assert_eq(cudaGetLastError(), cudaErrorMemoryAllocation);
    cr_assert_eq(cudaGetLastError(), cudaSuccess);
    size_t available, total;
    OK(cudaMemGetInfo(&available, &total));
    cr_assert_eq(available, 4000);
    cr_assert_eq(total, 10000);
    OK(cudaFree(a));
    OK(cudaMalloc(&b, 10000));
    cr_assert_neq(a, b);
    cr_assert_eq(softcuda_memory_in_use(), 10000);
    cr_assert_eq(softcuda_memory_peak(), 10000);
    NOTHING_REPORTED();
}

Test(softcuda, never_gives_freed_addresses_again) {
    begin_rig(1, SOFTCUDA_RANDOM);
    void *freed[100];
    for (int i = 0; i < 100; i++) {
        freed[i] = device_memory(100000);
        for (int k = 0; k < i; k++) cr_assert_neq(freed[i], freed[k]);
        OK(cudaFree(freed[i]));
    }
    NOTHING_REPORTED();
}

Test(softcuda, reports_use_after_free) {
    soft_rig rig = begin_rig(1, SOFTCUDA_RANDOM);
    void *memory = device_memory(100);
    OK(cudaFree(memory));
    cudaMemsetAsync(memory, 0, 100, rig.first);
    REPORTED("use after free: a memset");
    cr_assert_eq(cudaStreamSynchronize(rig.first), cudaErrorIllegalAddress);
    cr_assert_eq(cudaStreamQuery(rig.first), cudaErrorIllegalAddress, "it sticks");
}

Test(softcuda, reports_what_is_out_of_bounds) {
    soft_rig rig = begin_rig(1, SOFTCUDA_RANDOM);
    char *memory = device_memory(100);
    cudaMemsetAsync(memory + 60, 0, 41, rig.first);
    REPORTED("out of bounds: a memset");
}

Test(softcuda, reports_pointers_to_nothing) {
    soft_rig rig = begin_rig(1, SOFTCUDA_RANDOM);
    float x[8];
    launch_scale_and_add(rig.first, x, device_memory(32), 8, 1);
    REPORTED("bad pointer: scale_and_add");
}

#ifndef __SANITIZE_ADDRESS__ /* which ends the program at once: test_soft_kernels.c */
Test(softcuda, finds_writes_beside_an_allocation_when_it_is_freed) {
    begin_rig(1, SOFTCUDA_RANDOM);
    char *memory = device_memory(100);
    memory[100] = 1;
    OK(cudaFree(memory));
    REPORTED("out of bounds: something wrote beside the 100 bytes");
}

Test(softcuda, has_a_page_behind_memory_that_nobody_can_touch, .signal = SIGSEGV) {
    begin_rig(1, SOFTCUDA_RANDOM);
    volatile char *memory = device_memory(256);
    memory[256] = 1;
}
#endif

Test(softcuda, reports_bad_frees) {
    begin_rig(1, SOFTCUDA_RANDOM);
    char *memory = device_memory(100), *pinned = pinned_memory(100);
    cr_assert_eq(cudaFree(memory + 8), cudaErrorInvalidValue);
    cr_assert_eq(cudaFree(pinned), cudaErrorInvalidValue);
    OK(cudaFree(memory));
    cr_assert_eq(cudaFree(memory), cudaErrorInvalidValue);
    REPORTED("which is freed already");
    REPORTED("which is not the begin of such memory");
    cr_assert_eq(softcuda_report_count(), 3);
}

Test(softcuda, reports_memory_that_is_freed_under_work) {
    soft_rig rig = begin_rig(1, SOFTCUDA_LAZY);
    void *memory = device_memory(100), *other = device_memory(100);
    OK(cudaMemsetAsync(memory, 0, 100, rig.first));
    OK(cudaFree(memory));
    REPORTED("free while pending: cudaFree of device allocation");
    softcuda_forget_reports();
    OK(cudaMemsetAsync(other, 0, 100, rig.first));
    OK(cudaStreamSynchronize(rig.first));
    OK(cudaFree(other));
    NOTHING_REPORTED();
}

Test(softcuda, reports_copies_of_memory_that_is_not_pinned) {
    soft_rig rig = begin_rig(1, SOFTCUDA_RANDOM);
    char here[100], *device = device_memory(100);
    OK(cudaMemcpyAsync(device, here, 100, cudaMemcpyHostToDevice, rig.first));
    REPORTED("pageable copy: the source");
    cr_assert_eq(cudaMemcpyAsync(device, here, 100, cudaMemcpyDeviceToHost, rig.first),
                 cudaErrorInvalidMemcpyDirection);
}

Test(softcuda, copies_to_and_from_memory_that_is_registered) {
    soft_rig rig = begin_rig(1, SOFTCUDA_RANDOM);
    char *shared = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    char *device = device_memory(8192);
    void *address;
    OK(cudaHostRegister(shared, 8192, cudaHostRegisterDefault));
    cr_assert_eq(cudaHostRegister(shared + 4096, 4096, 0), cudaErrorHostMemoryAlreadyRegistered);
    OK(cudaHostGetDevicePointer(&address, shared, 0));
    memset(shared, 7, 4096);
    OK(cudaMemcpyAsync(device, shared, 4096, cudaMemcpyDefault, rig.first));
    copy_now(rig.first, shared + 4096, device, 4096);
    cr_assert_eq(shared[8191], 7);
    OK(cudaHostUnregister(shared));
    OK(cudaHostRegister(shared, 8192, cudaHostRegisterDefault));
    OK(cudaHostUnregister(shared));
    NOTHING_REPORTED();
}

Test(softcuda, reports_leaks) {
    soft_rig rig = begin_rig(1, SOFTCUDA_RANDOM);
    void *memory = device_memory(100);
    OK(cudaStreamDestroy(rig.first));
    softcuda_report_leaks();
    REPORTED("leak: 100 bytes of device memory");
    REPORTED("leak: second");
    REPORTED("leak: 2 events");
    cr_assert_eq(softcuda_report_count(), 3);
    softcuda_forget_reports();
    OK(cudaFree(memory));
    OK(cudaStreamDestroy(rig.second));
    OK(cudaEventDestroy(rig.event));
    OK(cudaEventDestroy(rig.other));
    softcuda_report_leaks();
    NOTHING_REPORTED();
}
