#include "runtime/base/utf8.h"

#include <criterion/criterion.h>
#include <stdint.h>
#include <string.h>

/* The form of `number` in `count` bytes, too long forms included. */
static void encode(uint32_t number, int count, char out[4]) {
    static const unsigned char heads[] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (int i = count - 1; i > 0; i--) {
        out[i] = (char)(0x80 | (number & 0x3f));
        number >>= 6;
    }
    out[0] = (char)(heads[count] | number);
}

static int shortest(uint32_t number) { return number < 0x80 ? 1 : number < 0x800 ? 2 : number < 0x10000 ? 3 : 4; }

Test(utf8, every_number_has_one_form_and_surrogates_have_none) {
    char form[4];
    for (uint32_t number = 0; number < 0x200000; number++) {
        bool legal = number <= 0x10ffff && (number < 0xd800 || number > 0xdfff);
        for (int count = shortest(number); count <= 4; count++) {
            encode(number, count, form);
            int expected = legal && count == shortest(number) ? count : 0;
            uint32_t code = number;
            int found = shd_utf8_read(form, 4, &code);
            cr_assert(found == expected && code == number, "U+%X in %d bytes: U+%X, %d", number, count, code, found);
            for (int left = 1; count > 1 && left < count; left++)
                cr_assert_eq(shd_utf8_read(form, (size_t)left, &code), 0, "U+%X cut", number);
        }
    }
}

Test(utf8, a_character_whose_later_bytes_are_others_is_none) {
    for (int byte = 0; byte < 256; byte++) {
        bool later = byte >= 0x80 && byte < 0xc0;
        const char two[] = {(char)0xc3, (char)byte}, three[] = {(char)0xe2, (char)0x82, (char)byte},
                   four[] = {(char)0xf0, (char)0x9f, (char)0x98, (char)byte}, one[] = {(char)byte, 'a', 'a', 'a'};
        uint32_t code;
        cr_assert_eq(shd_utf8_read(two, 2, &code), later ? 2 : 0);
        cr_assert_eq(shd_utf8_read(three, 3, &code), later ? 3 : 0);
        cr_assert_eq(shd_utf8_read(four, 4, &code), later ? 4 : 0);
        cr_assert_eq(shd_utf8_read(one, 4, &code), byte < 0x80 ? 1 : 0);
    }
}

Test(utf8, what_moves_the_cursor_or_breaks_the_line_is_not_shown) {
    for (uint32_t code = 0; code < 0x110000; code++) {
        bool hidden = code < 0x20 || (code >= 0x7f && code < 0xa0) || code == 0x2028 || code == 0x2029 ||
                      code == 0xfeff || code == 0xfffe || code == 0xffff;
        cr_assert_eq(shd_utf8_shows(code), !hidden, "U+%X", code);
    }
}
