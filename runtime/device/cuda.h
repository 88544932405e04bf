/* What the files of the CUDA backend share: streams as CUDA knows them, and failures that stick.
 *
 * Only files that are built with the toolkit include it; everybody else goes through device.h. */
#ifndef SHD_DEVICE_CUDA_H
#define SHD_DEVICE_CUDA_H

#include "runtime/device/device.h"

#include <cuda_runtime_api.h>
#include <stdbool.h>

/* The stream to enqueue on. A device that has failed still has its streams: what is enqueued then is of no use to
 * anybody, and does no harm. */
cudaStream_t shd_cuda_stream(const shd_stream *stream);

/* Sticks the failure, if it is one, to the stream's device; `what` was being enqueued: "the attention of layer 3's
 * keys". The text names the CUDA error and what can be done about it. */
void shd_cuda_note(shd_stream *stream, cudaError_t error, const char *what);

/* The same of a failure that is no CUDA error: DEVICE. */
void shd_cuda_fail(shd_stream *stream, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* What products keep of the stream's device: made by `create` at the first call, and given to `destroy` when the device is
 * closed. NULL: it could not be made, and `create` has stuck why. */
void *shd_cuda_products(shd_stream *stream, void *(*create)(shd_stream *stream), void (*destroy)(void *products));

/* Whether the stream's device has failed: launches may be left out. */
bool shd_cuda_has_failed(const shd_stream *stream);

#endif
