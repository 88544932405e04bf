#include "runtime/cli/wrap.h"

#include <criterion/criterion.h>
#include <string.h>

static void check(const char *line, int columns, const char *want) {
    char text[200];
    shd_wrap_line(line, columns, text, sizeof text);
    cr_assert_str_eq(text, want);
}

Test(wrap, lines_are_broken_between_words) {
    check("sherd: saved it all at last", 80, "sherd: saved it all at last");
    check("one two three four", 9, "one two\n  three\n  four");
    check("one two three four", 10, "one two\n  three\n  four");
    check("one two three four", 13, "one two three\n  four");
    check("", 10, "");
}

Test(wrap, further_rows_stand_below_the_message) {
    const char *line = "sherd: a message that is longer than sixty columns goes on below its first word";
    check(line, 60, "sherd: a message that is longer than sixty columns goes on\n       below its first word");
}

Test(wrap, a_word_that_does_not_fit_is_left_whole) {
    check("sherd: /a/very/long/path/that/somebody/copies is it", 20,
          "sherd:\n  /a/very/long/path/that/somebody/copies\n  is it");
}

Test(wrap, characters_count_and_not_bytes) {
    check("ääää öööö", 9, "ääää öööö");
    check("ääää öööö", 8, "ääää\n  öööö");
}

Test(wrap, line_ends_and_blanks_within_a_row_are_kept) {
    check("a  b\n  | c d", 20, "a  b\n  | c d");
    check("aaaa bb\ncc dd", 7, "aaaa bb\ncc dd");
    check("usage:   x", 0, "usage:   x");
}

Test(wrap, what_is_too_long_for_its_place_is_cut) {
    char text[8];
    shd_wrap_line("one two three", 80, text, sizeof text);
    cr_assert_str_eq(text, "one two");
    shd_wrap_line("one two three", 0, text, sizeof text);
    cr_assert_str_eq(text, "one two");
}
