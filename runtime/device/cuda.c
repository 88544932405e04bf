#include "runtime/device/cuda.h"

#include "runtime/base/status.h"
#include "runtime/device/cuda_kernels.h"
#include "runtime/device/cuda_loader.h"
#include "runtime/device/cuda_parts.h"

#include <nvtx3/nvToolsExtCudaRt.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>

/* bf16 products of tensor cores, and asynchronous copies into shared memory. */
enum { LEAST_MAJOR = 8, WHERE_BYTES = 256 };

/* CUDA keeps a current device per thread, and kernels are launched on it. */
static _Thread_local int32_t open_devices, open_index;

/* --- failures ----------------------------------------------------------------------------------------------------- */

static void stick(shd_device *device, sherd_status status, const char *text) {
    if (device->failure != SHERD_OK) return;
    device->failure = status;
    snprintf(device->failure_text, sizeof device->failure_text, "%s", text);
}

static void note(shd_device *device, cudaError_t error, const char *stream, const char *what) {
    char where[WHERE_BYTES], text[SHD_CUDA_TEXT_BYTES];
    if (error == cudaSuccess) return;
    (void)cudaGetLastError(); /* no later launch is to find it */
    snprintf(where, sizeof where, "GPU %d (%s), %s%s%s", (int)device->index, device->facts.name, stream,
             *stream ? ": " : "", what);
    sherd_status status = shd_cuda_explain(error, where, text, sizeof text);
    stick(device, status == SHERD_MEMORY ? SHERD_MEMORY : SHERD_DEVICE, text);
}

void shd_cuda_note(shd_stream *stream, cudaError_t error, const char *what) {
    note(stream->device, error, stream->name, what);
}

