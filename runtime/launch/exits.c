#include "runtime/launch/exits.h"

#include "runtime/base/memory.h"
#include "runtime/base/status.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

sherd_status shd_exits_init(shd_exits *exits, int32_t rank_count) {
    int *processes = shd_alloc((size_t)rank_count, sizeof *processes);
    if (!processes) return shd_fail(SHERD_MEMORY, "no memory for %d ranks", rank_count);
    for (int32_t rank = 0; rank < rank_count; rank++) processes[rank] = -1;
    *exits = (shd_exits){.queue = epoll_create1(EPOLL_CLOEXEC), .rank_count = rank_count, .processes = processes};
    return SHERD_OK;
}

void shd_exits_fini(shd_exits *exits) {
    for (int32_t rank = 0; rank < exits->rank_count; rank++)
        if (exits->processes[rank] >= 0) close(exits->processes[rank]);
    if (exits->processes && exits->queue >= 0) close(exits->queue);
    shd_free(exits->processes);
    *exits = (shd_exits){.queue = -1};
}

void shd_exits_add(shd_exits *exits, int32_t local_rank, pid_t pid) {
    /* By its number: the C library knows the call only since glibc 2.36. */
    int process = exits->queue < 0 ? -1 : (int)syscall(SYS_pidfd_open, pid, 0);
    struct epoll_event event = {.events = EPOLLIN | EPOLLONESHOT, .data.u32 = (uint32_t)local_rank};
    if (process >= 0 && epoll_ctl(exits->queue, EPOLL_CTL_ADD, process, &event) == 0) {
        exits->processes[local_rank] = process;
        return;
    }
    if (process >= 0) close(process);
    exits->unqueued++;
}

int32_t shd_exits_next(shd_exits *exits) {
    struct epoll_event event;
    int got;
    do got = exits->queue < 0 ? 0 : epoll_wait(exits->queue, &event, 1, 0);
    while (got < 0 && errno == EINTR);
    if (got < 1) return -1;
    int32_t rank = (int32_t)event.data.u32;
    close(exits->processes[rank]);
    exits->processes[rank] = -1;
    return rank;
}
