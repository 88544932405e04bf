#include "runtime/launch/descriptors.h"

void shd_descriptors_raise(shd_descriptors *descriptors) {
    *descriptors = (shd_descriptors){0};
    if (getrlimit(RLIMIT_NOFILE, &descriptors->before) < 0) return;
    struct rlimit all = descriptors->before;
    all.rlim_cur = all.rlim_max;
    descriptors->raised = all.rlim_cur != descriptors->before.rlim_cur && setrlimit(RLIMIT_NOFILE, &all) == 0;
}

void shd_descriptors_restore(const shd_descriptors *descriptors) {
    if (descriptors->raised) setrlimit(RLIMIT_NOFILE, &descriptors->before);
}
