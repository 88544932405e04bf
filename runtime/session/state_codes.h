/* Optimizer states in 8 bits and in fp32, each from the other, for who reads checkpoints. */
#ifndef SHD_SESSION_STATE_CODES_H
#define SHD_SESSION_STATE_CODES_H

#include "io/checkpoint_reader.h"

typedef struct shd_state_codes shd_state_codes;

/* `optimizer`: as a manifest has it, borrowed. Owns: destroy *out with shd_state_codes_destroy. Fails: MEMORY. */
sherd_status shd_state_codes_create(const char *optimizer, shd_state_codes **out);
/* Accepts NULL. */
void shd_state_codes_destroy(shd_state_codes *codes);

/* From INT8 to FP32 and back, for a reader. Borrows `codes`. */
shd_reader_convert shd_state_codes_converter(shd_state_codes *codes);

#endif
