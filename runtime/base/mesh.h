/* The mesh: the ranks of a job as replicas × shard group.
 *
 * A shard group is `split` = world_size ÷ replicas ranks that hold one copy of the state between them, each at its
 * `place`; there are `replicas` of them. rank = replica · split + place. Whom a rank speaks to is a scope: the others of
 * its shard group, or the ranks that have its place in all replicas. */
#ifndef SHD_BASE_MESH_H
#define SHD_BASE_MESH_H

#include <stdbool.h>
#include <stdint.h>

typedef struct shd_mesh {
    int32_t rank, world_size;
    int32_t replicas; /* ≥ 1, divides world_size */
} shd_mesh;

typedef enum shd_scope {
    SHD_SCOPE_OWN,      /* the rank alone */
    SHD_SCOPE_GROUP,    /* its shard group, in order of places */
    SHD_SCOPE_REPLICAS, /* the ranks of its place, in order of replicas */
    SHD_SCOPE_ALL       /* every rank */
} shd_scope;

static inline int32_t shd_mesh_split(const shd_mesh *mesh) { return mesh->world_size / mesh->replicas; }
static inline int32_t shd_mesh_place(const shd_mesh *mesh) { return mesh->rank % shd_mesh_split(mesh); }
static inline int32_t shd_mesh_replica(const shd_mesh *mesh) { return mesh->rank / shd_mesh_split(mesh); }

/* How many ranks a scope has, the rank itself among them. */
static inline int32_t shd_mesh_count(const shd_mesh *mesh, shd_scope scope) {
    return scope == SHD_SCOPE_OWN        ? 1
           : scope == SHD_SCOPE_GROUP    ? shd_mesh_split(mesh)
           : scope == SHD_SCOPE_REPLICAS ? mesh->replicas
                                         : mesh->world_size;
}

/* The i-th of them, from 0. */
static inline int32_t shd_mesh_member(const shd_mesh *mesh, shd_scope scope, int32_t i) {
    return scope == SHD_SCOPE_OWN        ? mesh->rank
           : scope == SHD_SCOPE_GROUP    ? shd_mesh_replica(mesh) * shd_mesh_split(mesh) + i
           : scope == SHD_SCOPE_REPLICAS ? i * shd_mesh_split(mesh) + shd_mesh_place(mesh)
                                         : i;
}

/* Whether `rank` is one of them. */
static inline bool shd_mesh_has(const shd_mesh *mesh, shd_scope scope, int32_t rank) {
    int32_t split = shd_mesh_split(mesh);
    return scope == SHD_SCOPE_OWN        ? rank == mesh->rank
           : scope == SHD_SCOPE_GROUP    ? rank / split == mesh->rank / split
           : scope == SHD_SCOPE_REPLICAS ? rank % split == mesh->rank % split
                                         : true;
}

/* Which micro-batch of a global batch, in data order, the rank runs at micro-step `k` of `micro_steps`: a replica runs a
 * block of neighbours, its ranks in turn. */
static inline int64_t shd_mesh_micro_batch(const shd_mesh *mesh, int32_t micro_steps, int32_t k) {
    int64_t split = shd_mesh_split(mesh);
    return shd_mesh_replica(mesh) * micro_steps * split + k * split + shd_mesh_place(mesh);
}

/* Elements that one of several ranks works on for all of them. */
typedef struct shd_part {
    int64_t first, count;
} shd_part;

/* Part `index` when `count` elements are cut every `part_count`: the last ones may be shorter, or empty. */
static inline shd_part shd_part_of(int64_t count, int64_t part_count, int32_t index) {
    int64_t first = index * part_count;
    if (first > count) first = count;
    return (shd_part){.first = first, .count = count - first < part_count ? count - first : part_count};
}

#endif
