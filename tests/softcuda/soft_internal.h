/* What the files of the software device share. One process-wide device set, under one lock: calls of the exported
 * functions hold it, so does everything that runs on the device. */
#ifndef SHD_TESTS_SOFT_INTERNAL_H
#define SHD_TESTS_SOFT_INTERNAL_H

#include "tests/softcuda/softcuda.h"

/* soft_report.c: reports, counted and failing calls */

/* Locks, counts the call and returns the code to return at once: injected, or what the device broke with. */
cudaError_t soft_enter(const char *function);
/* Unlocks; remembers a failure for cudaGetLastError. Returns `code`. */
cudaError_t soft_leave(cudaError_t code);
cudaError_t soft_take_last_error(void);
cudaError_t soft_last_error(void);
void soft_lock(void);
void soft_unlock(void);
/* A report is made once for each `key`. */
void soft_report_once(uint64_t key, const char *format, ...) __attribute__((format(printf, 2, 3)));
uint64_t soft_hash(uint64_t hash, const void *bytes, size_t count);
bool soft_skips_wait(void); /* counts a wait; true: it is to be left out */
cudaError_t soft_broken(void);

#define SOFT_ENTER()                                                                                                   \
    do {                                                                                                               \
        cudaError_t code_ = soft_enter(__func__);                                                                      \
        if (code_ != cudaSuccess) return soft_leave(code_);                                                            \
    } while (0)

/* soft_check.c: which accesses are ordered. Entities: 0 is the host, others are streams. An entity's own tick counts its
 * operations; a clock has, of every entity, the tick up to which all is known to be done before. */

enum { SOFT_ENTITIES = 128, SOFT_READERS = 8, SOFT_HOST = 0 };

typedef struct soft_clock {
    uint32_t ticks[SOFT_ENTITIES];
} soft_clock;

/* Who touched memory, and when by its own count. */
typedef struct soft_stamp {
    uint32_t tick;
    uint32_t number; /* of the operation, for reports */
    uint16_t entity;
    uint16_t name; /* interned; 0: nobody */
} soft_stamp;

/* Bytes with the same history: the last write, and the reads since then that no later one stands for. */
typedef struct soft_interval {
    uintptr_t begin, end;
    soft_stamp write;
    soft_stamp reads[SOFT_READERS];
    uint32_t read_count;
} soft_interval;

typedef struct soft_history {
    soft_interval *intervals; /* in order, apart from each other */
    size_t count, capacity;
} soft_history;

void soft_clock_join(soft_clock *clock, const soft_clock *other);
uint16_t soft_intern(const char *name);
const char *soft_interned(uint16_t name);
extern soft_clock soft_host_clock;

/* soft_memory.c */

typedef enum soft_place { SOFT_DEVICE, SOFT_PINNED, SOFT_REGISTERED } soft_place;

typedef struct soft_allocation {
    uintptr_t begin, end;         /* what was asked for */
    uintptr_t map_begin, map_end; /* pages of it, and one behind that nobody can touch */
    soft_place place;
    bool is_freed; /* its addresses are never used again */
    int device;
    uint32_t number;
    soft_history history;
} soft_allocation;

/* The allocation that holds this address, freed ones too; NULL: none. */
soft_allocation *soft_find(uintptr_t address);
const char *soft_place_name(soft_place place);
/* Opens declared memory to the address sanitizer while an operation runs, and closes it again. */
void soft_unveil(const softcuda_access *accesses, size_t count);
void soft_veil(const softcuda_access *accesses, size_t count);
void soft_report_memory_leaks(void);

/* soft_check.c again: an access is checked against the history and becomes part of it. False: it is outside of memory
 * that there is, and must not be carried out. */
bool soft_check(const soft_stamp *stamp, const soft_clock *clock, const softcuda_access *access);
/* Something of the allocation that the host has not waited for: its stamp; name 0: nothing. */
soft_stamp soft_pending(const soft_history *history);
void soft_history_end(soft_history *history);

/* soft_schedule.c: streams and what they run */

typedef struct soft_record { /* of one cudaEventRecord */
    int references;
    bool is_done;
    uint16_t entity;
    uint32_t number;
    soft_clock clock;
} soft_record;

typedef enum soft_kind { SOFT_RUN, SOFT_RECORD, SOFT_WAIT } soft_kind;

typedef struct soft_entry {
    struct soft_entry *next;
    soft_kind kind;
    softcuda_operation operation; /* RUN; `name` is interned, `accesses` are its own */
    soft_record *record;          /* RECORD, WAIT */
    uint32_t number;
} soft_entry;

struct CUstream_st {
    uint16_t entity;
    int device;
    uint32_t priority; /* drawn; the greatest that can run runs */
    soft_clock clock;
    soft_entry *head, *tail;
    char name[32];
    void *fiber; /* ThreadSanitizer's */
    char done;   /* an address for ThreadSanitizer: all that ran here */
};

struct CUevent_st {
    soft_record *record; /* NULL: never recorded */
};

/* A new entry at the end of `stream`, ordered after what the host has seen; the stream may run afterwards. */
soft_entry *soft_entry_create(cudaStream_t stream, soft_kind kind, const char *name);
void soft_entry_push(cudaStream_t stream, soft_entry *entry);
cudaError_t soft_enqueue(cudaStream_t stream, const softcuda_operation *operation);
bool soft_step(void); /* runs something; false: nothing can run now */
/* Runs streams until is_done(what). Releases the lock between looks. */
cudaError_t soft_wait_until(bool (*is_done)(void *what), void *what, const char *caller);
void soft_record_drop(soft_record *record);
const char *soft_entity_name(uint16_t entity);
cudaError_t soft_stream_begin(unsigned flags, int device, cudaStream_t *out);
void soft_stream_end(cudaStream_t stream);
cudaStream_t soft_stream_at(int i); /* NULL beyond the last; some are NULL between, see soft_stream_slots */
int soft_stream_slots(void);
void soft_report_stream_leaks(void);
void soft_draw_priorities(void);
extern int64_t soft_event_count;

/* soft_runtime.c */
int soft_device(void); /* the calling thread's */
extern int soft_device_count;

/* soft_sanitizer.c: ThreadSanitizer's and AddressSanitizer's functions, doing nothing where they are not linked */
void *soft_tsan_fiber(void *fiber, const char *name); /* made at the first call */
void *soft_tsan_current(void);
void soft_tsan_switch(void *fiber);
void soft_tsan_end(void *fiber);
void soft_tsan_acquire(void *address);
void soft_tsan_release(void *address);
void soft_tsan_touch(const softcuda_access *accesses, size_t count);
void soft_asan_poison(const void *memory, size_t bytes);
void soft_asan_unpoison(const void *memory, size_t bytes);

#endif
