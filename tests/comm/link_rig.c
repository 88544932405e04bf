#include "tests/comm/link_rig.h"

#include "tests/comm/ranks.h"
#include "tests/comm/slow_device.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Where the program has the software device; declared here since other programs are built without its headers. */
void softcuda_restart(uint64_t seed, int order) __attribute__((weak));
void softcuda_fail_at(const char *function, uint64_t nth, int code) __attribute__((weak));
size_t softcuda_print_reports(void) __attribute__((weak));

static const double NAP_MS = 0.05;
enum { COUNTER_UNITS = 2 }; /* before the link's */

bool link_rig_is_soft(void) { return softcuda_restart != NULL; }

bool link_rig_can(const shd_link_ops *link, int32_t ranks) {
    int32_t count = 0;
    int status;
    if (!shd_device_backend() || link_rig_is_soft()) return true;
    pid_t child = fork();
    if (child == 0) {
        (void)shd_device_backend()->count(&count);
        _exit(count < 100 ? count : 100);
    }
    if (waitpid(child, &status, 0) != child || !WIFEXITED(status)) return false;
    return WEXITSTATUS(status) >= (link == &shd_link_staged ? 1 : ranks);
}

void link_rig_restart(uint64_t seed, bool one_kernel) {
    if (softcuda_restart) softcuda_restart(seed, 0);
    setenv("SOFTCUDA_NCCL_ONE", one_kernel ? "1" : "0", 1);
}

size_t link_rig_reports(void) { return softcuda_print_reports ? softcuda_print_reports() : 0; }

void link_rig_fail_at(const char *function, uint64_t nth, int code) {
    if (softcuda_fail_at) softcuda_fail_at(function, nth, code);
}

static sherd_status open_device(link_rig *rig) {
    rig->ops = shd_device_backend() ? shd_device_backend() : &slow_device_ops;
    int32_t count = 1;
    if (shd_device_backend()) SHD_TRY(rig->ops->count(&count));
    SHD_TRY(rig->ops->open(&(shd_device_config){.index = rig->mesh.rank % count}, &rig->device));
    SHD_TRY(rig->ops->create_stream(rig->device, "test", false, &rig->stream));
    SHD_TRY(rig->ops->create_event(rig->device, &rig->event));
    for (int lane = 0; lane < SHD_LANES; lane++) {
        SHD_TRY(rig->ops->create_stream(rig->device, lane ? "reduce" : "gather", true, &rig->streams[lane]));
        SHD_TRY(rig->ops->create_event(rig->device, &rig->events[lane]));
    }
    return SHERD_OK;
}

static sherd_status open_link(link_rig *rig, const link_rig_config *config) {
    return rig->link->open(&(shd_link_config){.comm = rig->comm,
                                              .ops = rig->ops,
                                              .device = rig->device,
                                              .streams = {rig->streams[0], rig->streams[1]},
                                              .gather_bytes = config->link_bytes,
                                              .spread_bytes = config->link_bytes * config->world_size,
                                              .first_counter_unit = COUNTER_UNITS},
                           &rig->open);
}

sherd_status link_rig_open(link_rig *rig, const link_rig_config *config) {
    memset(rig, 0, sizeof *rig);
    rig->link = config->link;
    rig->mesh = (shd_mesh){.rank = config->rank, .world_size = config->world_size, .replicas = config->replicas};
    shd_comm_config comm =
        ranks_config(config->rank, config->world_size, config->name,
                     config->link->exported_bytes(config->link_bytes, config->link_bytes * config->world_size));
    comm.replicas = config->replicas;
    comm.unit_count = COUNTER_UNITS + config->link->counter_units;
    comm.timeout_s = config->timeout_s;
    SHD_TRY(shd_comm_create(&comm, &rig->comm));
    sherd_status status = open_device(rig);
    if (status == SHERD_OK) status = open_link(rig, config);
    if (status != SHERD_OK) shd_comm_fail(rig->comm, status, sherd_last_error());
    return status;
}
void link_rig_close(link_rig *rig, bool abort) {
    rig->link->close(rig->open, abort);
    for (int lane = 0; lane < SHD_LANES; lane++) {
        rig->ops->destroy_event(rig->events[lane]);
        rig->ops->destroy_stream(rig->streams[lane]);
    }
    rig->ops->destroy_event(rig->event);
    rig->ops->destroy_stream(rig->stream);
    for (int32_t i = 0; i < rig->device_block_count; i++) rig->ops->release(rig->device, rig->device_blocks[i]);
    for (int32_t i = 0; i < rig->pinned_block_count; i++) rig->ops->release_pinned(rig->device, rig->pinned_blocks[i]);
    rig->ops->close(rig->device);
    shd_comm_destroy(rig->comm);
}

void *link_rig_device(link_rig *rig, int64_t bytes) {
    void **block = &rig->device_blocks[rig->device_block_count];
    if (rig->device_block_count == LINK_RIG_BLOCKS || rig->ops->allocate(rig->device, bytes, block)) return NULL;
    rig->device_block_count++;
    return *block;
}

void *link_rig_pinned(link_rig *rig, int64_t bytes) {
    void **block = &rig->pinned_blocks[rig->pinned_block_count];
    if (rig->pinned_block_count == LINK_RIG_BLOCKS || rig->ops->allocate_pinned(rig->device, bytes, block)) return NULL;
    rig->pinned_block_count++;
    return *block;
}

void link_rig_copy(link_rig *rig, void *to, const void *from, int64_t bytes) {
    if (bytes > 0) rig->ops->copy(rig->stream, to, from, bytes);
}

sherd_status link_rig_join(link_rig *rig) {
    rig->ops->record(rig->stream, rig->event);
    for (int lane = 0; lane < SHD_LANES; lane++) rig->ops->await(rig->streams[lane], rig->event);
    return SHERD_OK;
}

static sherd_status turn(link_rig *rig, shd_lane lane, shd_patience *patience, bool *enqueued) {
    SHD_TRY(rig->link->progress(rig->open, lane, enqueued));
    SHD_TRY(rig->link->check(rig->open));
    return shd_comm_pause(rig->comm, patience, "a transfer");
}

sherd_status link_rig_enqueued(link_rig *rig, shd_lane lane) {
    shd_patience patience = {.nap_ms = NAP_MS};
    for (bool enqueued = false; !enqueued;) SHD_TRY(turn(rig, lane, &patience, &enqueued));
    return SHERD_OK;
}

static bool all_reached(link_rig *rig) {
    bool all = rig->ops->reached(rig->event);
    for (int lane = 0; lane < SHD_LANES; lane++) all = rig->ops->reached(rig->events[lane]) && all;
    return all;
}

sherd_status link_rig_finish(link_rig *rig) {
    shd_patience patience = {.nap_ms = NAP_MS};
    bool enqueued;
    rig->ops->record(rig->stream, rig->event);
    for (int lane = 0; lane < SHD_LANES; lane++) rig->ops->record(rig->streams[lane], rig->events[lane]);
    while (!all_reached(rig)) SHD_TRY(turn(rig, SHD_LANE_GATHER, &patience, &enqueued));
    return SHERD_OK;
}
