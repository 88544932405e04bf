/* The software CUDA device: libsoftcuda.so exports the names of the CUDA runtime, cuBLASLt and NCCL that the backend
 * uses, so that the backend's own objects run on machines without a GPU, and finds what a GPU would hide.
 *
 * Streams are queues that run only while the host queries, synchronises or enqueues, in an order drawn from a seed.
 * Every operation declares the memory that it reads and writes; vector clocks over these ranges tell at once, whatever
 * the timing, whether two accesses of the same bytes are ordered. What is wrong becomes a report, a line that begins
 * with its kind: "race: …", "out of bounds: …", "use after free: …", "bad pointer: …", "bad free: …", "free while
 * pending: …", "pageable copy: …", "default stream: …", "blocking stream: …", "unrecorded event: …", "barrier: …",
 * "warp: …", "deadlock: …", "leak: …".
 *
 * All threads of a process are one host here: they order themselves by means that the device does not see.
 *
 * Environment, read when the library is loaded:
 *   SOFTCUDA_SEED       number that all choices are drawn from; 1
 *   SOFTCUDA_ORDER      random (the default), eager (all that can run runs when it is enqueued), lazy (only when waited for)
 *   SOFTCUDA_MEMORY     bytes of device memory, of each device; 16 GiB
 *   SOFTCUDA_DEVICES    how many devices there are; 1
 *   SOFTCUDA_FAIL       NAME:N:CODE: the Nth call of NAME returns CODE; * for NAME: of any function.
 *                       Launches of kernels are calls of cudaLaunchKernel.
 *   SOFTCUDA_SKIP_WAIT  N: the Nth cudaStreamWaitEvent of the process is left out; its report must come
 *   SOFTCUDA_PATIENCE   seconds without any progress after which a wait of the host ends as a deadlock; 20
 *   SOFTCUDA_LOG        file to which every report is appended when it is made
 *   SOFTCUDA_STRICT     set: leaks are reported at exit, and a process with reports prints them and ends with 97.
 *                       A process that ends by _exit asks softcuda_report_count itself.
 *   SOFTCUDA_COUNTS     file to which "NAME COUNT" lines are appended at exit: how often each function was called */
#ifndef SHD_TESTS_SOFTCUDA_H
#define SHD_TESTS_SOFTCUDA_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* For tests. */

typedef enum softcuda_order { SOFTCUDA_RANDOM, SOFTCUDA_EAGER, SOFTCUDA_LAZY } softcuda_order;

/* Draws anew from `seed`, in this order of running; reports are forgotten. Call it while nothing is enqueued. */
void softcuda_restart(uint64_t seed, softcuda_order order);

size_t softcuda_report_count(void);
const char *softcuda_report(size_t i);    /* valid until reports are forgotten */
bool softcuda_reported(const char *text); /* some report contains it */
void softcuda_forget_reports(void);
/* Prints the reports to stderr and returns how many there are: for children that end by their status. */
size_t softcuda_print_reports(void);
/* Reports device and pinned memory, streams and events that are there still. */
void softcuda_report_leaks(void);

/* Host code reads or writes memory that the device uses too. Ordinary code need not say so: tests do, where it counts. */
void softcuda_host_reads(const void *memory, size_t bytes);
void softcuda_host_writes(const void *memory, size_t bytes);

/* As SOFTCUDA_FAIL and SOFTCUDA_SKIP_WAIT, counted from now. nth = 0: no longer. */
void softcuda_fail_at(const char *function, uint64_t nth, int code);
void softcuda_skip_wait(uint64_t nth);
/* Calls of a function so far; "*": of all. */
uint64_t softcuda_calls(const char *function);

void softcuda_limit_memory(size_t bytes);
void softcuda_set_devices(int count);
void softcuda_set_patience(double seconds);
size_t softcuda_memory_in_use(void); /* bytes of device memory, all devices */
size_t softcuda_memory_peak(void);
/* Of which operations ran in which order since the last restart: equal for equal schedules. */
uint64_t softcuda_schedule(void);
void softcuda_name_stream(cudaStream_t stream, const char *name); /* for reports: "stream 3" otherwise */

/* For the other files of the device, which implement libraries on top of it. */

typedef struct softcuda_access {
    const void *memory; /* in one allocation of device or pinned memory; NULL where bytes is 0 */
    size_t bytes;
    bool writes;
} softcuda_access;

typedef enum softcuda_progress { SOFTCUDA_DONE, SOFTCUDA_WAITING } softcuda_progress;

typedef struct softcuda_operation {
    const char *name;                      /* for reports; copied */
    softcuda_progress (*run)(void *state); /* called until DONE, in turn with other streams; must not block */
    void (*drop)(void *state);             /* frees `state` after the last run, or when it never runs; may be NULL */
    void *state;                           /* passes hands, also when enqueuing fails */
    const softcuda_access *accesses;       /* all memory that it touches; copied */
    size_t access_count;
    /* Its code is built with the sanitizers and touches memory itself: a kernel. Else `accesses` is what they see. */
    bool is_instrumented;
} softcuda_operation;

/* Fails: InvalidResourceHandle (the default stream, with a report), what is injected or stuck. */
cudaError_t softcuda_enqueue(cudaStream_t stream, const softcuda_operation *operation);

/* Begins every entry point: counts the call, and gives the code that it is to return, 0 to go on. */
int softcuda_enter(const char *function);
/* Adds a report; equal lines once. */
void softcuda_add_report(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* An asynchronous failure: every later call returns `code`, nothing that is enqueued runs any more. */
void softcuda_break(cudaError_t code);
/* While *counter changes, somebody else makes progress that operations here wait for: a wait is no deadlock then. */
void softcuda_watch_progress(const volatile uint64_t *counter);
void softcuda_unwatch_progress(const volatile uint64_t *counter);
/* Whether all of [memory, memory + bytes) is in one living allocation that operations may touch. */
bool softcuda_is_device_memory(const void *memory, size_t bytes);
uint64_t softcuda_random(void);

#ifdef __cplusplus
}
#endif

#endif
