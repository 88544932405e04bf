/* Dropout: which elements go, and what that depends on.
 *
 * Masks are never stored. Whether an element goes is a function of the site (a key), the number of its sequence in the
 * whole run, and its row and column in the sequence: of nothing else. So whoever asks (another rank, backward, a
 * forward that is repeated, a resumed run) finds the same mask.
 *
 * Element (row, column) of sequence q owns 16 bits: Philox of the site's key and the counter whose words are column / 8,
 * row, and q's lower and upper half gives four words, in which the elements of columns 8j to 8j + 7 follow each other,
 * lower halves first. It is dropped when the number in its bits is below `drop`; what stays is multiplied by `scale` =
 * 65536 ÷ (65536 - drop), so that the expectation of y is x, whatever p was rounded to. */
#ifndef SHD_OPS_DROPOUT_H
#define SHD_OPS_DROPOUT_H

#include <stdint.h>

/* At one site of a model, for a micro-batch. */
typedef struct shd_dropout {
    uint64_t key;           /* the site's; in attention that of all its heads: head h has shd_random_subkey(key, h) */
    int64_t first_sequence; /* the number in the run of the micro-batch's first sequence; the others follow it */
    uint32_t drop;          /* of 65536; 0: nothing is dropped */
    float scale;
} shd_dropout;

/* With probability p, 0 ≤ p < 1, rounded to 65536ths: to the nearest, but to 0 only where p is, and never to 1. */
shd_dropout shd_dropout_make(double p, uint64_t key, int64_t first_sequence);

#endif
