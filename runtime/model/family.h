/* What tells one family of models from another: its tensors, and how its block is put together. Both families of
 * transformers run through the same units (unit_*.c); gpt2.c and llama.c hold a table each and the activation of
 * their feed-forward half. mlp.c is an architecture of its own.
 *
 * A transformer's block, in both:
 *     mid = x   + attention(projections(norm_1(x))) · attention_out
 *     out = mid + activate(inners(norm_2(mid)))     · down */
#ifndef SHD_MODEL_FAMILY_H
#define SHD_MODEL_FAMILY_H

#include "runtime/ops/ops.h"

#include <sherd/status.h>

#include <stdbool.h>
#include <stdint.h>

/* The lengths that shapes are made of. */
typedef enum shd_length {
    SHD_LENGTH_VOCABULARY,
    SHD_LENGTH_CONTEXT,
    SHD_LENGTH_MODEL,
    SHD_LENGTH_PROJECTED, /* a row of queries, keys and values side by side: (n_head + 2·n_kv_head) · head size */
    SHD_LENGTH_KEYS,      /* n_kv_head · head size */
    SHD_LENGTH_INNER,     /* the feed-forward width */
    SHD_LENGTH_COUNT
} shd_length;

/* How a tensor starts; see shd_model_fill_random. */
typedef enum shd_start {
    SHD_START_NORMAL,
    SHD_START_RESIDUAL,
    SHD_START_ONES,
    SHD_START_ZEROS,
    SHD_START_ACTIVATED, /* a matrix [out, in] before an activation */
    SHD_START_LINEAR     /* one before none */
} shd_start;

typedef struct shd_tensor_spec {
    const char *name; /* in a block: what follows the block's prefix */
    shd_start start;
    int32_t dim_count; /* 1 or 2 */
    shd_length shape[2];
} shd_tensor_spec;

/* The tensors of one unit; a tensor's place in the list is its slot. */
typedef struct shd_spec_list {
    const shd_tensor_spec *specs;
    int32_t count;
} shd_spec_list;

enum { SHD_MAX_PROJECTIONS = 3, SHD_MAX_INNERS = 2, SHD_MAX_IGNORED = 3 };

struct shd_model;
struct shd_pass;

/* What a model of the family is made by, and run. */
typedef struct shd_architecture {
    /* Each fills its part of the model, in this order: tensors and units, then how much memory they need. */
    sherd_status (*list_tensors)(struct shd_model *model);
    sherd_status (*lay_out)(struct shd_model *model);
    /* One unit's. */
    void (*forward)(const struct shd_pass *pass);
    void (*backward)(const struct shd_pass *pass);
} shd_architecture;

typedef struct shd_family {
    const shd_architecture *architecture;
    /* Of transformers, whose units are embedding, blocks and head. */
    const char *block_prefix; /* printf format of a block's number */
    shd_spec_list embedding;  /* token table, then (gpt2) the position table */
    shd_spec_list block;      /* one block's */
    shd_spec_list head;       /* the last norm; the output matrix follows where it is not tied */
    bool conv1d;              /* a block's matrices lie [in, out] (GPT-2's Conv1D), not [out, in] */
    bool biased;              /* every norm and matrix of a block, and the last norm, is followed by its bias */
    bool rms_norm;            /* RMSNorm instead of LayerNorm */
    bool rotary;              /* rotary positions on queries and keys */
    int32_t norm_1_slot, norm_2_slot, attention_out_slot, down_slot;
    /* What makes a row of queries, keys and values: their outputs side by side. */
    int32_t projection_count, projection_slots[SHD_MAX_PROJECTIONS];
    /* The inputs of the feed-forward half, each with an output [rows, inner] of its own. */
    int32_t inner_count, inner_slots[SHD_MAX_INNERS];

    /* out = activation(inner[0], inner[1]), elementwise. */
    void (*activate)(const shd_math *math, int64_t count, void *const inner[SHD_MAX_INNERS], void *out);
    /* From `gradient`, that of the activation's output: makes it the gradient of inner[0] in place, and writes that
     * of inner[1], where there is one, over inner[1]. */
    void (*activate_backward)(const shd_math *math, int64_t count, void *const inner[SHD_MAX_INNERS], void *gradient);

    /* For loading. Prefix that stored names may carry, or NULL; stored tensors that are known and hold no weights
     * (fnmatch). */
    const char *stored_prefix;
    const char *ignored[SHD_MAX_IGNORED];
} shd_family;

extern const shd_architecture shd_transformer;
extern const shd_family shd_family_gpt2, shd_family_llama, shd_family_mlp;

#endif
