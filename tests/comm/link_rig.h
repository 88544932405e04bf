/* One rank of a test of links: a comm, a device with a stream for each lane and one for the test's own copies, a link.
 * Memory lasts as long as the rig. */
#ifndef TESTS_COMM_LINK_RIG_H
#define TESTS_COMM_LINK_RIG_H

#include "runtime/base/status.h"
#include "runtime/comm/link.h"

enum { LINK_RIG_BLOCKS = 128 };

typedef struct link_rig_config {
    int32_t rank, world_size, replicas;
    const char *name; /* of the meeting */
    const shd_link_ops *link;
    int64_t link_bytes; /* what the link is told that its largest transfers are */
    double timeout_s;
} link_rig_config;

typedef struct link_rig {
    shd_mesh mesh;
    shd_comm *comm;
    const shd_device_ops *ops;
    shd_device *device;
    shd_stream *streams[SHD_LANES], *stream; /* the test's own */
    shd_event *events[SHD_LANES], *event;
    const shd_link_ops *link;
    shd_link *open;
    void *device_blocks[LINK_RIG_BLOCKS], *pinned_blocks[LINK_RIG_BLOCKS];
    int32_t device_block_count, pinned_block_count;
} link_rig;

/* Whether the program has the software device. */
bool link_rig_is_soft(void);
/* Whether so many ranks can be linked here: NCCL wants a GPU for each, the other one for all. Test devices are enough for
 * any. Forks, so that this process may fork ranks afterwards: CUDA does not outlive that. */
bool link_rig_can(const shd_link_ops *link, int32_t ranks);
/* For the test's process, before it has ranks: how devices of the software's make run from now on. `one_kernel`: they
 * run one communication kernel at a time, as a crowded device would. */
void link_rig_restart(uint64_t seed, bool one_kernel);
/* How many reports the software device has, which are printed; 0 on other devices. */
size_t link_rig_reports(void);

/* Only with the software device: its nth call of `function` from now on gives `code`. */
void link_rig_fail_at(const char *function, uint64_t nth, int code);

/* When it fails its peers know, and the process is to end. */
sherd_status link_rig_open(link_rig *rig, const link_rig_config *config);
void link_rig_close(link_rig *rig, bool abort);

/* Memory of the device, and pinned; NULL when there is none. */
void *link_rig_device(link_rig *rig, int64_t bytes);
void *link_rig_pinned(link_rig *rig, int64_t bytes);
/* On the test's own stream. */
void link_rig_copy(link_rig *rig, void *to, const void *from, int64_t bytes);
/* What lanes are given from now on comes after the test's copies. */
sherd_status link_rig_join(link_rig *rig);
/* Waits until the lane's transfer is enqueued; until all streams have run. Both go on with transfers meanwhile. */
sherd_status link_rig_enqueued(link_rig *rig, shd_lane lane);
sherd_status link_rig_finish(link_rig *rig);

#endif
