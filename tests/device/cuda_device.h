/* A device for tests: the software one, or a GPU where there is one and else none. */
#ifndef SHD_TESTS_DEVICE_CUDA_DEVICE_H
#define SHD_TESTS_DEVICE_CUDA_DEVICE_H

#include "runtime/device/device.h"

#include <criterion/criterion.h>
#include <time.h>

static const shd_device_ops *const ops = &shd_device_cuda;

/* Opens the first device, or ends the test as skipped. */
static inline shd_device *open_first(void) {
    shd_device *device = NULL;
    int32_t count = 0;
    if (ops->count(&count) != SHERD_OK || count == 0) cr_skip_test("%s", sherd_last_error());
    cr_assert_eq(ops->open(&(shd_device_config){.index = 0}, &device), SHERD_OK, "%s", sherd_last_error());
    return device;
}

static inline shd_stream *make_stream(shd_device *device, const char *name, bool urgent) {
    shd_stream *stream = NULL;
    cr_assert_eq(ops->create_stream(device, name, urgent, &stream), SHERD_OK, "%s", sherd_last_error());
    return stream;
}

static inline shd_event *make_event(shd_device *device) {
    shd_event *event = NULL;
    cr_assert_eq(ops->create_event(device, &event), SHERD_OK, "%s", sherd_last_error());
    return event;
}

static inline void *take(shd_device *device, int64_t bytes) {
    void *memory = NULL;
    cr_assert_eq(ops->allocate(device, bytes, &memory), SHERD_OK, "%s", sherd_last_error());
    return memory;
}

static inline void *take_pinned(shd_device *device, int64_t bytes) {
    void *memory = NULL;
    cr_assert_eq(ops->allocate_pinned(device, bytes, &memory), SHERD_OK, "%s", sherd_last_error());
    return memory;
}

/* Until the stream is past all that it was given. */
static inline void wait_for(shd_device *device, shd_stream *stream) {
    shd_event *event = make_event(device);
    ops->record(stream, event);
    while (!ops->reached(event)) nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
    ops->destroy_event(event);
}

#endif
