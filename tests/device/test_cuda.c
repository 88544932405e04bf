/* What device.h promises, on the software device and, the same file, on a GPU. */
#include "runtime/base/memory.h"
#include "runtime/device/cuda.h"
#include "tests/device/cuda_device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { N = 17 * 257 };

static void fill(uint32_t *to, uint32_t seed) {
    for (uint32_t i = 0; i < N; i++) to[i] = i * 2654435761u + seed;
}

Test(cuda, says_what_a_device_is_and_how_many_there_are) {
    shd_device *device = open_first();
    shd_device_facts open, described;
    int32_t count = 0;
    cr_assert_eq(ops->count(&count), SHERD_OK);
    cr_assert_eq(ops->describe(0, &described), SHERD_OK);
    ops->facts(device, &open);
    cr_assert_str_eq(open.name, described.name);
    cr_assert_neq(open.name[0], 0);
    cr_assert_geq(open.major, 8);
    cr_assert_eq(described.free_bytes, -1);
    cr_assert_gt(open.free_bytes, 0);
    cr_assert_leq(open.free_bytes, open.total_bytes);
    cr_assert_neq(atoi(open.driver), 0, "%s", open.driver);
    cr_assert_geq(atoi(open.api), 12, "%s", open.api);
    cr_assert_eq(ops->describe(count, &described), SHERD_ARGUMENT);
    cr_assert_eq(ops->describe(-1, &described), SHERD_ARGUMENT);
    cr_assert(strstr(sherd_last_error(), "no GPU -1"));
    ops->close(device);
}

Test(cuda, memory_is_zero_aligned_and_counted) {
    static const int64_t sizes[] = {0, 1, 17, 4 * N, 4 << 20};
    shd_device *device = open_first();
    shd_stream *stream = make_stream(device, "test", false);
    char *host = take_pinned(device, 4 << 20);
    int64_t device_before = shd_memory_held(SHD_MEMORY_DEVICE), pinned_before = shd_memory_held(SHD_MEMORY_PINNED);
    cr_assert_eq((uintptr_t)host % 4096, 0);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        char *memory = take(device, sizes[i]), *pinned = take_pinned(device, sizes[i]);
        cr_assert_eq((uintptr_t)memory % 256, 0);
        cr_assert_geq(shd_memory_held(SHD_MEMORY_DEVICE), device_before + sizes[i]);
        cr_assert_geq(shd_memory_held(SHD_MEMORY_PINNED), pinned_before + sizes[i]);
        memset(host, 1, (size_t)sizes[i]);
        ops->copy(stream, host, memory, sizes[i]);
        wait_for(device, stream);
        for (int64_t b = 0; b < sizes[i]; b++) cr_assert(host[b] == 0 && pinned[b] == 0, "byte %lld", (long long)b);
        ops->release(device, memory);
        ops->release_pinned(device, pinned);
    }
    ops->release(device, NULL);
    cr_assert_eq(shd_memory_held(SHD_MEMORY_DEVICE), device_before);
    cr_assert_eq(shd_memory_held(SHD_MEMORY_PINNED), pinned_before);
    cr_assert_eq(ops->status(device), SHERD_OK);
    ops->release_pinned(device, host);
    ops->destroy_stream(stream);
    ops->close(device);
}

Test(cuda, what_does_not_fit_is_refused_with_what_is_free_and_the_device_goes_on) {
    shd_device *device = open_first();
    shd_device_facts facts;
    void *memory = NULL;
    char asked[32];
    ops->facts(device, &facts);
    snprintf(asked, sizeof asked, "%lld bytes", (long long)facts.total_bytes + 1);
    cr_assert_eq(ops->allocate(device, facts.total_bytes + 1, &memory), SHERD_MEMORY);
    cr_assert(strstr(sherd_last_error(), asked), "%s", sherd_last_error());
    cr_assert(strstr(sherd_last_error(), "are free"), "%s", sherd_last_error());
    cr_assert_eq(ops->allocate_pinned(device, INT64_MAX / 4, &memory), SHERD_MEMORY);
    cr_assert_eq(cudaGetLastError(), cudaSuccess, "a launch would report it");
    cr_assert_eq(ops->status(device), SHERD_OK, "what was refused is no failure of the device");
    memory = take(device, 4 * N);
    ops->release(device, memory);
    ops->close(device);
}

