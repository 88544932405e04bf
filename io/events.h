/* events.jsonl: what happened in a run beside its steps, one strict-JSON object an event: {"time": seconds since 1970,
 * "event": kind, "step": …, "rank": …, "text": …}. docs/METRICS.md says it for readers.
 *
 * Anybody may add events at any time, ranks, launchers and commands: io/line_file.h. */
#ifndef SHD_IO_EVENTS_H
#define SHD_IO_EVENTS_H

#include <sherd/status.h>
#include <stdint.h>

/* E(enumerator, the word in the file): what there is. */
#define SHD_EVENT_KINDS(E)                                                                                             \
    E(SHD_EVENT_START, "start")             /* a run begins at step 0 */                                               \
    E(SHD_EVENT_RESUME, "resume")           /* a run goes on from a checkpoint of `step` steps */                      \
    E(SHD_EVENT_SAVE, "save")               /* the checkpoint of `step` steps is complete */                           \
    E(SHD_EVENT_SAVE_FAILED, "save_failed") /* it could not be saved */                                                \
    E(SHD_EVENT_SKIP, "skip")               /* step number `step` updated nothing */                                   \
    E(SHD_EVENT_ROLLBACK, "rollback")       /* training went back to the checkpoint of `step` steps */                 \
    E(SHD_EVENT_OUTLIER, "outlier")         /* loss or gradient norm of step number `step` is out of the usual */      \
    E(SHD_EVENT_STRAGGLER, "straggler")     /* `rank` is slower than the others */                                     \
    E(SHD_EVENT_RESTART, "restart")         /* the launcher starts all ranks again */                                  \
    E(SHD_EVENT_FAILURE, "failure")         /* a run ends by a failure, of `rank` where that is known */               \
    E(SHD_EVENT_STOP, "stop")               /* a run ends early because it was told to */                              \
    E(SHD_EVENT_END, "end")                 /* a run has come to its last step */

#define SHD_EVENT_ENUMERATOR(enumerator, word) enumerator,
typedef enum shd_event_kind { SHD_EVENT_KINDS(SHD_EVENT_ENUMERATOR) SHD_EVENTS } shd_event_kind;
#undef SHD_EVENT_ENUMERATOR

enum { SHD_EVENT_TEXT_BYTES = 2000 };

typedef struct shd_event {
    shd_event_kind kind;
    /* As the terminal and checkpoints count: completed steps, the one that is meant included, so that row s of
     * metrics.jsonl is step s + 1; -1: none is part of the event. */
    int64_t step;
    int32_t rank;     /* -1: none */
    const char *text; /* for people, one line; beyond SHD_EVENT_TEXT_BYTES it is cut; NULL: none. Borrowed */
} shd_event;

/* Appends an event to `dir`/events.jsonl, making the folder and the file. Allocates nothing. Threads: any.
 * Fails: IO, ARGUMENT (a path too long). Nobody ends a run for it: callers log it, or let it be. */
sherd_status shd_event_add(const char *dir, const shd_event *event);

/* The same of a formatted text, for those who go on whatever becomes of it: the thread's last cause stays as it is. `dir`
 * NULL: nothing is told. */
void shd_event_tell(const char *dir, shd_event_kind kind, int64_t step, int32_t rank, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

/* The word of a kind in the file. */
const char *shd_event_word(shd_event_kind kind);

#endif
