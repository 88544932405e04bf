/* How many descriptors the launcher may have. Each rank whose output is taken costs it five, and on node 0 each node
 * two: more than the soft limit that is usual, so the launcher takes all it may have; ranks start with what it had. */
#ifndef SHD_LAUNCH_DESCRIPTORS_H
#define SHD_LAUNCH_DESCRIPTORS_H

#include <stdbool.h>
#include <sys/resource.h>

typedef struct shd_descriptors {
    bool raised;
    struct rlimit before;
} shd_descriptors;

/* Raises this process's limit as far as it may. */
void shd_descriptors_raise(shd_descriptors *descriptors);
/* As it was, for this process, also between fork and exec. Descriptors beyond it stay open. */
void shd_descriptors_restore(const shd_descriptors *descriptors);

#endif
