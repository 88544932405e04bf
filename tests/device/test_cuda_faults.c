/* The CUDA device where things go wrong, as only the software device can arrange it. */
#include "runtime/base/memory.h"
#include "runtime/device/cuda.h"
#include "runtime/device/cuda_loader.h"
#include "tests/device/cuda_device.h"
#include "tests/softcuda/softcuda.h"

#include <string.h>

enum { BYTES = 4096 };

static void expect(const char *text) {
    cr_assert(strstr(sherd_last_error(), text), "%s: %s", text, sherd_last_error());
}

Test(cuda_faults, what_keeps_devices_away_is_told_with_what_to_do) {
    static const struct {
        cudaError_t error;
        const char *told;
    } cases[] = {
        {cudaErrorInsufficientDriver, "driver is too old"},
        {cudaErrorNoDevice, "CUDA_VISIBLE_DEVICES"},
        {cudaErrorSystemNotReady, "nvidia-fabricmanager"},
        {cudaErrorSystemDriverMismatch, "restart the machine"},
    };
    int32_t count = -1;
    shd_device *device = NULL;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        softcuda_fail_at("cudaGetDeviceCount", 1, cases[i].error);
        cr_assert_eq(ops->count(&count), SHERD_CONFIG);
        expect(cases[i].told);
        softcuda_fail_at("cudaGetDeviceCount", 1, cases[i].error);
        cr_assert_eq(ops->open(&(shd_device_config){.index = 0}, &device), SHERD_CONFIG);
        expect(cases[i].told);
    }
    cr_assert_null(device);
    cr_assert_eq(count, -1);
    softcuda_fail_at("cudaGetDeviceCount", 0, 0);
    cr_assert_eq(ops->count(&count), SHERD_OK);
    cr_assert_eq(count, 1);
}

Test(cuda_faults, a_thread_has_one_device_at_a_time) {
    shd_device *first = NULL, *same = NULL, *second = NULL;
    softcuda_set_devices(2);
    cr_assert_eq(ops->open(&(shd_device_config){.index = 1}, &first), SHERD_OK, "%s", sherd_last_error());
    cr_assert_eq(ops->open(&(shd_device_config){.index = 0}, &second), SHERD_STATE);
    expect("has GPU 1 open");
    cr_assert_eq(ops->open(&(shd_device_config){.index = 1}, &same), SHERD_OK, "%s", sherd_last_error());
    ops->close(same);
    ops->close(first);
    cr_assert_eq(ops->open(&(shd_device_config){.index = 0}, &second), SHERD_OK, "%s", sherd_last_error());
    ops->close(second);
    cr_assert_eq(ops->open(&(shd_device_config){.index = 2}, &second), SHERD_ARGUMENT);
}

Test(cuda_faults, a_query_that_is_not_done_leaves_nothing_for_the_next_launch) {
    softcuda_restart(1, SOFTCUDA_LAZY);
    shd_device *device = open_first();
    shd_stream *stream = make_stream(device, "test", false);
    shd_event *event = make_event(device);
    char *host = take_pinned(device, BYTES), *memory = take(device, BYTES);
    bool was_open = false;
    for (int i = 0; i < 50; i++) {
        ops->copy(stream, host, memory, BYTES);
        ops->record(stream, event);
        while (!ops->reached(event)) {
            was_open = true;
            cr_assert_eq(cudaGetLastError(), cudaSuccess);
        }
    }
    cr_assert(was_open, "no query came before its time");
    ops->release(device, memory);
    ops->release_pinned(device, host);
    ops->destroy_event(event);
    ops->destroy_stream(stream);
    ops->close(device);
    softcuda_report_leaks();
    cr_assert_eq(softcuda_print_reports(), 0);
}

/* Two streams write the same memory, one after the other by the event, if it is waited for. */
static void write_twice(bool wait) {
    shd_device *device = open_first();
    shd_stream *first = make_stream(device, "first", false), *second = make_stream(device, "second", true);
    shd_event *event = make_event(device);
    char *memory = take(device, BYTES);
    ops->clear(first, memory, BYTES);
    ops->record(first, event);
    if (wait) ops->await(second, event);
    ops->clear(second, memory, BYTES);
    wait_for(device, first);
    wait_for(device, second);
    ops->release(device, memory);
    ops->destroy_event(event);
    ops->destroy_stream(first);
    ops->destroy_stream(second);
    ops->close(device);
}

