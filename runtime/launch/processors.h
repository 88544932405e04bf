/* What this host has to compute with, as far as one can see without any vendor's library. */
#ifndef SHD_LAUNCH_PROCESSORS_H
#define SHD_LAUNCH_PROCESSORS_H

#include <stdint.h>

/* Logical CPUs that this process may run on; at least 1. */
int32_t shd_processors_count(void);
/* GPUs that programs started from here would see: those of the driver, or the list in CUDA_VISIBLE_DEVICES. */
int32_t shd_processors_count_devices(void);

#endif
