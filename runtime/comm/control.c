/* How a flag passes and why no wake-up is lost.
 *
 * A rank that wants to sleep sets its doorbell's `asleep` (arm), checks its condition, and sleeps in the kernel for as
 * long as `asleep` stays set (doze). A rank that changes a flag then looks at every doorbell; where `asleep` is set it
 * clears it and wakes. All four accesses, set and check, change and look, are sequentially consistent, so they have one
 * order: if the check did not see the change, it came before it, so `asleep` was set before the look, which saw it; or
 * somebody else cleared it in between, and then the sleeper returns, arms and checks again. Clearing before the sleeper
 * has reached the kernel is no loss either: the futex call compares `asleep` itself. An armed rank that does not sleep
 * after all costs its peers one needless wake. */
#include "runtime/comm/control.h"

#include "runtime/base/arith.h"

#include <linux/futex.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

_Static_assert(ATOMIC_INT_LOCK_FREE == 2 && ATOMIC_LLONG_LOCK_FREE == 2, "atomics must work between processes");

/* Two cache lines: the hardware fetches them in pairs. */
enum { LINE_BYTES = 128 };

struct shd_control_head {
    _Alignas(LINE_BYTES) _Atomic int32_t first_failure; /* 1 + the rank whose record stands; 0: none */
};

/* Atomic, since its owner may write it anew while a peer reads; the reader then finds that the number is out of
 * reach. */
struct ring_slot {
    _Atomic uint64_t hash;
    _Atomic int64_t bytes;
    _Atomic int32_t collective, unit;
};

/* Two, used in turn: the owner posts exchange k+2 only when all have collected exchange k. */
struct mailbox {
    _Alignas(LINE_BYTES) int64_t bytes;
    unsigned char data[SHD_COMM_EXCHANGE_BYTES];
};

struct shd_control_rank {
    _Alignas(LINE_BYTES) _Atomic uint32_t asleep; /* the doorbell: a futex */
    _Alignas(LINE_BYTES) _Atomic int64_t posted;
    _Atomic int64_t announced;
    _Atomic uint32_t left;
    struct mailbox mail[2];
    struct ring_slot ring[SHD_COMM_RING];
    shd_comm_failure failure; /* written before first_failure names this rank, never after */
};

static int64_t counter_stride(int32_t unit_count) {
    return shd_round_up((int64_t)unit_count * SHD_COMM_COUNTER_KINDS * (int64_t)sizeof(_Atomic int64_t), LINE_BYTES);
}

int64_t shd_control_bytes(int32_t world_size, int32_t unit_count) {
    return (int64_t)sizeof(struct shd_control_head) +
           world_size * ((int64_t)sizeof(struct shd_control_rank) + counter_stride(unit_count));
}

void shd_control_init(shd_control *control, void *base, int32_t rank, int32_t world_size, int32_t unit_count) {
    unsigned char *ranks = (unsigned char *)base + sizeof(struct shd_control_head);
    *control = (shd_control){.rank = rank,
                             .world_size = world_size,
                             .unit_count = unit_count,
                             .head = base,
                             .ranks = (void *)ranks,
                             .counters = ranks + (size_t)world_size * sizeof(struct shd_control_rank)};
}

/* --- doorbells ---------------------------------------------------------------------------------------------------- */

static void ring_peers(shd_control *control) {
    for (int32_t rank = 0; rank < control->world_size; rank++) {
        if (rank == control->rank) continue;
        _Atomic uint32_t *asleep = &control->ranks[rank].asleep;
        if (atomic_load(asleep) && atomic_exchange(asleep, 0)) syscall(SYS_futex, asleep, FUTEX_WAKE, 1, NULL, NULL, 0);
    }
}

void shd_control_arm(shd_control *control) { atomic_store(&control->ranks[control->rank].asleep, 1); }

void shd_control_doze(shd_control *control, double milliseconds) {
    if (milliseconds <= 0) return;
    struct timespec limit = {.tv_sec = (time_t)(milliseconds / 1e3)};
    limit.tv_nsec = (long)((milliseconds - (double)limit.tv_sec * 1e3) * 1e6);
    syscall(SYS_futex, &control->ranks[control->rank].asleep, FUTEX_WAIT, 1, &limit, NULL, 0);
}

