/* What a growing text is looked at through, against the rule spelled out. */
#include "runtime/train/window.h"

#include <criterion/criterion.h>

/* Where the window of a text of `count` tokens starts: as the text grew, or at once. */
static int64_t expected_start(int64_t context, int64_t prompt, int64_t count) {
    int64_t start = 0, keep = context / 2 > 0 ? context / 2 : 1;
    for (int64_t n = prompt; n <= count; n++)
        if (n - start > context) start = n - keep;
    return start;
}

static void follow(int64_t context, int64_t longest_run, int64_t prompt, int64_t last) {
    shd_window window = {.context = context, .longest_run = longest_run, .count = prompt};
    int64_t rows = 0;
    for (; window.count <= last; window.count++) {
        int64_t start = expected_start(context, prompt, window.count), known = window.known;
        for (bool whole = false; !whole;) {
            shd_window_run run = shd_window_next(&window);
            cr_assert_eq(window.start, start);
            cr_assert(run.past == 0 || run.past == known, "known tokens are not run again");
            cr_assert_eq(run.first, start + run.past);
            cr_assert(run.count >= 1 && run.count <= longest_run && run.past + run.count <= context);
            cr_assert_leq(run.first + run.count, window.count);
            whole = shd_window_add(&window, &run);
            cr_assert_eq(whole, run.first + run.count == window.count);
            known = run.past + run.count;
            rows += run.count;
        }
        cr_assert_eq(window.known, window.count - start);
    }
    /* Each token once, and half a context again whenever the window moves. */
    int64_t after = last - prompt + 1, keep = context / 2 > 0 ? context / 2 : 1;
    int64_t first = prompt > context ? keep : prompt;
    cr_assert_leq(rows, first + after + after * keep / (context + 1 - keep) + keep);
}

Test(window, shows_all_then_half_a_context_anew) {
    static const int64_t contexts[] = {1, 2, 3, 8, 13, 64, 100}, runs[] = {1, 3, 64};
    for (int c = 0; c < 7; c++)
        for (int r = 0; r < 3; r++) {
            if (runs[r] > contexts[c]) continue;
            static const int64_t prompts[] = {1, 2, 7, 64, 65, 300};
            for (int p = 0; p < 6; p++) follow(contexts[c], runs[r], prompts[p], prompts[p] + 3 * contexts[c] + 5);
        }
}

Test(window, moves_as_the_header_says) {
    shd_window window = {.context = 4, .longest_run = 4, .count = 1};
    static const int64_t starts[] = {0, 0, 0, 0, 3, 3, 3, 6, 6}; /* with 1, 2, … tokens; 2 of 5 stay */
    for (int i = 0; i < 9; i++, window.count++) {
        shd_window_run run = shd_window_next(&window);
        cr_assert_eq(window.start, starts[i], "%d tokens: from %d", i + 1, (int)window.start);
        cr_assert(shd_window_add(&window, &run));
    }
}
