/* The CUDA runtime's entry points, but those for memory. */
#include "tests/softcuda/soft_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VERSION = 13000, MOST_SHARED_BYTES = 227 << 10, SHARED_BYTES = 48 << 10, MOST_THREADS = 1024 };

int soft_device_count;
static _Thread_local int current_device;

int soft_device(void) { return current_device; }
void softcuda_set_devices(int count) { soft_device_count = count < 0 ? 0 : count > 64 ? 64 : count; }

/* devices */

cudaError_t cudaGetDeviceCount(int *count) {
    SOFT_ENTER();
    if (soft_device_count == 0) return soft_leave(cudaErrorInsufficientDriver); /* as without a driver */
    *count = soft_device_count;
    return soft_leave(cudaSuccess);
}

cudaError_t cudaSetDevice(int device) {
    SOFT_ENTER();
    if (device < 0 || device >= soft_device_count) return soft_leave(cudaErrorInvalidDevice);
    current_device = device;
    return soft_leave(cudaSuccess);
}

cudaError_t cudaGetDevice(int *device) {
    SOFT_ENTER();
    *device = current_device;
    return soft_leave(cudaSuccess);
}

static bool find_attribute(enum cudaDeviceAttr attribute, int *out) {
    static const struct {
        enum cudaDeviceAttr attribute;
        int value;
    } values[] = {
        {cudaDevAttrComputeCapabilityMajor, 8},
        {cudaDevAttrComputeCapabilityMinor, 0},
        {cudaDevAttrMultiProcessorCount, 4}, /* few, so that grid-stride loops take several rounds */
        {cudaDevAttrWarpSize, 32},
        {cudaDevAttrMaxThreadsPerBlock, MOST_THREADS},
        {cudaDevAttrMaxThreadsPerMultiProcessor, 2048},
        {cudaDevAttrMaxBlockDimX, MOST_THREADS},
        {cudaDevAttrMaxGridDimX, INT32_MAX},
        {cudaDevAttrMaxSharedMemoryPerBlock, SHARED_BYTES},
        {cudaDevAttrMaxSharedMemoryPerBlockOptin, MOST_SHARED_BYTES},
        {cudaDevAttrMaxSharedMemoryPerMultiprocessor, MOST_SHARED_BYTES + 1024},
        {cudaDevAttrMaxRegistersPerBlock, 65536},
        {cudaDevAttrUnifiedAddressing, 1},
        {cudaDevAttrCanMapHostMemory, 1},
        {cudaDevAttrHostRegisterSupported, 1},
        {cudaDevAttrAsyncEngineCount, 2},
        {cudaDevAttrConcurrentKernels, 1},
        {cudaDevAttrL2CacheSize, 1 << 20},
        {cudaDevAttrStreamPrioritiesSupported, 1},
        {cudaDevAttrIntegrated, 0},
    };
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        if (values[i].attribute == attribute) {
            *out = values[i].value;
            return true;
        }
    return false;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device) {
    SOFT_ENTER();
    if (device < 0 || device >= soft_device_count) return soft_leave(cudaErrorInvalidDevice);
    return soft_leave(find_attribute(attribute, value) ? cudaSuccess : cudaErrorInvalidValue);
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *out, int device) {
    SOFT_ENTER();
    if (device < 0 || device >= soft_device_count) return soft_leave(cudaErrorInvalidDevice);
    size_t available, total;
    cudaError_t code = cudaMemGetInfo(&available, &total);
    if (code != cudaSuccess) return soft_leave(code);
    *out = (struct cudaDeviceProp){.totalGlobalMem = total,
                                   .major = 8,
                                   .multiProcessorCount = 4,
                                   .warpSize = 32,
                                   .maxThreadsPerBlock = MOST_THREADS,
                                   .sharedMemPerBlock = SHARED_BYTES,
                                   .sharedMemPerBlockOptin = MOST_SHARED_BYTES,
                                   .unifiedAddressing = 1,
                                   .canMapHostMemory = 1,
                                   .pciBusID = device};
    snprintf(out->name, sizeof out->name, "software device");
    return soft_leave(cudaSuccess);
}

cudaError_t cudaDriverGetVersion(int *version) {
    SOFT_ENTER();
    *version = soft_device_count > 0 ? VERSION : 0;
    return soft_leave(cudaSuccess);
}

cudaError_t cudaRuntimeGetVersion(int *version) {
    SOFT_ENTER();
    *version = VERSION;
    return soft_leave(cudaSuccess);
}

cudaError_t cudaDeviceReset(void) {
    SOFT_ENTER();
    return soft_leave(cudaSuccess);
}

/* streams */

static bool is_default(cudaStream_t stream, const char *function) {
    if ((uintptr_t)stream > 2) return false;
    softcuda_add_report("default stream: %s of it", function);
    return true;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *out, unsigned flags, int priority) {
    (void)priority; /* priorities of the device only hint; here they are drawn */
    SOFT_ENTER();
    return soft_leave(soft_stream_begin(flags, current_device, out));
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags) {
    SOFT_ENTER();
    return soft_leave(soft_stream_begin(flags, current_device, out));
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
    SOFT_ENTER();
    if (least) *least = 0;
    if (greatest) *greatest = -5;
    return soft_leave(cudaSuccess);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    SOFT_ENTER();
    if (is_default(stream, __func__)) return soft_leave(cudaErrorInvalidResourceHandle);
    soft_stream_end(stream);
    return soft_leave(cudaSuccess);
}

