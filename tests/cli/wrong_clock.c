/* Preloaded into rank 1 of a job: its wall clock is an hour ahead. */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

int clock_gettime(clockid_t which, struct timespec *out) {
    int (*next)(clockid_t, struct timespec *) =
        (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int result = next(which, out);
    const char *rank = getenv("RANK");
    if (result == 0 && which == CLOCK_REALTIME && rank && strcmp(rank, "1") == 0) out->tv_sec += 3600;
    return result;
}