Test(cuda, events_order_streams_and_copies_go_everywhere) {
    shd_device *device = open_first();
    shd_stream *first = make_stream(device, "first", false), *second = make_stream(device, "second", true);
    shd_event *event = make_event(device);
    uint32_t *from = take_pinned(device, 4 * N), *to = take_pinned(device, 4 * N);
    char *a = take(device, 4 * N), *b = take(device, 8 * N);
    for (uint32_t round = 0; round < 20; round++) {
        fill(from, round);
        ops->copy(first, a, from, 4 * N);
        ops->record(first, event);
        ops->await(second, event);
        ops->copy(second, b + 4 * N, a, 4 * N);
        ops->clear(second, b, 4 * N);
        ops->copy(second, b, b + 4 * N, 2 * N);
        ops->copy(second, to, b, 4 * N);
        wait_for(device, second);
        cr_assert_eq(memcmp(to, from, 2 * N), 0);
        for (int32_t i = 2 * N; i < 4 * N; i++) cr_assert_eq(((char *)to)[i], 0);
    }
    cr_assert_eq(ops->status(device), SHERD_OK, "%s", sherd_last_error());
    cr_assert_eq(ops->device_of(second), device);
    cr_assert_eq(ops->native_stream(second), shd_cuda_stream(second));
    cr_assert_neq(shd_cuda_stream(first), (cudaStream_t)0);
    ops->release_pinned(device, from);
    ops->release_pinned(device, to);
    ops->release(device, a);
    ops->release(device, b);
    ops->destroy_event(event);
    ops->destroy_stream(first);
    ops->destroy_stream(second);
    ops->close(device);
}

Test(cuda, an_event_that_was_never_recorded_holds_nobody_up) {
    shd_device *device = open_first();
    shd_stream *stream = make_stream(device, "test", false);
    shd_event *event = make_event(device);
    cr_assert(ops->reached(event));
    ops->await(stream, event);
    wait_for(device, stream);
    cr_assert_eq(ops->status(device), SHERD_OK, "%s", sherd_last_error());
    ops->destroy_event(event);
    ops->destroy_stream(stream);
    ops->close(device);
}

Test(cuda, memory_that_is_there_already_can_be_pinned) {
    shd_device *device = open_first();
    shd_stream *stream = make_stream(device, "test", false);
    int64_t bytes = (4 * N + 4095) / 4096 * 4096;
    uint32_t *shared =
        mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0); /* as ranks share it */
    void *reached = NULL, *memory = take(device, 4 * N);
    cr_assert_eq(ops->pin(device, shared, bytes, &reached), SHERD_OK, "%s", sherd_last_error());
    cr_assert_not_null(reached);
    fill(shared, 3);
    ops->copy(stream, memory, reached, 4 * N);
    wait_for(device, stream);
    memset(shared, 0, (size_t)bytes);
    ops->copy(stream, reached, memory, 4 * N);
    wait_for(device, stream);
    for (uint32_t i = 0; i < N; i++) cr_assert_eq(shared[i], i * 2654435761u + 3);
    ops->unpin(device, shared);
    ops->release(device, memory);
    ops->destroy_stream(stream);
    cr_assert_eq(ops->status(device), SHERD_OK, "%s", sherd_last_error());
    ops->close(device);
    munmap(shared, (size_t)bytes);
}

Test(cuda, the_first_failure_sticks_and_later_calls_do_nothing) {
    shd_device *device = open_first();
    shd_stream *stream = make_stream(device, "gather", false);
    shd_event *event = make_event(device);
    uint32_t *host = take_pinned(device, 4);
    void *memory = take(device, 4);
    shd_cuda_note(stream, cudaSuccess, "nothing at all");
    cr_assert_eq(ops->status(device), SHERD_OK);
    cr_assert_not(shd_cuda_has_failed(stream));
    shd_cuda_note(stream, cudaErrorIllegalAddress, "the attention of a layer");
    ops->fail(device, SHERD_MEMORY, "something later");
    cr_assert(shd_cuda_has_failed(stream));
    cr_assert_eq(ops->status(device), SHERD_DEVICE);
    static const char *const told[] = {"GPU 0", "gather: the attention of a layer", "cudaErrorIllegalAddress (700)",
                                       "compute-sanitizer"};
    for (size_t i = 0; i < sizeof told / sizeof *told; i++)
        cr_assert(strstr(sherd_last_error(), told[i]), "%s: %s", told[i], sherd_last_error());
    *host = 7;
    ops->record(stream, event);
    ops->await(stream, event);
    ops->clear(stream, memory, 4);
    ops->copy(stream, host, memory, 4);
    cr_assert(ops->reached(event));
    cr_assert_eq(*host, 7);
    cr_assert_eq(ops->status(device), SHERD_DEVICE);
    ops->release(device, memory);
    ops->release_pinned(device, host);
    ops->destroy_event(event);
    ops->destroy_stream(stream);
    ops->close(device);
}

Test(cuda, a_failure_from_elsewhere_keeps_its_status_and_text) {
    shd_device *device = open_first();
    ops->fail(device, SHERD_MEMORY, "a library has run out of workspace");
    cr_assert_eq(ops->status(device), SHERD_MEMORY);
    cr_assert_str_eq(sherd_last_error(), "a library has run out of workspace");
    ops->close(device);
}

Test(cuda, closing_frees_what_was_left_and_accepts_nothing) {
    shd_device *device = open_first();
    int64_t before = shd_memory_held(SHD_MEMORY_DEVICE);
    take(device, 4 * N);
    take_pinned(device, 4 * N);
    ops->close(device);
    cr_assert_eq(shd_memory_held(SHD_MEMORY_DEVICE), before);
    ops->close(NULL);
    ops->destroy_stream(NULL);
    ops->destroy_event(NULL);
}
