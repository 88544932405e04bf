/* Texts from a checkpoint: one process, whatever the number of ranks that saved it. It holds the parameters and one
 * decoder; no gradients, no optimizer state. */
#ifndef SHD_TRAIN_GENERATE_H
#define SHD_TRAIN_GENERATE_H

#include "runtime/train/draw.h"

#include <sherd/status.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct shd_generate {
    const char *checkpoint; /* a checkpoint, or a folder of them: the newest */
    const int32_t *prompt;  /* token ids */
    int64_t prompt_count;   /* 0: where tokens are bytes, one newline, which is not handed out */
    bool bytes;             /* tokens are taken or wanted as bytes: other vocabularies are refused */
    int64_t token_count;    /* of a text after the prompt, at most */
    int64_t sample_count;   /* texts, with sample numbers from 0 on */
    int64_t end_token;      /* ends a text and is not handed out; −1: 256, where that one follows the bytes */
    shd_draw draw;
    bool recompute; /* run the whole window for every token, without what is kept of it */
    int32_t threads;
} shd_generate;

/* Takes the texts, one after the other, each token as soon as it is drawn. */
typedef struct shd_generate_sink {
    void (*begin)(void *user, int64_t sample);
    void (*token)(void *user, int32_t token);
    void (*end)(void *user, int64_t sample);
    void *user;
} shd_generate_sink;

/* Loads the checkpoint and generates. Texts do not depend on threads, nor on how many are made.
 * Fails: CONFIG (a prompt or end that is no token, no prompt where one is needed), DATA (no checkpoint, damage, tokens
 * that are no bytes), NUMERIC (logits that are not finite), IO, MEMORY. */
sherd_status shd_generate_run(const shd_generate *request, const shd_generate_sink *sink);

#endif
