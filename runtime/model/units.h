/* Inside a model: its object, the three kinds of unit of a transformer, and the layers they are made of; mlp.c has units
 * of its own.
 *
 * Where a transformer's pass's numbers live, in the model's precision but for log_sum, mean, rstd and logits, which are fp32 (all
 * borders 64-byte aligned). rows: micro_batch × context in training and
 * evaluation, the tokens of a run in a decoder (decoder.c), which keeps nothing for a backward and so has one memory for
 * all `outputs`, a block's x and out included, one for all `remade` and one for all `activations`:
 *
 * | unit      | kept from forward to backward                     | recomputed in backward             |
 * | --------- | ------------------------------------------------- | ---------------------------------- |
 * | embedding | -                                                 | -                                  |
 * | block     | `remade`: projected [rows, projected], attended   | both norms' outputs, means and     |
 * |           | [rows, model], log_sum [rows × heads];            | scales (from x and mid), the       |
 * |           | `activations`: mid [rows, model],                 | activation's output (from inner)   |
 * |           | inner [inner_count][rows, inner]                  |                                    |
 * | head      | nothing: `normed`, `mean` and `rstd` in scratch   | logits are computed only there     |
 * |           | survive, since its backward follows its forward   |                                    |
 *
 * The output of every unit but the head, [rows, model], is in `outputs`; a block's input x is that of the unit before
 * it. What is recomputed in any case costs one pass over memory, no product. With recompute UNIT a block's forward runs
 * once more before its backward, up to the last product, whose result is still there; with PART up to attention, for mid
 * is still there too. A backward may overwrite what only it still needs (llama's inner[1]).
 *
 * | scratch                            | holds                                                               |
 * | ---------------------------------- | ------------------------------------------------------------------- |
 * | flow [rows, model]                 | the gradient of the residual stream, from unit to unit              |
 * | normed [rows, model]               | a norm's output, then the gradient of it                            |
 * | wide [rows, max(inner, projected)] | the activation's output or its gradient, the projections' gradient, |
 * |                                    | in the head the gradient of the norm's output                       |
 * | mean, rstd [rows]                  | of the norm computed last                                           |
 * | operation                          | work memory of the operation that runs: attention, a product        |
 */
#ifndef SHD_MODEL_UNITS_H
#define SHD_MODEL_UNITS_H

#include "runtime/model/family.h"
#include "runtime/model/model.h"
#include "runtime/ops/dropout.h"

#define SHD_NORM_EPS 1e-5f

/* Where a micro-batch's arrays lie on a device, and what comes back of it, as byte offsets in scratch: from `first` on what
 * goes there, in one piece, from `losses` on what comes back. */
typedef struct shd_carrier_layout {
    int64_t first, inputs, starts, targets, features, values, there_bytes;
    int64_t losses, correct, back_bytes;
    int64_t rope_table, rope_bytes;
    int64_t loss_count, correct_count;
} shd_carrier_layout;

/* The two tables as byte offsets, for some number of rows. */
typedef struct shd_layout {
    struct { /* in what is cheap to make again of a block's activations */
        int64_t projected, attended, log_sum;
    } remade;
    struct { /* in the rest of them */
        int64_t mid, inner[SHD_MAX_INNERS];
    } kept;
    struct { /* in scratch */
        int64_t flow, normed, wide, mean, rstd, operation;
    } work;
    shd_carrier_layout carried; /* on a device: behind the operation's work memory, in scratch */
    int64_t remade_bytes, kept_bytes, work_bytes;
} shd_layout;

struct shd_model {
    shd_model_config config; /* `frozen` is gone after create; n_kv_head and d_ff are set for gpt2 too */
    const shd_family *family;
    const shd_ops *ops; /* the config's, or the CPU's */
    int64_t lengths[SHD_LENGTH_COUNT];
    int64_t rows, head_size;
    int64_t chunk_rows;         /* rows of logits held at once */
    int32_t output_tensor;      /* the matrix of the logits: the token table's when tied */
    int32_t first_trained_unit; /* below it nothing is trainable: no gradient flows there */

    sherd_model description;
    sherd_tensor *tensors;
    shd_start *starts; /* by tensor */
    sherd_unit *units;
    char *names; /* of tensors and units, one after the other */

    shd_layout layout; /* of a micro-batch */
    float *rope_table; /* [context, head_size]; NULL without rotary positions */

    shd_pool *pool;
    shd_batch bound; /* what the next passes run */
    /* On a device. */
    shd_model_place place;
    struct shd_carrier *carrier; /* NULL: on the CPU */
};

/* What shd_model_create does, in this order. config.c and describe.c; each of the last three fills its part of
 * `model`. */
sherd_status shd_config_check(const shd_model_config *config);
sherd_status shd_model_freeze(shd_model *model, const char *const *patterns, int32_t pattern_count);
/* Parts of an architecture's list_tensors and lay_out. Memory for lists of so many, names included; *names is where the
 * first name goes. */
