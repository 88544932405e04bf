/* NCCL on the software device: between processes, and between threads of one, through shared memory that is named by the
 * unique id. Every pair of ranks has a ring; a collective is one operation of the device that gives to and takes from
 * all its peers as their rings have room. It ends when its peers have taken all that it gave: NCCL promises no more.
 *
 * Communicators without blocking do what they are told while ncclCommGetAsyncError is called on them, after a number of
 * calls that is drawn: until then nothing is on the stream. A rank that ends or aborts is not noticed by the others.
 *
 * Environment, beside softcuda.h's:
 *   SOFTCUDA_FAIL                ncclAsyncError:N:CODE gives the Nth communicator that is asked CODE as its state
 *   SOFTCUDA_NCCL_ONE            set: a rank's device runs one communication kernel at a time
 *   NCCL_LAUNCH_ORDER_IMPLICIT   1: a rank's communication kernels start in the order of the host's calls
 * Reports: "nccl: …". */
#ifndef SHD_TESTS_SOFT_NCCL_H
#define SHD_TESTS_SOFT_NCCL_H

#include "tests/softcuda/softcuda.h"

#include <nccl.h>
#include <stdatomic.h>

enum { SOFT_NCCL_RANKS = 16, SOFT_NCCL_SPLITS = 4, SOFT_NCCL_RING_BYTES = 1 << 18 };

/* From one rank to another. */
typedef struct soft_nccl_ring {
    _Atomic uint64_t given, taken; /* bytes since the start */
    unsigned char bytes[SOFT_NCCL_RING_BYTES];
} soft_nccl_ring;

/* What the ranks of a communicator share; rings follow, [from · size + to]. */
typedef struct soft_nccl_shared {
    _Atomic uint64_t progress; /* changes whenever something moves */
    _Atomic int32_t size, joined;
    struct soft_nccl_choice {
        _Atomic uint64_t number; /* of the split that this is for, from 1 */
        int32_t color, key;
    } choices[SOFT_NCCL_SPLITS][SOFT_NCCL_RANKS];
    soft_nccl_ring rings[];
} soft_nccl_shared;

/* The host that calls for a rank: a thread. */
typedef struct soft_nccl_host {
    int communicators;           /* that are there; with the first of them counts begin anew */
    uint64_t launched, started;  /* kernels of all its communicators */
    const void *resident;        /* the one that runs, where only one may */
    struct soft_nccl_host *next; /* of all; they stay, since kernels may outlive their thread */
} soft_nccl_host;

typedef enum soft_nccl_job {
    SOFT_NCCL_IDLE,
    SOFT_NCCL_JOIN,
    SOFT_NCCL_SPLIT,
    SOFT_NCCL_LAUNCH,
    SOFT_NCCL_END
} soft_nccl_job;

struct soft_nccl_kernel;

/* What comes before a part's bytes, so that both sides know that they mean the same: ranks call in one order over all their
 * communicators, or may lock each other out. */
typedef struct soft_nccl_heading {
    uint64_t call, bytes;
    uint64_t launch; /* the kernel's number among the host's */
} soft_nccl_heading;

/* A part whose sides mean something else. */
typedef struct soft_nccl_quarrel {
    int peer;
    soft_nccl_heading ours, theirs;
    bool is_there;
} soft_nccl_quarrel;

struct ncclComm {
    char name[96];
    soft_nccl_shared *shared;
    size_t shared_bytes;
    int size, rank;
    bool is_blocking, is_aborted;
    ncclResult_t failure;            /* sticks; ncclSuccess: none */
    soft_nccl_job job;               /* not done yet */
    int delay;                       /* looks until it goes on */
    struct soft_nccl_kernel *kernel; /* to launch */
    uint64_t launched, finished;     /* kernels */
    uint64_t splits;
    struct ncclComm *child, **child_out; /* of the split under way */
    int references;                      /* the user's, and kernels' */
    soft_nccl_host *host;
    soft_nccl_quarrel quarrel; /* found by a kernel, reported by the host */
};

typedef enum soft_nccl_part_kind { SOFT_NCCL_GIVE, SOFT_NCCL_TAKE, SOFT_NCCL_COPY, SOFT_NCCL_ADD } soft_nccl_part_kind;

/* What a kernel does with one peer, or by itself. ADD: `to` += `from`, floats. */
typedef struct soft_nccl_part {
    soft_nccl_part_kind kind;
    int peer, call; /* call: what the user called; both sides must have called the same */
    const void *from;
    void *to;
    size_t bytes, moved;
    uint64_t end;              /* GIVE: where the ring is when all was taken */
    soft_nccl_heading heading; /* ours to give, theirs when taken */
    bool is_after;             /* begins when all parts before it are done; else those of its kind and peer */
    bool has_met, is_done;
} soft_nccl_part;

typedef struct soft_nccl_kernel {
    struct ncclComm *communicator;
    cudaStream_t stream;
    uint64_t number, launch; /* among the communicator's, and among the host's */
    bool is_started;
    soft_nccl_part *parts;
    softcuda_access *accesses;
    size_t part_count, access_count;
    void *scratch;
} soft_nccl_kernel;

/* soft_nccl_kernel.c. Both take what they get; under the device's lock. */
soft_nccl_kernel *soft_nccl_kernel_create(struct ncclComm *communicator, cudaStream_t stream);
void soft_nccl_kernel_drop(void *kernel);
void soft_nccl_add_part(soft_nccl_kernel *kernel, soft_nccl_part part);
void soft_nccl_add_access(soft_nccl_kernel *kernel, const void *memory, size_t bytes, bool writes);
ncclResult_t soft_nccl_launch(soft_nccl_kernel *kernel);
const char *soft_nccl_call_name(int call);
/* One user less; the last one frees it. */
void soft_nccl_release(struct ncclComm *communicator);

#endif
