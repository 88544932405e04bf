/* Preloaded into one rank of a job under test, which then hangs at a place of our choice: SHERD_TEST_HANG is
 * "WHERE:RANK:PATH"; WHERE is "data", reading a file called train.txt, or "compute", a matrix product, which never return
 * once there is a file PATH. */
#include <dlfcn.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static void hang_if_due(const char *where) {
    const char *order = getenv("SHERD_TEST_HANG"), *rank = getenv("RANK");
    char place[16] = "";
    int victim = -1, skip = 0;
    if (!order || !rank || sscanf(order, "%15[^:]:%d:%n", place, &victim, &skip) != 2 || !skip) return;
    if (strcmp(place, where) != 0 || atoi(rank) != victim) return;
    if (access(order + skip, F_OK)) return;
    for (;;) pause();
}

static bool is_training_data(int descriptor) {
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return false;
    path[length] = 0;
    return strstr(path, "/train.txt") != NULL;
}

typedef ssize_t (*read_fn)(int, void *, size_t, off_t);

ssize_t pread(int descriptor, void *out, size_t bytes, off_t offset) {
    if (is_training_data(descriptor)) hang_if_due("data");
    return ((read_fn)dlsym(RTLD_NEXT, "pread"))(descriptor, out, bytes, offset);
}

ssize_t pread64(int descriptor, void *out, size_t bytes, off64_t offset) {
    if (is_training_data(descriptor)) hang_if_due("data");
    return ((read_fn)dlsym(RTLD_NEXT, "pread64"))(descriptor, out, bytes, offset);
}

typedef void (*product_fn)(int, int, int, int, int, int, float, const float *, int, const float *, int, float, float *,
                           int);

void cblas_sgemm(int order, int ta, int tb, int m, int n, int k, float alpha, const float *a, int lda, const float *b,
                 int ldb, float beta, float *c, int ldc);
void cblas_sgemm(int order, int ta, int tb, int m, int n, int k, float alpha, const float *a, int lda, const float *b,
                 int ldb, float beta, float *c, int ldc) {
    hang_if_due("compute");
    ((product_fn)dlsym(RTLD_NEXT, "cblas_sgemm"))(order, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}
