#include "runtime/device/cuda_loader.h"

#include "runtime/base/status.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SONAMES = 2, TITLE_BYTES = 256, CAUSE_BYTES = 512 };

typedef struct library {
    const char *name, *variable;  /* for people; an environment variable that may have the path of its file */
    const char *sonames[SONAMES]; /* the best first */
    const char *needed;           /* the oldest release that has all functions */
    const char *const *functions; /* their names, and where they go: a struct of pointers, in the same order */
    int function_count;
    void *table;
    void (*print_version)(char *out, size_t bytes);
    bool is_loaded;
    char title[TITLE_BYTES];
} library;

#define FUNCTION_NAME(function) #function,
static const char *const cublaslt_functions[] = {SHD_CUBLASLT_FUNCTIONS(FUNCTION_NAME)};
static const char *const nccl_functions[] = {SHD_NCCL_FUNCTIONS(FUNCTION_NAME)};
#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

static shd_cublaslt cublaslt_table;
static shd_nccl nccl_table;
_Static_assert(sizeof cublaslt_table == sizeof cublaslt_functions, "a pointer for each name");
_Static_assert(sizeof nccl_table == sizeof nccl_functions, "a pointer for each name");

static void print_cublaslt_version(char *out, size_t bytes) {
    size_t version = cublaslt_table.cublasLtGetVersion();
    snprintf(out, bytes, "%zu.%zu.%zu", version / 10000, version / 100 % 100, version % 100);
}

static void print_nccl_version(char *out, size_t bytes) {
    int version = 0;
    snprintf(out, bytes, "of unknown version");
    if (nccl_table.ncclGetVersion(&version) == ncclSuccess)
        snprintf(out, bytes, "%d.%d.%d", version / 10000, version / 100 % 100, version % 100);
}

static library cublaslt = {
    .name = "cuBLASLt",
    .variable = "SHERD_CUBLASLT",
    .sonames = {"libcublasLt.so.13", "libcublasLt.so.12"},
    .needed = "that of CUDA 12.0",
    .functions = cublaslt_functions,
    .function_count = COUNT(cublaslt_functions),
    .table = &cublaslt_table,
    .print_version = print_cublaslt_version,
};

static library nccl = {
    .name = "NCCL",
    .variable = "SHERD_NCCL",
    .sonames = {"libnccl.so.2"},
    .needed = "2.18",
    .functions = nccl_functions,
    .function_count = COUNT(nccl_functions),
    .table = &nccl_table,
    .print_version = print_nccl_version,
};

/* *handle is where to look for functions. False: `cause` has why there is none. */
static bool find(const library *what, void **handle, char cause[CAUSE_BYTES]) {
    const char *path = getenv(what->variable);
    size_t said = 0;
    if (path && *path) {
        *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (!*handle) snprintf(cause, CAUSE_BYTES, "%s is '%s', but %s", what->variable, path, dlerror());
        return *handle;
    }
    *handle = RTLD_DEFAULT;
    if (dlsym(RTLD_DEFAULT, what->functions[0])) return true;
    for (int i = 0; i < SONAMES && what->sonames[i]; i++) {
        *handle = dlopen(what->sonames[i], RTLD_NOW | RTLD_LOCAL);
        if (*handle) return true;
        if (said < CAUSE_BYTES)
            said += (size_t)snprintf(cause + said, CAUSE_BYTES - said, "%s%s", i > 0 ? "; " : "", dlerror());
    }
    return false;
}

/* Who provides the functions, after all of them are there. */
static void print_title(library *what) {
    char version[48];
    void *first;
    Dl_info where;
    memcpy(&first, what->table, sizeof first);
    bool is_known = dladdr(first, &where) != 0 && where.dli_fname;
    what->print_version(version, sizeof version);
    snprintf(what->title, TITLE_BYTES, "%s %s (%s)", what->name, version, is_known ? where.dli_fname : "no file");
}

static sherd_status load_locked(library *what) {
    char cause[CAUSE_BYTES];
    void *handle;
    if (what->is_loaded) return SHERD_OK;
    if (!find(what, &handle, cause))
        return shd_fail(SHERD_CONFIG,
                        "%s cannot be loaded: %s. Install it, or name its folder in LD_LIBRARY_PATH or its file in %s",
                        what->name, cause, what->variable);
    for (int i = 0; i < what->function_count; i++) {
        void *function = dlsym(handle, what->functions[i]);
        if (!function) {
            if (handle != RTLD_DEFAULT) dlclose(handle);
            return shd_fail(SHERD_CONFIG, "the %s that was found has no %s: %s or newer is needed", what->name,
                            what->functions[i], what->needed);
        }
        memcpy((char *)what->table + (size_t)i * sizeof function, &function, sizeof function);
    }
    print_title(what);
    what->is_loaded = true;
    return SHERD_OK;
}

static sherd_status load(library *what) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&lock);
    sherd_status status = load_locked(what);
    pthread_mutex_unlock(&lock);
    return status;
}

sherd_status shd_cublaslt_load(const shd_cublaslt **out) {
    SHD_TRY(load(&cublaslt));
    *out = &cublaslt_table;
    return SHERD_OK;
}

sherd_status shd_nccl_load(const shd_nccl **out) {
    SHD_TRY(load(&nccl));
    *out = &nccl_table;
    return SHERD_OK;
}

const char *shd_cublaslt_title(void) { return cublaslt.title; }
const char *shd_nccl_title(void) { return nccl.title; }