sherd_status shd_model_take_lists(shd_model *model, int32_t unit_count, int32_t tensor_count, char **names);
/* Appends a unit with no tensors yet, and a tensor to it. */
sherd_unit *shd_model_add_unit(shd_model *model, char **names, const char *name);
sherd_tensor *shd_model_add_tensor(shd_model *model, char **names, sherd_unit *unit, const char *prefix,
                                   const char *name, shd_start start);
/* Takes rows × length numbers at *end and returns where they begin. */
int64_t shd_layout_take(int64_t *end, sherd_dtype dtype, int64_t rows, int64_t length);
bool shd_model_is_on_device(const shd_model *model);
/* On a device: room for micro-batches behind the rest of the scratch memory. */
void shd_model_lay_out_carried(shd_model *model);
/* For `rows` rows, and `attention_bytes` of work memory for attention. Pure. */
shd_layout shd_layout_make(const shd_model *model, int64_t rows, int64_t attention_bytes);

/* One bracket of one unit: the tokens it runs, and the view with the areas of the scratch memory as pointers. */
typedef struct shd_pass {
    const shd_model *model;
    const sherd_view *view;
    shd_math math;
    const shd_layout *layout;
    int64_t sequences, length, rows; /* rows = sequences × length */
    shd_batch batch;                 /* a decoder has inputs only */
    /* A decoder's run continues its one sequence: `past` tokens came before, in its block's `cache` are their keys and
     * values [context, 2 · keys], where the run's own are added. NULL: nothing came before. */
    int64_t past;
    void *cache;
    const float *rope_table; /* where operations can read it */
    float *logits_wanted;    /* [vocabulary]: of the last row, which the head writes instead of losses; or NULL */
    void *flow, *normed, *wide;
    float *mean, *rstd;
} shd_pass;

/* A parameter as a bracket sees it; `gradient` is NULL when it is frozen or the bracket is a forward. */
typedef struct shd_parameter {
    const void *value;
    float *gradient;
} shd_parameter;
shd_parameter shd_pass_tensor(const shd_pass *pass, int32_t tensor);
/* By slot in the pass's unit. */
shd_parameter shd_pass_parameter(const shd_pass *pass, int32_t slot);
/* The output of the unit before the pass's. */
const void *shd_pass_input(const shd_pass *pass);
/* Points the pass into its view's scratch, as its layout says. */
void shd_pass_open(shd_pass *pass);
/* The unit of a transformer. */
void shd_transformer_forward(const shd_pass *pass);
void shd_transformer_backward(const shd_pass *pass);

/* layer.c. Where dropout is, in both families: the sum of token and position vectors, attention's probabilities, and
 * what the two halves of a block add to the residual stream. A mask's key is subkey (base/random.h) `place` of subkey
 * `unit` of the key that the model's seed gives "dropout". */
typedef enum shd_dropout_place {
    SHD_DROPOUT_EMBEDDING,
    SHD_DROPOUT_ATTENTION,
    SHD_DROPOUT_ATTENTION_OUT,
    SHD_DROPOUT_DOWN
} shd_dropout_place;
/* Whether the pass drops anything, and then what in its unit. */
bool shd_pass_dropout(const shd_pass *pass, shd_dropout_place place, shd_dropout *out);

/* A product with a weight: y = x · weight (+ bias) (+ residual). x is dense; rows of y are `y_stride`
 * apart, as are the residual's. */
typedef struct shd_linear {
    shd_parameter weight, bias; /* bias.value NULL: none */
    int64_t in, out;
    bool conv1d; /* weight [in, out], else [out, in] */
    bool wide;   /* y is fp32, whatever the precision; then without bias and residual */
} shd_linear;
shd_linear shd_pass_linear(const shd_pass *pass, int32_t slot);
void shd_linear_forward(const shd_math *math, const shd_linear *linear, int64_t rows, const void *x, void *y,
                        int64_t y_stride, const void *residual);
/* Weight and bias gradients, those that are wanted; the weight's is added to what is there when `accumulate`. A
 * biased linear's dy is dense. */
void shd_linear_backward_weight(const shd_math *math, const shd_linear *linear, int64_t rows, const void *x,
                                const void *dy, int64_t dy_stride, bool accumulate);
/* dx = (accumulate ? dx : 0) + dy · weightᵀ. */
void shd_linear_backward_input(const shd_math *math, const shd_linear *linear, int64_t rows, const void *dy,
                               int64_t dy_stride, void *dx, bool accumulate);

/* LayerNorm or RMSNorm of rows of x with the parameters at `slot` of the pass's unit; leaves mean (LayerNorm) and
 * rstd in scratch. */
void shd_norm_forward(const shd_pass *pass, int32_t slot, int64_t rows, const void *x, void *y);
/* flow = (add ? flow : 0) + the gradient through the norm whose forward ran last; dy must not be flow. */
void shd_norm_backward(const shd_pass *pass, int32_t slot, const void *x, const void *dy, bool add);

/* unit_embedding.c, unit_block.c, unit_head.c */
void shd_embedding_forward(const shd_pass *pass);
void shd_embedding_backward(const shd_pass *pass);
void shd_block_forward(const shd_pass *pass);
void shd_block_backward(const shd_pass *pass);
void shd_head_forward(const shd_pass *pass);
void shd_head_backward(const shd_pass *pass);

#endif
