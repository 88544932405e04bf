/* A device: memory of its own and streams that run work in order, beside the host. One backend, CUDA; programs that are
 * linked without it have none, and say so.
 *
 * Everything is enqueued by one thread, in the same order on every rank. A stream runs its work in the order of the
 * calls; between streams only events order. Nothing that is given work waits for it: whoever needs to asks `reached`
 * again and again, and decides what happens meanwhile. What begins and ends memory, streams and events may wait.
 *
 * Failures stick: the first one of a stream's device is kept, later calls do nothing, and shd_device_status returns it.
 * So calls that enqueue return nothing, and whoever is about to trust results asks once.
 * Threads: the one that opened it, which opens one device at a time. */
#ifndef SHD_DEVICE_DEVICE_H
#define SHD_DEVICE_DEVICE_H

#include <sherd/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct shd_device shd_device;
typedef struct shd_stream shd_stream;
typedef struct shd_event shd_event;

typedef struct shd_device_config {
    int32_t index; /* of the devices that this process sees */
} shd_device_config;

/* What a device is, for people and for choices. */
typedef struct shd_device_facts {
    char name[128];                  /* "NVIDIA H100 80GB HBM3" */
    char driver[32], api[32];        /* versions: "13.0" */
    int32_t major, minor;            /* compute capability */
    int64_t total_bytes, free_bytes; /* free: -1 where only opening would tell */
    bool is_usable;                  /* new enough to be opened */
} shd_device_facts;

/* What a backend provides; every slot is required. Calls without a status stick their failure to the device. */
typedef struct shd_device_ops {
    const char *name; /* as in job files: "cuda" */

    /* How many devices this process sees, without keeping anything of them. Fails: CONFIG (why there are none, and what
     * would help: no driver, no device, a library that is missing or too old). */
    sherd_status (*count)(int32_t *out);
    /* What device `index` is, without opening it, which takes a second and half a gigabyte. Fails: CONFIG as count does,
     * ARGUMENT (there is no such device). */
    sherd_status (*describe)(int32_t index, shd_device_facts *out);
    /* Which libraries it has loaded besides and from where, or why not: a line for people. Fails: CONFIG (one is missing
     * without which no device opens). */
    sherd_status (*libraries)(char *out, size_t bytes);
    /* Opens device `index`: loads libraries and every kernel. Fails: CONFIG as count does, MEMORY, DEVICE. */
    sherd_status (*open)(const shd_device_config *config, shd_device **out);
    /* Waits for nothing; accepts NULL. Streams, events and memory of the device are ended before. */
    void (*close)(shd_device *device);
    void (*facts)(shd_device *device, shd_device_facts *out);

    /* Memory of the device, 256-byte aligned, zeroed; freed when nothing can still use it. Fails: MEMORY (what was asked
     * for, and what is free). */
    sherd_status (*allocate)(shd_device *device, int64_t bytes, void **out);
    void (*release)(shd_device *device, void *memory);
    /* Host memory that the device can reach and copies run to and from, page aligned, zeroed. Likewise. */
    sherd_status (*allocate_pinned)(shd_device *device, int64_t bytes, void **out);
    void (*release_pinned)(shd_device *device, void *memory);
    /* Makes host memory that is there already (shared memory of ranks) reachable by copies and kernels: *address is what
     * kernels use. `memory` begins a page. Fails: MEMORY, DEVICE. */
    sherd_status (*pin)(shd_device *device, void *memory, int64_t bytes, void **address);
    void (*unpin)(shd_device *device, void *memory);

    /* `name`: of what the stream runs, for profilers; borrowed. Fails: DEVICE, MEMORY. */
    sherd_status (*create_stream)(shd_device *device, const char *name, bool urgent, shd_stream **out);
    void (*destroy_stream)(shd_stream *stream);
    sherd_status (*create_event)(shd_device *device, shd_event **out);
    void (*destroy_event)(shd_event *event);

    /* `event` stands for all that `stream` has been given so far, until it is recorded anew. */
    void (*record)(shd_stream *stream, shd_event *event);
    /* What `stream` is given from now on runs after `event` as it was recorded last; never recorded: nothing to wait for. */
    void (*await)(shd_stream *stream, shd_event *event);
    /* Whether what it stands for is done; true where it was never recorded, and after a failure. Never blocks. */
    bool (*reached)(shd_event *event);

    /* Copies between any two of device memory, pinned and pinned-in-place host memory. The memory stays as it is until
     * the stream is past it. */
    void (*copy)(shd_stream *stream, void *to, const void *from, int64_t bytes);
    void (*clear)(shd_stream *stream, void *memory, int64_t bytes); /* to zero */

    /* The first failure, with its text as sherd_last_error; OK without one. Fails: DEVICE, MEMORY. */
    sherd_status (*status)(shd_device *device);
    /* Sticks a failure found elsewhere on the device (by a kernel's launch, a library). */
    void (*fail)(shd_device *device, sherd_status status, const char *text);
    shd_device *(*device_of)(shd_stream *stream);
    /* The backend's own handle of a stream (cudaStream_t), for callers that enqueue themselves. */
    void *(*native_stream)(shd_stream *stream);
} shd_device_ops;

/* The backend; where the program is linked without it: NULL. */
extern const shd_device_ops shd_device_cuda __attribute__((weak));
static inline const shd_device_ops *shd_device_backend(void) { return &shd_device_cuda; }

#endif
