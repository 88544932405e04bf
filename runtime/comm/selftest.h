/* A test of the collectives that ranks will use, by those ranks: of what they compute, in every element, and of how
 * fast.
 *
 * Every value is worked out anew by who checks it, from its rank and place alone. Values differ wildly in size, so
 * that a sum in another order, or of other ranks, has other bits. */
#ifndef SHD_COMM_SELFTEST_H
#define SHD_COMM_SELFTEST_H

#include "runtime/comm/comm.h"

enum { SHD_SELFTEST_BYTES = 8 << 20 }; /* of a full buffer */

/* Rates are bytes of a full buffer over the time that all ranks took together; 0: the collective is not used here. */
typedef struct shd_selftest_result {
    double meet_ms;     /* until all ranks had arrived */
    double exchange_us; /* of a few bytes between all */
    double gather_bytes_per_s, reduce_bytes_per_s;
    double reduce_bf16_bytes_per_s;
    double reduce_replicas_bytes_per_s, gather_replicas_bytes_per_s;
} shd_selftest_result;

/* Meets the other ranks as `config` says (its arenas are chosen here), makes every collective a few times, and leaves.
 * Collective. Takes some four times SHD_SELFTEST_BYTES of memory on each rank. Fails: as shd_comm_create and the
 * collectives do; INTERNAL (which collective came to what, and what is right), and PEER on the other ranks; MEMORY. */
sherd_status shd_comm_selftest(const shd_comm_config *config, shd_selftest_result *out);

#endif
