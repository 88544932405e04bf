#include "runtime/launch/screen.h"

#include "runtime/base/utf8.h"

#include <criterion/criterion.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static const char *shown(shd_screen *screen, const char *line) {
    static char out[4096];
    size_t bytes = shd_screen_line(screen, line, strlen(line), out);
    cr_assert_leq(bytes, shd_screen_room(strlen(line)));
    out[bytes] = 0;
    return out;
}
static const char *alone(const char *line) {
    shd_screen screen = {0};
    return shown(&screen, line);
}
#define FFFD "\xEF\xBF\xBD"

Test(screen, text_passes_as_it_is) {
    cr_assert_str_eq(alone(""), "");
    cr_assert_str_eq(alone("step 3\tloss 0.5 äöü ✓ 漢字 \xF0\x9F\x98\x80"),
                     "step 3\tloss 0.5 äöü ✓ 漢字 \xF0\x9F\x98\x80");
}

Test(screen, bytes_that_are_no_text_are_replaced_one_by_one) {
    cr_assert_str_eq(alone("a\xff\xfe"
                           "b"),
                     "a" FFFD FFFD "b");
    cr_assert_str_eq(alone("cut \xE2\x9C"), "cut " FFFD FFFD, "a character that was torn");
    cr_assert_str_eq(alone("\xC2\x9B"
                           "2J"),
                     FFFD "2J", "CSI as one character of ISO 6429");
    cr_assert_str_eq(alone("\x9b"
                           "2J"),
                     FFFD "2J");
}

Test(screen, control_characters_are_named) {
    char out[64];
    size_t bytes = shd_screen_plain("a\0b\bc\a\x7f", 7, out);
    out[bytes] = 0;
    cr_assert_str_eq(out, "a^@b^Hc^G^?");
}

Test(screen, what_moves_erases_or_sets_is_left_out) {
    static const char *const sequences[] = {
        "\033[2J", "\033[1;1H", "\033[A",         "\033[K",          "\033[?1049h",    "\033[?25l", "\033[>4;1m",
        "\033[6n", "\033[!p",   "\033]0;title\a", "\033]8;;x\033\\", "\033Pq#0\033\\", "\033(0",    "\033c",
        "\0337",   "\033#8",    "\033[1 q",       "\033_x\033\\",    "\033^y\a",       "\033="};
    for (size_t i = 0; i < sizeof sequences / sizeof *sequences; i++) {
        char line[64];
        snprintf(line, sizeof line, "ab%scd", sequences[i]);
        cr_assert_str_eq(alone(line), "abcd", "sequence %zu", i);
    }
}

Test(screen, unfinished_sequences_take_nothing_with_them) {
    static const char *const lines[] = {"ab\033", "ab\033[", "ab\033[1;3", "ab\033(", "ab\033]", "ab\033P"};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) cr_assert_str_eq(alone(lines[i]), "ab", "line %zu", i);
    cr_assert_str_eq(alone("\033]0;this is no title"), "0;this is no title", "text is not swallowed");
    cr_assert_str_eq(alone("\033[3\x01x"), "^Ax");
}

Test(screen, a_colour_ends_with_its_line_and_is_taken_up_again) {
    shd_screen screen = {0};
    cr_assert_str_eq(shown(&screen, "\033[1m\033[31mred"), "\033[1m\033[31mred\033[0m");
    cr_assert_str_eq(shown(&screen, "still"), "\033[1m\033[31mstill\033[0m");
    cr_assert_str_eq(shown(&screen, "end\033[0m."), "\033[1m\033[31mend\033[0m.\033[0m");
    cr_assert_str_eq(shown(&screen, "plain"), "plain");
    cr_assert_str_eq(shown(&screen, "\033[0;32mgreen"), "\033[0;32mgreen\033[0m");
    cr_assert_str_eq(shown(&screen, "\033[mx"), "\033[0;32m\033[mx\033[0m");
    cr_assert_str_eq(shown(&screen, "plain"), "plain");
}

Test(screen, colours_without_end_need_no_memory_without_end) {
    shd_screen screen = {0};
    for (int i = 0; i < 1000; i++) shown(&screen, "\033[38;5;123mx");
    cr_assert_leq(screen.colour_count, SHD_SCREEN_COLOUR_BYTES);
    char line[1000] = "\033[";
    memset(line + 2, '1', 900);
    strcpy(line + 902, "mx");
    shown(&screen, line);
    cr_assert_leq(screen.colour_count, SHD_SCREEN_COLOUR_BYTES);
}

/* Whatever comes, what goes out is UTF-8, has no control character but TAB and ESC, and every ESC begins a colour; the last of
 * them resets, where there is any. */
Test(screen, nothing_a_rank_writes_gets_through) {
    uint64_t state = 88172645463325252u;
    static const char pieces[] = "\033\033\033[[];?0123m4567HJKmPX^_\\\a\r\b\t \xc2\x9b\xe2\x9c\x93\xff(c";
    for (int round = 0; round < 20000; round++) {
        char line[48], out[sizeof line * 3 + 200];
        size_t count = 0;
        for (; count < (size_t)(round % (int)sizeof line); count++) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            line[count] = pieces[state % (sizeof pieces - 1)];
        }
        shd_screen screen = {0};
        size_t bytes = shd_screen_line(&screen, line, count, out);
        cr_assert_leq(bytes, shd_screen_room(count));
        bool colour = false;
        for (size_t at = 0; at < bytes;) {
            uint32_t code;
            int length = shd_utf8_read(out + at, bytes - at, &code);
            cr_assert_gt(length, 0, "round %d: no UTF-8", round);
            if (code == 033) {
                colour = true;
                cr_assert_eq(out[at + 1], '[', "round %d", round);
                size_t end = at + 2 + strspn(out + at + 2, "0123456789:;");
                cr_assert_eq(out[end], 'm', "round %d", round);
                at = end + 1;
                continue;
            }
            cr_assert(code == '\t' || shd_utf8_shows(code), "round %d: %x", round, code);
            at += (size_t)length;
        }
        if (colour) cr_assert(!memcmp(out + bytes - 4, "\033[0m", 4), "round %d: the colour goes on", round);
    }
}
