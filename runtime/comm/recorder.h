/* The flight recorder: what each rank of a host has done lately and does now, in memory that all of them share, so that
 * a rank that hangs, is stopped or is dead can still be read.
 *
 * One file without a name holds a part for every rank: a head (who it is, what it is about, names) and a ring of its last
 * SHD_RECORDER_EVENTS records. Only the rank itself writes its part, from one thread, without a lock or a system call;
 * anybody who has the file may read any part at any time. Whoever comes first makes the file: the launcher, whose ranks
 * inherit it, or rank 0 when the ranks meet (rendezvous.h).
 *
 * Times are those of CLOCK_MONOTONIC in nanoseconds, so they compare between processes of a host; 0: has not happened.
 * Every function accepts a NULL recorder, and does nothing. */
#ifndef SHD_COMM_RECORDER_H
#define SHD_COMM_RECORDER_H

#include <sherd/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    SHD_RECORDER_EVENTS = 4096,
    SHD_RECORDER_NAME_BYTES = 24,
    SHD_RECORDER_TEXT_BYTES = 768,
    SHD_RECORDER_HOST_BYTES = 64,
    SHD_RECORDER_STACK_BYTES = 2048
};

/* What a record is of. Instructions of step programs follow those of the layers above and below. */
typedef enum shd_record_kind {
    SHD_RECORD_EXCHANGE,        /* shd_comm_exchange */
    SHD_RECORD_DATA,            /* reading a batch */
    SHD_RECORD_INSTRUCTION = 16 /* + shd_op */
} shd_record_kind;
enum { SHD_RECORD_KINDS = 64, SHD_RECORD_NO_COLLECTIVE = -1 };

/* Something that was done, is being done, or waits for its turn. */
typedef struct shd_record {
    int64_t sequence;  /* number of the record, from 0 */
    int64_t queued_ns; /* issued; from then on it waits until it may start */
    int64_t started_ns, ended_ns;
    int64_t bytes;            /* of collectives: received */
    int64_t step;             /* from 0; -1: none */
    int64_t collective;       /* of collectives: their number as the comm counts, modulo 2^31; else -1 */
    int32_t unit, micro_step; /* -1: none */
    uint8_t kind;             /* shd_record_kind */
    uint8_t queue;            /* of instructions: shd_queue_id */
    uint8_t program;          /* of instructions: shd_program_kind */
} shd_record;

/* What a rank is about, between records and around them. */
#define SHD_ACTIVITY_MAP(X)                                                                                            \
    X(NONE, "not there yet")                                                                                           \
    X(STARTING, "starting")                                                                                            \
    X(MEETING, "meeting the other ranks")                                                                              \
    X(SETTING, "setting parameters")                                                                                   \
    X(BOUNDARY, "between steps")                                                                                       \
    X(DATA, "reading data")                                                                                            \
    X(STEP, "in a step")                                                                                               \
    X(EVALUATION, "evaluating")                                                                                        \
    X(SAVING, "saving")                                                                                                \
    X(ENDING, "ending")
typedef enum shd_activity {
#define SHD_ACTIVITY_ENUM(name, text) SHD_ACTIVITY_##name,
    SHD_ACTIVITY_MAP(SHD_ACTIVITY_ENUM)
#undef SHD_ACTIVITY_ENUM
        SHD_ACTIVITIES
} shd_activity;
const char *shd_activity_text(shd_activity activity);

typedef struct shd_recorder shd_recorder;

/* --- life --------------------------------------------------------------------------------------------------------- */

/* Makes the file for `world_size` ranks, zeroed: nobody is there. The caller closes *fd, which is close-on-exec.
 * Fails: MEMORY. */
sherd_status shd_recorder_file(int32_t world_size, int *fd);
/* Bytes of such a file: those of one rank, times the ranks, and one page. */
int64_t shd_recorder_bytes(int32_t world_size);

/* Maps such a file, which may be closed afterwards; as rank `rank`, the calling process, from now on; -1: only to read.
 * Counts the rank's part as memory of SHD_MEMORY_CONTROL. Fails: COMM (no such file, or no such rank), MEMORY. */
sherd_status shd_recorder_open(int fd, int32_t rank, shd_recorder **out);
/* What the rank has written stays. Accepts NULL. */
void shd_recorder_close(shd_recorder *recorder);

int32_t shd_recorder_world(const shd_recorder *recorder);

/* --- writing: by the rank, its session's thread ------------------------------------------------------------------- */

