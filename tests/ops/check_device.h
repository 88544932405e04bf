/* What the tests of a device's operations share: a device with a stream, and numbers brought there and back. The same
 * tests run on the software device and, linked with the program's own backend, on a GPU; without one they are skipped.
 * What check.h has for memory of the host and for its two questions serves here too. */
#ifndef SHD_TESTS_OPS_CHECK_DEVICE_H
#define SHD_TESTS_OPS_CHECK_DEVICE_H

#include "check.h"

/* Opens the first device, or ends the test as skipped. */
void check_device_begin(void);
/* Asserts that nothing has failed on the device and, on the software device, that there are no reports; frees what came
 * from the functions below and from check.h. */
void check_device_end(void);
/* The same, but leaves the device open for the next case. */
void check_device_next(void);

/* For operations on `dtype`, with scratch for products. */
shd_math check_device_math(sherd_dtype dtype);

/* Memory of the device, each byte 0x7f, as check_memory. */
void *check_device_memory(int64_t bytes);
/* What `host` holds, in memory of the device. NULL stays NULL. */
void *check_to_device(int64_t bytes, const void *host);
/* x as an operation has it: stored in `dtype`, on the device. NULL stays NULL. */
void *check_device_stored(sherd_dtype dtype, int64_t count, const float *x);
/* What is there when all that was enqueued has run. Memory of the host, from check_memory. */
void *check_from_device(int64_t bytes, const void *device);

#endif
