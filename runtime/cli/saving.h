/* Where ranks are: whether they are saving a checkpoint, and how long their steps take, told to whoever must know when a rank that
 * was asked to stop may be ended, its launcher or its own alarm; and their step, for the report of a failure.
 *
 * One record a rank, in memory that launcher and ranks share: a file without a name, which ranks inherit. That a save
 * gets on is seen from the bytes that its processes have read and written, as the kernel counts them. Both readers may
 * be signal handlers: only async-signal-safe calls. */
#ifndef SHD_CLI_SAVING_H
#define SHD_CLI_SAVING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Zero: a rank that does nothing of the kind. */
typedef struct shd_saving_slot {
    _Atomic int32_t pid;     /* while it saves; else 0 */
    _Atomic int32_t step_ms; /* its last step, data and validation included */
    _Atomic int32_t trains;  /* it has met the others and loaded what it starts from */
    _Atomic int32_t failed;  /* what it was about when it failed, shd_activity; 0: it has not, or could not say */
    _Atomic int64_t steps;   /* completed ones of the run, once it trains */
    _Atomic int32_t told;    /* its pid, once it was itself told to stop, and not by another rank */
    _Atomic int64_t told_ms; /* when, monotonic */
} shd_saving_slot;

/* Makes the file for `rank_count` ranks; its descriptor is inherited by what this process starts. -1 when it cannot be
 * made. */
int shd_saving_create(int32_t rank_count);
/* The records in it; NULL when `file` is no such file. Kept until the process ends. */
shd_saving_slot *shd_saving_map(int file, int32_t rank_count);
/* Forgets all: before ranks are started again. */
void shd_saving_clear(shd_saving_slot *slots, int32_t rank_count);
void shd_saving_mark(shd_saving_slot *slot, bool saving);
/* Notes that this process was told to stop; async-signal-safe. */
void shd_saving_mark_told(shd_saving_slot *slot);
/* The rank that was told first; -1: none was. */
int32_t shd_saving_first_told(const shd_saving_slot *slots, int32_t rank_count);

/* A look at the records, again and again. bytes and since_ms start at zero. */
typedef struct shd_saving_watch {
    const shd_saving_slot *slots; /* NULL: nothing is known */
    int32_t rank_count;
    double patience_ms; /* how long a save may go without moving a byte */
    int64_t bytes;      /* seen last, and since when */
    double since_ms;
} shd_saving_watch;

/* True while a rank that is there saves, unless no byte has moved for patience_ms. */
bool shd_saving_goes_on(shd_saving_watch *watch);
/* The longest of the ranks' last steps; 0: not known. */
double shd_saving_step_ms(const shd_saving_watch *watch);

/* Monotonic time, milliseconds. */
double shd_saving_clock_ms(void);

/* Two requests to stop that come within this time are one: `timeout`, Slurm and systemd tell a process and its group. */
enum { SHD_STOP_REPEAT_MS = 250 };

#endif
