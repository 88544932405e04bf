/* What the links share: transfers seen from one of their members. */
#ifndef SHD_COMM_TRANSFER_H
#define SHD_COMM_TRANSFER_H

#include "runtime/comm/link.h"

/* How many members move it, and which of them this rank is. */
int32_t shd_transfer_members(const shd_transfer *transfer, const shd_mesh *mesh);
int32_t shd_transfer_own(const shd_transfer *transfer, const shd_mesh *mesh);

/* Fails: ARGUMENT, unless it is as link.h says. */
sherd_status shd_transfer_check(const shd_transfer *transfer, const shd_mesh *mesh);

/* Enqueues what this rank gives itself: nothing where it is there already. */
void shd_transfer_copy_own(const shd_transfer *transfer, const shd_mesh *mesh, const shd_device_ops *ops,
                           shd_stream *stream);

#endif
