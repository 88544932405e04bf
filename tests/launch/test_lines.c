#include "runtime/launch/lines.h"

#include "runtime/base/memory.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

/* What was taken, each line in brackets. */
typedef struct taken {
    char text[4096];
    size_t used, lines, longest, bytes;
} taken;

static void take(void *user, const char *line, size_t count) {
    taken *all = user;
    all->lines++;
    all->bytes += count;
    if (count > all->longest) all->longest = count;
    if (all->used + count + 3 > sizeof all->text) return;
    all->text[all->used++] = '[';
    memcpy(all->text + all->used, line, count);
    all->used += count;
    all->text[all->used++] = ']';
}

static void feed(shd_lines *lines, const char *text, double now_ms, taken *all) {
    shd_lines_feed(lines, text, strlen(text), now_ms, take, all);
}

Test(lines, are_whole_in_whatever_pieces_they_come) {
    static const char text[] = "one\ntwo\r\n\nthree \xff\n\r\nlast";
    for (size_t piece = 1; piece < sizeof text; piece++) {
        shd_lines lines = {0};
        taken all = {0};
        for (size_t at = 0; at < sizeof text - 1; at += piece) {
            size_t left = sizeof text - 1 - at;
            shd_lines_feed(&lines, text + at, left < piece ? left : piece, 1, take, &all);
        }
        cr_assert_str_eq(all.text, "[one][two][][three \xff][]", "in pieces of %zu", piece);
        shd_lines_finish(&lines, take, &all);
        cr_assert_str_eq(all.text, "[one][two][][three \xff][][last]");
    }
    cr_assert_eq(shd_memory_held(SHD_MEMORY_OBJECTS), 0);
}

Test(lines, that_have_not_begun_are_not_taken_at_the_end) {
    shd_lines lines = {0};
    taken all = {0};
    shd_lines_finish(&lines, take, &all);
    feed(&lines, "x\n", 1, &all);
    shd_lines_finish(&lines, take, &all);
    cr_assert_str_eq(all.text, "[x]");
}

/* A bar of a hundred states within two seconds is three lines, and its end. */
Test(lines, of_a_progress_bar_are_one_a_second_and_the_last) {
    shd_lines lines = {0};
    taken all = {0};
    for (int i = 0; i < 100; i++) {
        char state[32];
        snprintf(state, sizeof state, "\r%3d%%", i);
        feed(&lines, state, 1000 + 21 * i, &all);
    }
    feed(&lines, "\rdone\n", 3100, &all);
    cr_assert_str_eq(all.text, "[  0%][ 48%][ 96%][done]");
    shd_lines_finish(&lines, take, &all);
    cr_assert_eq(all.lines, 4);
}

Test(lines, of_a_bar_that_was_cut_off_end_with_its_last_state) {
    shd_lines lines = {0};
    taken all = {0};
    feed(&lines, "a\rb\rc\r", 1000, &all);
    shd_lines_finish(&lines, take, &all);
    cr_assert_str_eq(all.text, "[a][c]");
}

Test(lines, that_are_too_long_come_in_pieces_and_nothing_is_lost) {
    enum { TOTAL = 2 * SHD_LINES_MAX_BYTES + 17 };
    char *text = shd_alloc(TOTAL, 1);
    memset(text, 'x', TOTAL);
    shd_lines lines = {0};
    taken all = {0};
    for (size_t at = 0; at < TOTAL; at += 60001)
        shd_lines_feed(&lines, text + at, TOTAL - at < 60001 ? TOTAL - at : 60001, 1, take, &all);
    feed(&lines, "\nshort\n", 1, &all);
    cr_assert_eq(all.lines, 4);
    cr_assert_eq(all.longest, SHD_LINES_MAX_BYTES);
    cr_assert_eq(all.bytes, TOTAL + 5);
    cr_assert_lt(lines.room, 10000, "the memory of a long line is kept");
    shd_lines_finish(&lines, take, &all);
    shd_free(text);
    cr_assert_eq(shd_memory_held(SHD_MEMORY_OBJECTS), 0);
}
