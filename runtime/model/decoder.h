/* One sequence, run forward a few tokens at a time: what a text is generated with.
 *
 * A decoder keeps the keys and values of the tokens it has run, in memory of a fixed size, so a token costs one row
 * of every product and one look at what is kept, however long the text. It runs through the same units as training,
 * unit by unit, with the parameters of a view: a session's evaluation bracket lends one, or whoever has all
 * parameters makes one.
 *
 * Logits differ from those of a forward over the whole sequence by rounding only, since products of few rows add in
 * another order: in the tests by less than 1e-5 of the largest logit, in 16 bits by what these round. They depend on how
 * the tokens were cut into runs, never on the number of threads. */
#ifndef SHD_MODEL_DECODER_H
#define SHD_MODEL_DECODER_H

#include "runtime/model/model.h"

typedef struct shd_decoder shd_decoder;

/* The memory a decoder of the model takes, in bytes: keys and values of `context` tokens in every block, and work memory
 * for one run. */
int64_t shd_decoder_bytes(const shd_model *model);

/* The most tokens of one run; above 0, at most the context. */
int64_t shd_decoder_longest_run(const shd_model *model);

/* An empty decoder. The model's micro_batch plays no part. `pool` NULL: one of its own, of the config's threads; else
 * it has at most as many.
 * Owns: borrows model and pool until shd_decoder_destroy. Fails: MEMORY. */
sherd_status shd_decoder_create(const shd_model *model, shd_pool *pool, shd_decoder **out);
/* Accepts NULL. */
void shd_decoder_destroy(shd_decoder *decoder);

/* Opens a run: `count` tokens that follow the first `past` of those that were run, which stay; what came after them is
 * forgotten. 0 < count ≤ shd_decoder_longest_run, past + count ≤ context, past ≤ the tokens there. `tokens` are
 * borrowed until the run has gone through all units. */
void shd_decoder_begin(shd_decoder *decoder, int64_t past, const int32_t *tokens, int64_t count);

/* Runs unit `view->unit`, in order from 0, the head last: like shd_model_forward. Of the view only unit and parameters
 * are looked at. Allocates nothing. */
sherd_status shd_decoder_forward(shd_decoder *decoder, const sherd_view *view);

/* After the head: the logits that follow the run's last token, [vocab_size]. Valid until the next run. */
const float *shd_decoder_logits(const shd_decoder *decoder);

#endif
