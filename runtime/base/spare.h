/* What the machine has left: asked before many pages are taken. */
#ifndef SHD_BASE_SPARE_H
#define SHD_BASE_SPARE_H

#include <stdbool.h>
#include <stdint.h>

/* What is taken from the kernel in one go, between two looks at what is left. */
enum { SHD_MEMORY_STEP_BYTES = 64 << 20 };

/* Bytes of memory that the machine has, or that the control group the process runs in, or one around it, may take where
 * that is less; INT64_MAX when neither is known. */
int64_t shd_memory_total(void);
/* Bytes the kernel thinks it can still give without pushing anything out; INT64_MAX when it does not say. */
int64_t shd_memory_available(void);
/* The same, or what is left to the control group where that is less. */
int64_t shd_memory_free(void);
/* Whether `bytes` more leave it enough for everybody else. The kernel would sooner kill processes, ours or others',
 * than refuse a page, so refusing is done by whoever takes many. */
bool shd_memory_can_spare(int64_t bytes);
/* Whether the limit on the process's address space (RLIMIT_AS, `ulimit -v`) leaves room for `bytes` more. */
bool shd_memory_can_map(int64_t bytes);

#endif
