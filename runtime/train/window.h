/* Which tokens of a growing text a model looks at.
 *
 * Everything, while that fits the context. A text that outgrows it goes on with its newest half context as if it began
 * there: positions count from 0 again, and keys and values are computed anew, once in half a context of tokens. So
 * every token costs about one more row of work, whatever the length, and a model never sees positions or lengths that
 * it was not trained on; but what it remembers varies between half a context and a whole one.
 *
 * Pure: ranks that only watch follow the same steps. */
#ifndef SHD_TRAIN_WINDOW_H
#define SHD_TRAIN_WINDOW_H

#include <stdbool.h>
#include <stdint.h>

typedef struct shd_window {
    int64_t context, longest_run;
    int64_t count; /* tokens of the text; the caller adds to it */
    int64_t start; /* the text's token that has position 0 */
    int64_t known; /* the window's tokens whose keys and values are kept */
} shd_window;

/* What a decoder is to run next: tokens [first, first + count) of the text, after `past` others. */
typedef struct shd_window_run {
    int64_t first, past, count;
} shd_window_run;

/* The next run of a text of at least one token, of which not all is known. */
shd_window_run shd_window_next(shd_window *window);
/* That run is done. True when all is known: then its logits are those of the text's next token. */
bool shd_window_add(shd_window *window, const shd_window_run *run);

#endif
