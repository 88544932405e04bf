/* What Hugging Face's transformers call our models and their parameters: names and config.json. Pure.
 *
 * Parameters lie as theirs do, so names are all there is to translate: GPT-2's matrices are [in, out] (Conv1D), Llama's
 * [out, in], the queries, keys and values of GPT-2 side by side, and rotary positions turn the first half of a head
 * against the second. A tied output matrix is not stored; config.json says that it is tied. */
#ifndef SHD_IO_HUGGING_FACE_H
#define SHD_IO_HUGGING_FACE_H

#include "io/job.h"

#include <sherd/dtype.h>
#include <sherd/status.h>
#include <stdbool.h>

/* Whether transformers has models of this family. */
bool shd_hugging_face_has(shd_job_family family);

enum { SHD_HUGGING_FACE_NAME_BYTES = 160 };
/* What a GPT2LMHeadModel or LlamaForCausalLM calls parameter `name`. Fails: ARGUMENT when it does not fit. */
sherd_status shd_hugging_face_name(shd_job_family family, const char *name, char out[SHD_HUGGING_FACE_NAME_BYTES]);

/* config.json of the job's model, whose parameters are stored in `dtype`. The job has a family that transformers has.
 * *out: release with shd_free. Fails: MEMORY. */
sherd_status shd_hugging_face_config(const shd_job *job, sherd_dtype dtype, char **out);

#endif