void shd_cuda_fail(shd_stream *stream, const char *format, ...) {
    char text[SHD_CUDA_TEXT_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    shd_device_cuda.fail(stream->device, SHERD_DEVICE, text);
}

void *shd_cuda_products(shd_stream *stream, void *(*create)(shd_stream *stream), void (*destroy)(void *products)) {
    shd_device *device = stream->device;
    if (!device->products && device->failure == SHERD_OK) {
        device->products = create(stream);
        device->destroy_products = destroy;
    }
    return device->products;
}

bool shd_cuda_has_failed(const shd_stream *stream) { return stream->device->failure != SHERD_OK; }

cudaStream_t shd_cuda_stream(const shd_stream *stream) { return stream->native; }

/* --- devices ------------------------------------------------------------------------------------------------------ */

static void print_version(char out[32], int version) { snprintf(out, 32, "%d.%d", version / 1000, version / 10 % 100); }

/* cudaErrorInsufficientDriver is what CUDA says without a driver, too. */
static sherd_status refuse_driver(void) {
    int driver = 0, runtime = 0;
    char has[32], needs[32];
    (void)cudaGetLastError();
    shd_cuda_ignore(cudaDriverGetVersion(&driver));
    shd_cuda_ignore(cudaRuntimeGetVersion(&runtime));
    if (driver == 0)
        return shd_fail(SHERD_CONFIG, "no NVIDIA driver is installed here, or its libcuda.so.1 is not found");
    print_version(has, driver);
    print_version(needs, runtime);
    return shd_fail(SHERD_CONFIG,
                    "the NVIDIA driver is too old: it knows CUDA %s, and this build needs %s. Update it, or build "
                    "sherd with an older toolkit",
                    has, needs);
}

static sherd_status count(int32_t *out) {
    int found = 0;
    cudaError_t error = cudaGetDeviceCount(&found);
    if (error == cudaErrorInsufficientDriver) return refuse_driver();
    SHD_TRY(shd_cuda_refuse(error, "counting GPUs"));
    *out = (int32_t)found;
    return SHERD_OK;
}

static sherd_status describe(int32_t index, shd_device_facts *out) {
    struct cudaDeviceProp properties;
    int32_t found;
    int driver = 0, runtime = 0;
    SHD_TRY(count(&found));
    if (index < 0 || index >= found)
        return shd_fail(SHERD_ARGUMENT, "there is no GPU %d: this process sees %d, numbered from 0", (int)index,
                        (int)found);
    SHD_TRY(shd_cuda_refuse(cudaGetDeviceProperties(&properties, index), "asking a GPU what it is"));
    shd_cuda_ignore(cudaDriverGetVersion(&driver));
    shd_cuda_ignore(cudaRuntimeGetVersion(&runtime));
    *out = (shd_device_facts){
        .major = properties.major,
        .minor = properties.minor,
        .total_bytes = (int64_t)properties.totalGlobalMem,
        .free_bytes = -1,
        .is_usable = properties.major >= LEAST_MAJOR,
    };
    snprintf(out->name, sizeof out->name, "%s", properties.name);
    print_version(out->driver, driver);
    print_version(out->api, runtime);
    return SHERD_OK;
}

static sherd_status libraries(char *out, size_t bytes) {
    const shd_cublaslt *cublaslt;
    const shd_nccl *nccl;
    SHD_TRY(shd_cublaslt_load(&cublaslt));
    bool has_nccl = shd_nccl_load(&nccl) == SHERD_OK;
    snprintf(out, bytes, "%s, %s", shd_cublaslt_title(), has_nccl ? shd_nccl_title() : sherd_last_error());
    return SHERD_OK;
}

static void close_device(shd_device *device) {
    if (!device) return;
    if (device->products) device->destroy_products(device->products);
    while (device->blocks) shd_cuda_release(device, device->blocks->address);
    if (device->setup) shd_cuda_ignore(cudaStreamDestroy(device->setup));
    open_devices--;
    shd_free(device);
}

static sherd_status set_up(shd_device *device) {
    const shd_cublaslt *cublaslt;
    char where[WHERE_BYTES];
    SHD_TRY(describe(device->index, &device->facts));
    snprintf(where, sizeof where, "opening GPU %d (%s)", (int)device->index, device->facts.name);
    if (!device->facts.is_usable)
        return shd_fail(SHERD_CONFIG, "GPU %d (%s) has compute capability %d.%d; sherd needs %d.0 or newer",
                        (int)device->index, device->facts.name, (int)device->facts.major, (int)device->facts.minor,
                        LEAST_MAJOR);
    SHD_TRY(shd_cublaslt_load(&cublaslt));
    SHD_TRY(shd_cuda_refuse(cudaSetDevice(device->index), where));
    SHD_TRY(shd_cuda_refuse(shd_cuda_load_kernels(), where));
    return shd_cuda_refuse(cudaStreamCreateWithFlags(&device->setup, cudaStreamNonBlocking), where);
}

static sherd_status open_device(const shd_device_config *config, shd_device **out) {
    if (open_devices > 0 && open_index != config->index)
        return shd_fail(SHERD_STATE, "this thread has GPU %d open, and cannot open GPU %d besides", (int)open_index,
                        (int)config->index);
    shd_device *device = shd_alloc(1, sizeof *device);
    if (!device) return shd_fail(SHERD_MEMORY, "no memory for a device");
    device->index = config->index;
    open_devices++;
    open_index = config->index;
    sherd_status status = set_up(device);
    if (status == SHERD_OK)
        *out = device;
    else
        close_device(device);
    return status;
}

static void facts(shd_device *device, shd_device_facts *out) {
    size_t free_bytes, total_bytes;
    *out = device->facts;
    cudaError_t error = cudaMemGetInfo(&free_bytes, &total_bytes);
    if (error == cudaSuccess) out->free_bytes = (int64_t)free_bytes;
    shd_cuda_ignore(error);
}

/* --- streams and events ------------------------------------------------------------------------------------------- */

/* NVTX's first call sets it up, without a lock of its own. */
static void name_for_profilers(const shd_stream *stream) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&lock);
    nvtxNameCudaStreamA(stream->native, stream->name);
    pthread_mutex_unlock(&lock);
}