/* Names for readers who have no plan: of a kind (cut to SHD_RECORDER_NAME_BYTES), and of all units in their order; where
 * there is no room for all, the rest go by their numbers. Before the first record that has them. */
void shd_recorder_name_kind(shd_recorder *recorder, int32_t kind, const char *name);
void shd_recorder_name_units(shd_recorder *recorder, char *const *names, int32_t count);

/* What the rank is about from now on; `step` from 0, -1: none. BOUNDARY: the last step that was done. */
void shd_recorder_enter(shd_recorder *recorder, shd_activity activity, int64_t step);

/* The step that was entered last. */
int64_t shd_recorder_step(const shd_recorder *recorder);

/* Adds a record, of whose times queued_ns and started_ns are taken as they are; returns its number. */
int64_t shd_recorder_add(shd_recorder *recorder, const shd_record *record);
/* It has started, or ended, at `now_ns`. What is no longer in the ring is left alone. */
void shd_recorder_start(shd_recorder *recorder, int64_t number, int64_t now_ns);
void shd_recorder_end(shd_recorder *recorder, int64_t number, int64_t now_ns);

/* The rank waits until record `number` has ended, or, -1, no longer. For messages: what is held by its own queues waits for
 * another instruction, which waits for other ranks. */
void shd_recorder_await(shd_recorder *recorder, int64_t number);

/* By this signal, sent to its thread, the rank can be asked for its stack; and its answer, frames as lines. put: also from
 * the signal's handler; the first answer stands. */
void shd_recorder_offer_stack(shd_recorder *recorder, int32_t signal);
void shd_recorder_put_stack(shd_recorder *recorder, const char *text);

/* Somebody found that the job hangs or that a rank is lost: `text`, the verdict, stands if it is the first. Threads: any
 * rank's. */
void shd_recorder_alarm(shd_recorder *recorder, const char *text);

/* --- reading: anybody ---------------------------------------------------------------------------------------------- */

/* The first alarm: the rank that raised it, -1 when there is none; `text` [SHD_RECORDER_TEXT_BYTES] may be NULL. */
int32_t shd_recorder_alarmed(const shd_recorder *recorder, char *text);

/* A rank's head. */
typedef struct shd_recorder_head {
    int32_t rank, pid, tid; /* pid 0: it has not come yet */
    int64_t born;  /* when the kernel says the process began, in its ticks: tells numbers that are used again */
    int64_t count; /* of records so far; those from `first` on are in the ring */
    int64_t first;
    shd_activity activity;
    int64_t activity_step, activity_since_ns;
    int32_t stack_signal;   /* 0: it cannot be asked for its stack */
    int64_t unix_offset_ns; /* to be added to times for those since 1970 */
    char host[SHD_RECORDER_HOST_BYTES];
} shd_recorder_head;
/* False when there is no such rank, or it has not come yet. */
bool shd_recorder_look(const shd_recorder *recorder, int32_t rank, shd_recorder_head *out);

/* Record `number` of `rank`, whole; false when it is no longer there, or not yet. */
bool shd_recorder_read(const shd_recorder *recorder, int32_t rank, int64_t number, shd_record *out);

/* The stack that a rank has told; false when it has not. */
bool shd_recorder_stack(const shd_recorder *recorder, int32_t rank, char out[SHD_RECORDER_STACK_BYTES]);

/* "REDUCE h.2", "EXCHANGE". */
void shd_recorder_print(const shd_recorder *recorder, int32_t rank, const shd_record *record, char *out, size_t bytes);
/* The parts of it; both return out. A unit below 0 is "". */
const char *shd_recorder_kind_name(const shd_recorder *recorder, int32_t rank, int32_t kind, char *out, size_t bytes);
const char *shd_recorder_unit_name(const shd_recorder *recorder, int32_t rank, int32_t unit, char *out, size_t bytes);

/* Where a rank is. */
typedef enum shd_place_kind {
    SHD_AT_NOTHING, /* nothing is open: the head's activity is all that is known */
    SHD_AT_WORK,    /* the innermost thing that has begun and not ended is its own */
    SHD_AT_WAIT /* it waits for others, or for its own queues: an exchange, or an instruction that may not start yet */
} shd_place_kind;
typedef struct shd_where {
    shd_place_kind kind;
    shd_record record; /* WORK, WAIT */
    bool waits_for;    /* WAIT: for `awaited`, of this rank's other queues */
    shd_record awaited;
    int64_t since_ns; /* also of NOTHING */
} shd_where;
bool shd_recorder_where(const shd_recorder *recorder, int32_t rank, shd_where *out);

#endif
