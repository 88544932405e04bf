#include "runtime/comm/transfer.h"

#include "runtime/base/arith.h"
#include "runtime/base/status.h"

int32_t shd_transfer_members(const shd_transfer *transfer, const shd_mesh *mesh) {
    return shd_mesh_count(mesh, transfer->scope);
}

int32_t shd_transfer_own(const shd_transfer *transfer, const shd_mesh *mesh) {
    return transfer->scope == SHD_SCOPE_REPLICAS ? shd_mesh_replica(mesh) : shd_mesh_place(mesh);
}

sherd_status shd_transfer_check(const shd_transfer *transfer, const shd_mesh *mesh) {
    int64_t room, bytes = transfer->bytes, part_bytes = transfer->part_bytes;
    bool has_scope = transfer->scope == SHD_SCOPE_GROUP || transfer->scope == SHD_SCOPE_REPLICAS;
    bool has_kind = transfer->kind == SHD_TRANSFER_GATHER || transfer->kind == SHD_TRANSFER_SPREAD;
    if (has_kind && has_scope && bytes >= 0 && part_bytes >= 0 && bytes % 4 == 0 && part_bytes % 4 == 0 &&
        shd_mul_checked(part_bytes, shd_transfer_members(transfer, mesh), &room) && room >= bytes)
        return SHERD_OK;
    return shd_fail(SHERD_ARGUMENT, "there is no transfer of kind %d in scope %d of %lld bytes in parts of %lld",
                    (int)transfer->kind, (int)transfer->scope, (long long)bytes, (long long)part_bytes);
}

void shd_transfer_copy_own(const shd_transfer *transfer, const shd_mesh *mesh, const shd_device_ops *ops,
                           shd_stream *stream) {
    int32_t own = shd_transfer_own(transfer, mesh);
    shd_part part = shd_part_of(transfer->bytes, transfer->part_bytes, own);
    bool is_gather = transfer->kind == SHD_TRANSFER_GATHER;
    const unsigned char *from = (const unsigned char *)transfer->from + (is_gather ? 0 : part.first);
    unsigned char *to = (unsigned char *)transfer->to + (is_gather ? part.first : own * transfer->part_bytes);
    if (part.count > 0 && to != from) ops->copy(stream, to, from, part.count);
}