static bool is_empty(void *stream) { return !((cudaStream_t)stream)->head; }

static cudaError_t synchronise(cudaStream_t stream, const char *caller) {
    cudaError_t code = soft_wait_until(is_empty, stream, caller);
    if (code != cudaSuccess) return code;
    soft_clock_join(&soft_host_clock, &stream->clock);
    soft_tsan_acquire(&stream->done);
    return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
    SOFT_ENTER();
    if (is_default(stream, __func__)) return soft_leave(cudaErrorInvalidResourceHandle);
    soft_step();
    if (soft_broken() != cudaSuccess) return soft_leave(soft_broken());
    return soft_leave(is_empty(stream) ? synchronise(stream, __func__) : cudaErrorNotReady);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    SOFT_ENTER();
    if (is_default(stream, __func__)) return soft_leave(cudaErrorInvalidResourceHandle);
    return soft_leave(synchronise(stream, __func__));
}

cudaError_t cudaDeviceSynchronize(void) {
    SOFT_ENTER();
    cudaError_t code = cudaSuccess;
    for (int i = 0; i < soft_stream_slots() && code == cudaSuccess; i++)
        if (soft_stream_at(i) && soft_stream_at(i)->device == current_device)
            code = synchronise(soft_stream_at(i), __func__);
    return soft_leave(code);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
    (void)flags;
    SOFT_ENTER();
    if (is_default(stream, __func__)) return soft_leave(cudaErrorInvalidResourceHandle);
    if (!event->record) {
        softcuda_add_report("unrecorded event: %s waits for an event that was never recorded", stream->name);
        return soft_leave(cudaSuccess);
    }
    if (soft_skips_wait()) return soft_leave(cudaSuccess);
    soft_entry *entry = soft_entry_create(stream, SOFT_WAIT, "cudaStreamWaitEvent");
    soft_clock_join(&stream->clock, &event->record->clock);
    entry->record = event->record;
    entry->record->references++;
    soft_entry_push(stream, entry);
    return soft_leave(cudaSuccess);
}

/* events */

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags) {
    (void)flags;
    SOFT_ENTER();
    *out = calloc(1, sizeof **out);
    soft_event_count++;
    return soft_leave(cudaSuccess);
}

/* Also where it fails: CUDA then tells of something earlier. */
cudaError_t cudaEventDestroy(cudaEvent_t event) {
    cudaError_t code = soft_enter(__func__);
    soft_record_drop(event->record);
    free(event);
    soft_event_count--;
    return soft_leave(code);
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    SOFT_ENTER();
    if (is_default(stream, __func__)) return soft_leave(cudaErrorInvalidResourceHandle);
    soft_entry *entry = soft_entry_create(stream, SOFT_RECORD, "cudaEventRecord");
    soft_record *record = calloc(1, sizeof *record);
    record->references = 2; /* the event's and the entry's */
    record->entity = stream->entity;
    record->number = entry->number;
    record->clock = stream->clock;
    soft_record_drop(event->record);
    event->record = entry->record = record;
    soft_entry_push(stream, entry);
    return soft_leave(cudaSuccess);
}

static bool is_reached(void *record) { return ((soft_record *)record)->is_done; }

/* The host has seen it: all before it is done. */
static cudaError_t see(soft_record *record) {
    soft_clock_join(&soft_host_clock, &record->clock);
    soft_tsan_acquire(record);
    return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
    SOFT_ENTER();
    if (!event->record) return soft_leave(cudaSuccess);
    if (!event->record->is_done) soft_step();
    if (soft_broken() != cudaSuccess) return soft_leave(soft_broken());
    return soft_leave(event->record->is_done ? see(event->record) : cudaErrorNotReady);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    SOFT_ENTER();
    if (!event->record) return soft_leave(cudaSuccess);
    soft_record *record = event->record;
    record->references++; /* another thread may record the event anew meanwhile */
    cudaError_t code = soft_wait_until(is_reached, record, __func__);
    if (code == cudaSuccess) code = see(record);
    soft_record_drop(record);
    return soft_leave(code);
}

/* copies */

typedef struct copy {
    void *to;
    const void *from; /* NULL: `value` */
    size_t bytes;
    int value;
} copy;

static softcuda_progress run_copy(void *state) {
    const copy *c = state;
    if (c->from)
        memmove(c->to, c->from, c->bytes);
    else
        memset(c->to, c->value, c->bytes);
    return SOFTCUDA_DONE;
}

static cudaError_t enqueue_copy(cudaStream_t stream, const char *name, copy what, bool knows_from, bool knows_to) {
    softcuda_access accesses[2];
    size_t count = 0;
    if (knows_from) accesses[count++] = (softcuda_access){what.from, what.bytes, false};
    if (knows_to) accesses[count++] = (softcuda_access){what.to, what.bytes, true};
    copy *state = malloc(sizeof *state);
    *state = what;
    return soft_enqueue(
        stream,
        &(softcuda_operation){
            .name = name, .run = run_copy, .drop = free, .state = state, .accesses = accesses, .access_count = count});
}

