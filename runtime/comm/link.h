/* Links: how ranks move device memory between them, beside a comm, which meets, counts, watches and exchanges small things
 * on the host. Backends: NCCL, and `staged`, through the comm's shared memory, for ranks of one host that share a device
 * or have no NCCL.
 *
 * A transfer is enqueued on its lane's stream; peers' parts have arrived when the stream is past it. All ranks begin the
 * same transfers, of each lane in the same order, and the lanes in the same order towards each other. A transfer may need
 * the host in between: `begin` starts it, `progress` carries it on, until everything of it is enqueued; only then an event
 * on the stream stands for it, and until then the lane's stream is given nothing else. A rank that waits for anything, of
 * its device or its peers, keeps calling `progress`, of whichever lane: peers may wait for what it then does. Lanes run
 * beside each other; a lane has one open transfer at a time.
 * Threads: the session's. */
#ifndef SHD_COMM_LINK_H
#define SHD_COMM_LINK_H

#include "runtime/base/mesh.h"
#include "runtime/comm/comm.h"
#include "runtime/device/device.h"

#include <sherd/status.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct shd_link shd_link;

typedef enum shd_lane { SHD_LANE_GATHER, SHD_LANE_REDUCE, SHD_LANES } shd_lane;

typedef enum shd_transfer_kind {
    /* to[part i] = what member i has at `from`, for every member of the scope. `from` is the own part of `to`, or does not
     * touch `to`. */
    SHD_TRANSFER_GATHER,
    /* to[i · part_bytes] = the own part of what member i has at `from`, an all-to-all: as many bytes of each as the own
     * part has. `to` does not touch `from`. */
    SHD_TRANSFER_SPREAD
} shd_transfer_kind;

/* Part i of `bytes` is [i·part_bytes, (i+1)·part_bytes), cut at `bytes` (mesh.h: shd_part_of). */
typedef struct shd_transfer {
    shd_transfer_kind kind;
    shd_scope scope; /* GROUP or REPLICAS */
    const void *from;
    void *to;
    int64_t bytes, part_bytes; /* of all members, and equal on all; multiples of 4; the parts cover `bytes` */
} shd_transfer;

typedef struct shd_link_config {
    shd_comm *comm; /* met already; borrowed for the link's life */
    const shd_device_ops *ops;
    shd_device *device;
    shd_stream *streams[SHD_LANES]; /* borrowed */
    /* As exported_bytes was told them; 0 where the link has no use for them. */
    int64_t gather_bytes, spread_bytes;
    /* The first of `counter_units` units of the comm (its unit_count has room for them) that nobody else counts in. */
    int32_t first_counter_unit;
} shd_link_config;

typedef struct shd_link_ops {
    const char *name; /* as in job files: "nccl", "staged" */
    /* Whether it can be had here, and if not why. Fails: CONFIG. */
    sherd_status (*usable)(void);
    /* What a rank's comm must have in its EXPORTED arena (comm.h), at its beginning, for this link alone; 0: nothing. From
     * the largest that a rank gives in one transfer, of the gather lane (the own part of a GATHER) and of the reduce lane
     * (all of a SPREAD): larger ones work too, in portions. Pure. */
    int64_t (*exported_bytes)(int64_t gather_bytes, int64_t spread_bytes);
    int32_t counter_units; /* how many units of the comm's counters it takes */
    /* Meets the peers; all of them call it. Fails: CONFIG, ARGUMENT, COMM, TIMEOUT, PEER, MISMATCH, DEVICE, MEMORY. */
    sherd_status (*open)(const shd_link_config *config, shd_link **out);
    /* Accepts NULL. With `abort` transfers that hang are given up: to be used after any failure. Without it the streams are
     * past all transfers, and all ranks call it. The comm, the device and the streams are ended later. */
    void (*close)(shd_link *link, bool abort);
    /* The lane's transfer before is enqueued. Never blocks. Fails: ARGUMENT, STATE, COMM; MISMATCH as progress does. */
    sherd_status (*begin)(shd_link *link, shd_lane lane, const shd_transfer *transfer);
    /* Carries on what all lanes have begun. *enqueued: this lane's transfer is on its stream as a whole, or there was
     * none. Never blocks. Fails: COMM (what the library says), MISMATCH (a peer began another transfer: both named). */
    sherd_status (*progress)(shd_link *link, shd_lane lane, bool *enqueued);
    /* Looks for failures of transfers under way. Never blocks. Fails: COMM (what the library says). */
    sherd_status (*check)(shd_link *link);
} shd_link_ops;

/* Where the program is linked without it: NULL. */
extern const shd_link_ops shd_link_nccl __attribute__((weak));
static inline const shd_link_ops *shd_link_library(void) { return &shd_link_nccl; }
extern const shd_link_ops shd_link_staged;

#endif