static sherd_status create_stream(shd_device *device, const char *name, bool urgent, shd_stream **out) {
    int least, greatest;
    shd_stream *stream = shd_alloc(1, sizeof *stream);
    if (!stream) return shd_fail(SHERD_MEMORY, "no memory for stream %s", name);
    *stream = (shd_stream){.device = device, .name = name};
    cudaError_t error = cudaDeviceGetStreamPriorityRange(&least, &greatest);
    if (error == cudaSuccess)
        error = cudaStreamCreateWithPriority(&stream->native, cudaStreamNonBlocking, urgent ? greatest : least);
    if (error != cudaSuccess) {
        shd_free(stream);
        return shd_cuda_refuse(error, "creating a stream");
    }
    name_for_profilers(stream);
    *out = stream;
    return SHERD_OK;
}

static void destroy_stream(shd_stream *stream) {
    if (!stream) return;
    shd_cuda_ignore(cudaStreamDestroy(stream->native));
    shd_free(stream);
}

static sherd_status create_event(shd_device *device, shd_event **out) {
    shd_event *event = shd_alloc(1, sizeof *event);
    if (!event) return shd_fail(SHERD_MEMORY, "no memory for an event");
    event->device = device;
    cudaError_t error = cudaEventCreateWithFlags(&event->native, cudaEventDisableTiming);
    if (error != cudaSuccess) {
        shd_free(event);
        return shd_cuda_refuse(error, "creating an event");
    }
    *out = event;
    return SHERD_OK;
}

static void destroy_event(shd_event *event) {
    if (!event) return;
    shd_cuda_ignore(cudaEventDestroy(event->native));
    shd_free(event);
}

static void record(shd_stream *stream, shd_event *event) {
    if (shd_cuda_has_failed(stream)) return;
    shd_cuda_note(stream, cudaEventRecord(event->native, stream->native), "recording an event");
    event->is_recorded = true;
}

static void await(shd_stream *stream, shd_event *event) {
    if (shd_cuda_has_failed(stream) || !event->is_recorded) return;
    shd_cuda_note(stream, cudaStreamWaitEvent(stream->native, event->native, 0), "waiting for an event");
}

static bool reached(shd_event *event) {
    if (event->device->failure != SHERD_OK || !event->is_recorded) return true;
    cudaError_t error = cudaEventQuery(event->native);
    if (error == cudaErrorNotReady) {
        (void)cudaGetLastError(); /* CUDA keeps this as if it were a failure: the next launch would report it */
        return false;
    }
    note(event->device, error, "", "running what it was given");
    return true;
}

/* --- copies ------------------------------------------------------------------------------------------------------- */

static void copy(shd_stream *stream, void *to, const void *from, int64_t bytes) {
    if (bytes == 0 || shd_cuda_has_failed(stream)) return;
    shd_cuda_note(stream, cudaMemcpyAsync(to, from, (size_t)bytes, cudaMemcpyDefault, stream->native), "a copy");
}

static void clear(shd_stream *stream, void *memory, int64_t bytes) {
    if (bytes == 0 || shd_cuda_has_failed(stream)) return;
    shd_cuda_note(stream, cudaMemsetAsync(memory, 0, (size_t)bytes, stream->native), "clearing memory");
}

/* --- the table ---------------------------------------------------------------------------------------------------- */

static sherd_status status_of(shd_device *device) {
    return device->failure == SHERD_OK ? SHERD_OK : shd_fail(device->failure, "%s", device->failure_text);
}

static shd_device *device_of(shd_stream *stream) { return stream->device; }
static void *native_stream(shd_stream *stream) { return stream->native; }

const shd_device_ops shd_device_cuda = {
    .name = "cuda",
    .count = count,
    .describe = describe,
    .libraries = libraries,
    .open = open_device,
    .close = close_device,
    .facts = facts,
    .allocate = shd_cuda_allocate,
    .release = shd_cuda_release,
    .allocate_pinned = shd_cuda_allocate_pinned,
    .release_pinned = shd_cuda_release,
    .pin = shd_cuda_pin,
    .unpin = shd_cuda_unpin,
    .create_stream = create_stream,
    .destroy_stream = destroy_stream,
    .create_event = create_event,
    .destroy_event = destroy_event,
    .record = record,
    .await = await,
    .reached = reached,
    .copy = copy,
    .clear = clear,
    .status = status_of,
    .fail = stick,
    .device_of = device_of,
    .native_stream = native_stream,
};