/* A direction that is named must be the pointers'. */
static bool fits(enum cudaMemcpyKind kind, const soft_allocation *to, const soft_allocation *from) {
    bool to_device = to && to->place == SOFT_DEVICE, from_device = from && from->place == SOFT_DEVICE;
    switch (kind) {
    case cudaMemcpyHostToDevice: return to_device && !from_device;
    case cudaMemcpyDeviceToHost: return !to_device && from_device;
    case cudaMemcpyDeviceToDevice: return to_device && from_device;
    case cudaMemcpyHostToHost: return !to_device && !from_device;
    default: return true;
    }
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream) {
    SOFT_ENTER();
    if (bytes == 0) return soft_leave(cudaSuccess);
    soft_allocation *a = soft_find((uintptr_t)to), *b = soft_find((uintptr_t)from);
    if (!fits(kind, a, b)) return soft_leave(cudaErrorInvalidMemcpyDirection);
    if (!a || !b)
        softcuda_add_report(
            "pageable copy: the %s of an asynchronous copy of %zu bytes is not pinned: it is not asynchronous",
            a ? "source" : "target", bytes);
    const char *name = a && a->place == SOFT_DEVICE
                           ? b && b->place == SOFT_DEVICE ? "a copy on the device" : "a copy to the device"
                           : "a copy to the host";
    cudaError_t code = enqueue_copy(stream, name, (copy){to, from, bytes, 0}, b, a);
    if (code == cudaSuccess && (!a || !b)) code = synchronise(stream, __func__);
    return soft_leave(code);
}

cudaError_t cudaMemsetAsync(void *memory, int value, size_t bytes, cudaStream_t stream) {
    SOFT_ENTER();
    if (bytes == 0) return soft_leave(cudaSuccess);
    return soft_leave(enqueue_copy(stream, "a memset", (copy){memory, NULL, bytes, value}, false, true));
}

typedef struct host_function {
    cudaHostFn_t call;
    void *user;
} host_function;

static softcuda_progress run_host_function(void *state) {
    const host_function *function = state;
    function->call(function->user);
    return SOFTCUDA_DONE;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t call, void *user) {
    SOFT_ENTER();
    host_function *state = malloc(sizeof *state);
    *state = (host_function){call, user};
    return soft_leave(soft_enqueue(
        stream,
        &(softcuda_operation){.name = "a host function", .run = run_host_function, .drop = free, .state = state}));
}

/* errors */

cudaError_t cudaGetLastError(void) { return soft_take_last_error(); }
cudaError_t cudaPeekAtLastError(void) { return soft_last_error(); }

#define ERRORS(E)                                                                                                      \
    E(cudaSuccess, "no error")                                                                                         \
    E(cudaErrorInvalidValue, "invalid argument")                                                                       \
    E(cudaErrorMemoryAllocation, "out of memory")                                                                      \
    E(cudaErrorInitializationError, "initialization error")                                                            \
    E(cudaErrorInvalidConfiguration, "invalid configuration argument")                                                 \
    E(cudaErrorInvalidMemcpyDirection, "invalid copy direction for memcpy")                                            \
    E(cudaErrorInsufficientDriver, "CUDA driver version is insufficient for CUDA runtime version")                     \
    E(cudaErrorNoKernelImageForDevice, "no kernel image is available for execution on the device")                     \
    E(cudaErrorNoDevice, "no CUDA-capable device is detected")                                                         \
    E(cudaErrorInvalidDevice, "invalid device ordinal")                                                                \
    E(cudaErrorECCUncorrectable, "uncorrectable ECC error encountered")                                                \
    E(cudaErrorInvalidResourceHandle, "invalid resource handle")                                                       \
    E(cudaErrorNotReady, "device not ready")                                                                           \
    E(cudaErrorIllegalAddress, "an illegal memory access was encountered")                                             \
    E(cudaErrorLaunchOutOfResources, "too many resources requested for launch")                                        \
    E(cudaErrorLaunchTimeout, "the launch timed out and was terminated")                                               \
    E(cudaErrorLaunchFailure, "unspecified launch failure")                                                            \
    E(cudaErrorHostMemoryAlreadyRegistered, "part or all of the requested memory range is already mapped")             \
    E(cudaErrorHostMemoryNotRegistered, "pointer does not correspond to a registered memory region")                   \
    E(cudaErrorNotSupported, "operation not supported")                                                                \
    E(cudaErrorUnknown, "unknown error")

#define ERROR_ROW(code, text) {code, #code, text},

static const struct {
    cudaError_t code;
    const char *name, *text;
} errors[] = {ERRORS(ERROR_ROW)};

const char *cudaGetErrorName(cudaError_t code) {
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].code == code) return errors[i].name;
    return "unrecognized error code";
}

const char *cudaGetErrorString(cudaError_t code) {
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].code == code) return errors[i].text;
    return "unrecognized error code";
}
