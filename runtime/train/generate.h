/* Text from a checkpoint: one rank, whatever the number of ranks that saved it; bytes as tokens. */
#ifndef SHD_TRAIN_GENERATE_H
#define SHD_TRAIN_GENERATE_H

#include <sherd/status.h>
#include <stddef.h>
#include <stdint.h>

typedef struct shd_generate {
    const char *checkpoint; /* a checkpoint, or a folder of them: the newest */
    const char *prompt;     /* bytes; an empty one begins with a newline, which is not handed out */
    size_t prompt_bytes;
    int64_t token_count; /* to generate at most: a token that is no byte ends the text */
    double temperature;  /* logits are divided by it; 0: always the most likely token */
    uint64_t seed;       /* with it and its position, a token's draw is decided */
    int32_t threads;
} shd_generate;

/* Takes each byte as it comes. */
typedef void (*shd_generate_sink)(void *user, unsigned char byte);

/* Loads the checkpoint and generates. Fails: DATA (no checkpoint, damage, a model whose tokens are no bytes), CONFIG,
 * IO, MEMORY. */
sherd_status shd_generate_run(const shd_generate *request, shd_generate_sink sink, void *user);

#endif
