/* The machine that a rank runs on, as far as records of runs have it: processor, memory, kernel, libraries.
 *
 * All as the process sees it: cores that it may use, not those that are there. What a machine does not tell is left out. */
#ifndef SHD_TRAIN_MACHINE_H
#define SHD_TRAIN_MACHINE_H

#include <jansson.h>

/* Each gives an object to be released with json_decref; NULL when memory is out. Threads: any. */

/* "system", "release", "machine", "distribution". */
json_t *shd_machine_kernel_json(void);
/* "model", "cores" (there), "usable_cores", "features" (of those that matter here), and what sherd computes with. */
json_t *shd_machine_cpu_json(void);
/* "total_bytes", "limit_bytes" (of the control group), "nodes": a list of {"node", "cpus", "bytes"}. */
json_t *shd_machine_memory_json(void);
/* The shared libraries of this process by the names that it was linked with: the files that they are, whose names have
 * their versions ("libzstd.so.1": "libzstd.so.1.5.4"). */
json_t *shd_machine_libraries_json(void);

#endif
