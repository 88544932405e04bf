/* cuBLASLt and NCCL, loaded when a device is opened: linking them would cost every process of sherd, those on the CPU
 * too, a tenth of a second and 200 MB.
 *
 * Each is a table of its functions by their own names, typed by its header: lt->cublasLtMatmul(…). What is already in
 * the process is taken (the software device of the tests, a preloaded library), unless SHERD_CUBLASLT or SHERD_NCCL
 * has the path of another; else the dynamic linker looks for the sonames, LD_LIBRARY_PATH first. */
#ifndef SHD_DEVICE_CUDA_LOADER_H
#define SHD_DEVICE_CUDA_LOADER_H

#include <cublasLt.h>
#include <nccl.h>
#include <sherd/status.h>

#define SHD_CUBLASLT_FUNCTIONS(F)                                                                                      \
    F(cublasLtGetVersion)                                                                                              \
    F(cublasLtGetStatusString)                                                                                         \
    F(cublasLtCreate)                                                                                                  \
    F(cublasLtDestroy)                                                                                                 \
    F(cublasLtMatrixLayoutCreate)                                                                                      \
    F(cublasLtMatrixLayoutSetAttribute)                                                                                \
    F(cublasLtMatrixLayoutDestroy)                                                                                     \
    F(cublasLtMatmulDescCreate)                                                                                        \
    F(cublasLtMatmulDescSetAttribute)                                                                                  \
    F(cublasLtMatmulDescDestroy)                                                                                       \
    F(cublasLtMatmulPreferenceCreate)                                                                                  \
    F(cublasLtMatmulPreferenceSetAttribute)                                                                            \
    F(cublasLtMatmulPreferenceDestroy)                                                                                 \
    F(cublasLtMatmulAlgoGetHeuristic)                                                                                  \
    F(cublasLtMatmul)

#define SHD_NCCL_FUNCTIONS(F)                                                                                          \
    F(ncclGetVersion)                                                                                                  \
    F(ncclGetErrorString)                                                                                              \
    F(ncclGetLastError)                                                                                                \
    F(ncclGetUniqueId)                                                                                                 \
    F(ncclCommInitRankConfig)                                                                                          \
    F(ncclCommSplit)                                                                                                   \
    F(ncclCommGetAsyncError)                                                                                           \
    F(ncclCommFinalize)                                                                                                \
    F(ncclCommAbort)                                                                                                   \
    F(ncclCommDestroy)                                                                                                 \
    F(ncclGroupStart)                                                                                                  \
    F(ncclGroupEnd)                                                                                                    \
    F(ncclAllGather)                                                                                                   \
    F(ncclReduceScatter)                                                                                               \
    F(ncclSend)                                                                                                        \
    F(ncclRecv)

#define SHD_LIBRARY_MEMBER(function) __typeof__(&function) function;

typedef struct shd_cublaslt {
    SHD_CUBLASLT_FUNCTIONS(SHD_LIBRARY_MEMBER)
} shd_cublaslt;

typedef struct shd_nccl {
    SHD_NCCL_FUNCTIONS(SHD_LIBRARY_MEMBER)
} shd_nccl;

/* The library's functions, all of them there; loaded by the first call that succeeds, and never unloaded.
 * Fails: CONFIG (where it was looked for, and what would help; or which function it lacks, since it is too old).
 * Threads: any. */
sherd_status shd_cublaslt_load(const shd_cublaslt **out);
sherd_status shd_nccl_load(const shd_nccl **out);

/* Which library that is, for people: "NCCL 2.28.9 (/usr/lib/libnccl.so.2)"; "" before it is loaded. */
const char *shd_cublaslt_title(void);
const char *shd_nccl_title(void);

#endif
