#include "io/edit_distance.h"

#include "runtime/base/arith.h"

#include <stdbool.h>
#include <string.h>
#include <strings.h>

static bool same_letter(const char *a, const char *b) { return strncasecmp(a, b, 1) == 0; }

/* The optimal string alignment distance, by rows: row i holds the distances of the first i letters of `a`. */
int32_t shd_edit_distance(const char *a, const char *b) {
    int32_t rows[3][SHD_EDIT_NAME_BYTES + 1];
    int a_length = (int)strnlen(a, SHD_EDIT_NAME_BYTES + 1), b_length = (int)strnlen(b, SHD_EDIT_NAME_BYTES + 1);
    if (a_length > SHD_EDIT_NAME_BYTES || b_length > SHD_EDIT_NAME_BYTES) return SHD_EDIT_FAR;
    for (int j = 0; j <= b_length; j++) rows[0][j] = j;
    for (int i = 1; i <= a_length; i++) {
        int32_t *row = rows[i % 3], *last = rows[(i + 2) % 3], *older = rows[(i + 1) % 3];
        row[0] = i;
        for (int j = 1; j <= b_length; j++) {
            int64_t best = shd_min(last[j], row[j - 1]) + 1;
            best = shd_min(best, last[j - 1] + !same_letter(a + i - 1, b + j - 1));
            if (i > 1 && j > 1 && same_letter(a + i - 1, b + j - 2) && same_letter(a + i - 2, b + j - 1))
                best = shd_min(best, older[j - 2] + 1);
            row[j] = (int32_t)best;
        }
    }
    return rows[a_length % 3][b_length];
}