/* --- counters ----------------------------------------------------------------------------------------------------- */

static _Atomic int64_t *counter_at(const shd_control *control, int32_t rank, int32_t kind, int32_t unit) {
    void *own = control->counters + rank * counter_stride(control->unit_count);
    return (_Atomic int64_t *)own + (int64_t)kind * control->unit_count + unit;
}

void shd_control_signal(shd_control *control, int32_t kind, int32_t unit) {
    atomic_fetch_add(counter_at(control, control->rank, kind, unit), 1);
    ring_peers(control);
}

int64_t shd_control_counter(const shd_control *control, int32_t rank, int32_t kind, int32_t unit) {
    return atomic_load(counter_at(control, rank, kind, unit));
}

/* --- exchanges ---------------------------------------------------------------------------------------------------- */

void shd_control_post(shd_control *control, int64_t number, const void *mine, int64_t bytes) {
    struct shd_control_rank *own = &control->ranks[control->rank];
    struct mailbox *box = &own->mail[number % 2];
    box->bytes = bytes;
    if (bytes) memcpy(box->data, mine, (size_t)bytes);
    atomic_store(&own->posted, number);
    ring_peers(control);
}

int64_t shd_control_posted(const shd_control *control, int32_t rank) {
    return atomic_load(&control->ranks[rank].posted);
}

const void *shd_control_mail(shd_control *control, int32_t rank, int64_t number, int64_t *bytes) {
    const struct mailbox *box = &control->ranks[rank].mail[number % 2];
    *bytes = box->bytes;
    return box->data;
}

/* --- announcements ------------------------------------------------------------------------------------------------ */

void shd_control_announce(shd_control *control, const shd_announcement *announcement) {
    struct shd_control_rank *own = &control->ranks[control->rank];
    struct ring_slot *slot = &own->ring[control->announced % SHD_COMM_RING];
    atomic_store_explicit(&slot->hash, announcement->hash, memory_order_release);
    atomic_store_explicit(&slot->bytes, announcement->bytes, memory_order_release);
    atomic_store_explicit(&slot->collective, announcement->collective, memory_order_release);
    atomic_store_explicit(&slot->unit, announcement->unit, memory_order_release);
    atomic_store_explicit(&own->announced, ++control->announced, memory_order_release);
}

int64_t shd_control_announced(const shd_control *control, int32_t rank) {
    return atomic_load_explicit(&control->ranks[rank].announced, memory_order_acquire);
}

bool shd_control_announcement(const shd_control *control, int32_t rank, int64_t number, shd_announcement *out) {
    const struct ring_slot *slot = &control->ranks[rank].ring[number % SHD_COMM_RING];
    if (number < 0 || number >= shd_control_announced(control, rank)) return false;
    shd_announcement seen = {
        .hash = atomic_load_explicit(&slot->hash, memory_order_acquire),
        .bytes = atomic_load_explicit(&slot->bytes, memory_order_acquire),
        .collective = atomic_load_explicit(&slot->collective, memory_order_acquire),
        .unit = atomic_load_explicit(&slot->unit, memory_order_acquire),
    };
    /* The slot is written anew only after number + SHD_COMM_RING have been announced; had one of the loads
     * seen that writing, this one would see so high a count. */
    if (shd_control_announced(control, rank) >= number + SHD_COMM_RING) return false;
    *out = seen;
    return true;
}

/* --- failure and leaving ------------------------------------------------------------------------------------------ */

void shd_control_fail(shd_control *control, const shd_comm_failure *failure) {
    int32_t none = 0;
    if (atomic_load(&control->head->first_failure)) return;
    control->ranks[control->rank].failure = *failure;
    if (atomic_compare_exchange_strong(&control->head->first_failure, &none, control->rank + 1)) ring_peers(control);
}

bool shd_control_failed(const shd_control *control, shd_comm_failure *out) {
    int32_t first = atomic_load(&control->head->first_failure);
    if (first && out) *out = control->ranks[first - 1].failure;
    return first != 0;
}

void shd_control_leave(shd_control *control) {
    atomic_store(&control->ranks[control->rank].left, 1);
    ring_peers(control);
}

bool shd_control_left(const shd_control *control, int32_t rank) { return atomic_load(&control->ranks[rank].left) != 0; }
