#include "check_device.h"

#include "runtime/base/dtype.h"

#include <criterion/criterion.h>
#include <string.h>
#include <time.h>

/* Of the software device, where that is linked. */
extern size_t softcuda_report_count(void) __attribute__((weak));
extern const char *softcuda_report(size_t i) __attribute__((weak));

enum { SCRATCH_BYTES = 32 << 20, MEMORY_MAX = 1024 };

static const shd_device_ops *device_ops;
static shd_device *device;
static shd_stream *stream;
static shd_event *event;
static void *scratch, *staging; /* staging: pinned, what copies run through */
static int64_t staging_bytes;
static void *memory[MEMORY_MAX];
static int memory_count;

static void require(sherd_status status) { cr_assert_eq(status, SHERD_OK, "%s", sherd_last_error()); }

void check_device_begin(void) {
    int32_t count = 0;
    device_ops = shd_device_backend();
    if (!device_ops) cr_skip_test("linked without a backend");
    if (device_ops->count(&count) != SHERD_OK || count == 0) cr_skip_test("%s", sherd_last_error());
    require(device_ops->open(&(shd_device_config){.index = 0}, &device));
    require(device_ops->create_stream(device, "operations", false, &stream));
    require(device_ops->create_event(device, &event));
    require(device_ops->allocate(device, SCRATCH_BYTES, &scratch));
}

static void wait_for_all(void) {
    device_ops->record(stream, event);
    while (!device_ops->reached(event)) nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
    require(device_ops->status(device));
}

void check_device_next(void) {
    wait_for_all();
    if (softcuda_report_count) cr_assert_eq(softcuda_report_count(), 0, "%s", softcuda_report(0));
    while (memory_count) device_ops->release(device, memory[--memory_count]);
    check_free();
}

void check_device_end(void) {
    check_device_next();
    device_ops->release(device, scratch);
    device_ops->release_pinned(device, staging);
    staging = NULL, staging_bytes = 0;
    device_ops->destroy_event(event);
    device_ops->destroy_stream(stream);
    device_ops->close(device);
}

shd_math check_device_math(sherd_dtype dtype) {
    return (shd_math){.device_ops = device_ops, .stream = stream, .dtype = dtype, .scratch = scratch};
}

static void stage(int64_t bytes) {
    if (staging && bytes <= staging_bytes) return;
    device_ops->release_pinned(device, staging);
    staging_bytes = bytes + (1 << 20);
    require(device_ops->allocate_pinned(device, staging_bytes, &staging));
}

/* `fill` is copied, or where it is NULL each byte becomes 0x7f. */
static void *filled(int64_t bytes, const void *fill) {
    void *to;
    cr_assert(memory_count < MEMORY_MAX);
    require(device_ops->allocate(device, bytes, &to));
    memory[memory_count++] = to;
    stage(bytes);
    if (fill)
        memcpy(staging, fill, (size_t)bytes);
    else
        memset(staging, 0x7f, (size_t)bytes);
    device_ops->copy(stream, to, staging, bytes);
    wait_for_all();
    return to;
}

void *check_device_memory(int64_t bytes) { return filled(bytes, NULL); }

void *check_to_device(int64_t bytes, const void *host) { return host ? filled(bytes, host) : NULL; }

void *check_device_stored(sherd_dtype dtype, int64_t count, const float *x) {
    return check_to_device(count * shd_dtype_bytes(dtype), check_stored(dtype, count, x));
}

void *check_from_device(int64_t bytes, const void *from) {
    void *host = check_memory(bytes);
    stage(bytes);
    device_ops->copy(stream, staging, from, bytes);
    wait_for_all();
    return memcpy(host, staging, (size_t)bytes);
}
