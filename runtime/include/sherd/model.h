/* How a trainer describes its model: tensors, and the units they are gathered and released in. */
#ifndef SHERD_MODEL_H
#define SHERD_MODEL_H

#include <sherd/status.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { SHERD_MAX_DIMS = 4 };

/* A named parameter. Scalars have dim_count 0; zero-element tensors are legal. */
typedef struct sherd_tensor {
    const char *name;              /* unique among tensors; UTF-8 without control characters, not empty */
    int32_t dim_count;             /* 0 to SHERD_MAX_DIMS */
    int64_t shape[SHERD_MAX_DIMS]; /* row-major; entries from dim_count on are ignored */
    bool frozen;                   /* read by forward and backward, never updated: no gradient, no optimizer state */
} sherd_tensor;

/* Tensors gathered and released together: an embedding, a block, a head.
 *
 * A tied parameter is one tensor, in the unit that runs forward first; every other unit that reads it names that unit
 * in `shares`. Its gradient is then the caller's to accumulate: the first backward of a micro-batch that reaches it (the
 * highest unit's) writes it, later ones add to it. */
typedef struct sherd_unit {
    const char *name;     /* unique among units; as a tensor's */
    int32_t first_tensor; /* index into sherd_model.tensors; units take consecutive runs of it */
    int32_t tensor_count; /* 0 is legal */
    /* Indices of lower units whose tensors this one reads too; may be NULL when share_count is 0. */
    const int32_t *shares;
    int32_t share_count;
    /* Memory that the session lends; 0: the caller has its own. */
    int64_t output_bytes; /* for what the next unit reads: kept from forward to backward */
    /* For what only this unit's backward reads, in two parts: `remade_bytes` for what is cheap to make again from the
     * output before it and the other part (a transformer block's queries, keys, values and attended output, whose
     * products are small beside the feed-forward half's). See sherd_options.recompute. */
    int64_t activation_bytes, remade_bytes;
} sherd_unit;

/* The whole model. Units run forward in order 0, 1, …, unit_count-1 and backward in the reverse order.
 * Owns: all pointers are borrowed during sherd_session_create and copied. */
typedef struct sherd_model {
    size_t size; /* sizeof(sherd_model) */
    const sherd_unit *units;
    int32_t unit_count;
    const sherd_tensor *tensors;
    int32_t tensor_count;
    int64_t scratch_bytes; /* one work area for all units; its contents survive from unit to unit of a micro-batch */
    int64_t logits_bytes;  /* a second one, accounted as logits */
} sherd_model;

#ifdef __cplusplus
}
#endif
#endif