Test(cuda_faults, awaiting_an_event_is_what_orders_two_streams) {
    for (uint64_t seed = 1; seed <= 10; seed++) {
        softcuda_restart(seed, SOFTCUDA_RANDOM);
        write_twice(true);
        cr_assert_eq(softcuda_print_reports(), 0);
#ifndef __SANITIZE_THREAD__ /* which would tell of it too, and end the test */
        write_twice(false);
        cr_assert(softcuda_reported("race"));
#endif
    }
}

Test(cuda_faults, a_failure_of_a_kernel_is_found_by_whoever_waits) {
    shd_device *device = open_first();
    shd_stream *stream = make_stream(device, "compute", false);
    shd_event *event = make_event(device);
    void *memory = take(device, BYTES);
    ops->clear(stream, memory, BYTES);
    ops->record(stream, event);
    softcuda_break(cudaErrorIllegalAddress);
    while (!ops->reached(event)) nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
    cr_assert_eq(ops->status(device), SHERD_DEVICE);
    expect("cudaErrorIllegalAddress (700)");
    expect("CUDA_LAUNCH_BLOCKING");
    ops->release(device, memory);
    ops->destroy_event(event);
    ops->destroy_stream(stream);
    ops->close(device);
}

/* Everything that a rank does with a device, up to the first failure, whose status it returns. */
static sherd_status do_everything(void) {
    shd_device *device = NULL;
    shd_stream *stream = NULL;
    shd_event *event = NULL;
    void *memory = NULL, *host = NULL;
    shd_device_facts facts;
    sherd_status status = ops->open(&(shd_device_config){.index = 0}, &device);
    if (status == SHERD_OK) status = ops->create_stream(device, "test", true, &stream);
    if (status == SHERD_OK) status = ops->create_event(device, &event);
    if (status == SHERD_OK) status = ops->allocate(device, BYTES, &memory);
    if (status == SHERD_OK) status = ops->allocate_pinned(device, BYTES, &host);
    if (status == SHERD_OK) {
        ops->facts(device, &facts);
        ops->clear(stream, memory, BYTES);
        ops->copy(stream, host, memory, BYTES);
        ops->record(stream, event);
        ops->await(stream, event);
        while (!ops->reached(event)) {}
        status = ops->status(device);
    }
    if (device) {
        ops->release(device, memory);
        ops->release_pinned(device, host);
    }
    ops->destroy_event(event);
    ops->destroy_stream(stream);
    ops->close(device);
    return status;
}

Test(cuda_faults, any_call_that_fails_is_told_and_leaves_nothing_behind) {
    const shd_cublaslt *cublaslt;
    cr_assert_eq(shd_cublaslt_load(&cublaslt), SHERD_OK, "%s", sherd_last_error());
    int64_t objects = shd_memory_held(SHD_MEMORY_OBJECTS);
    int32_t failures = 0, passed = 0;
    for (uint64_t i = 1; passed < 5 && i < 200; i++) {
        softcuda_restart(i, SOFTCUDA_RANDOM);
        softcuda_fail_at("*", i, cudaErrorLaunchFailure);
        sherd_status status = do_everything();
        softcuda_fail_at("*", 0, 0);
        if (status == SHERD_OK) {
            passed++; /* a call whose failure says nothing of results: versions, freeing; or behind the last */
        } else {
            failures++;
            passed = 0;
            cr_assert_eq(status, SHERD_DEVICE, "call %d", (int)i);
            expect("cudaErrorLaunchFailure (719)");
        }
        cr_assert_eq(cudaGetLastError(), cudaSuccess);
        cr_assert_eq(shd_memory_held(SHD_MEMORY_OBJECTS), objects);
        cr_assert_eq(shd_memory_held(SHD_MEMORY_DEVICE) + shd_memory_held(SHD_MEMORY_PINNED), 0);
    }
    cr_assert_geq(failures, 15);
    cr_assert_eq(do_everything(), SHERD_OK, "%s", sherd_last_error());
}

Test(cuda_faults, the_libraries_are_those_that_the_process_has_already) {
    char text[512];
    cr_assert_eq(ops->libraries(text, sizeof text), SHERD_OK, "%s", sherd_last_error());
    cr_assert(strstr(text, "cuBLASLt ") && strstr(text, "NCCL ") && strstr(text, "libsoftcuda.so"), "%s", text);
}
