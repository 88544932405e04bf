#include "runtime/train/characters.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

/* What was handed on: characters as they are, bytes that are none as <hex>. */
static void take(void *user, const unsigned char *bytes, int count, bool character) {
    char *text = user;
    for (int i = 0; i < count; i++) {
        size_t length = strlen(text);
        snprintf(text + length, 8, character ? "%c" : "<%02x>", bytes[i]);
    }
    strcat(text, "|");
}

Test(characters, are_handed_on_whole) {
    static const struct {
        const char *put, *taken;
        int left;
    } cases[] = {
        {"", "", 0},
        {"ab\n", "a|b|\n|", 0},
        {"\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80", "\xc3\xa4|\xe2\x82\xac|\xf0\x9f\x98\x80|", 0},
        {"a\xe2\x82", "a|", 2},
        {"a\xf0\x9f\x98", "a|", 3},
        {"\xc3", "", 1},
        {"\xe2\x82z", "<e2><82>|z|", 0},
        {"\xe2\xc3\xa4", "<e2>|\xc3\xa4|", 0},
        {"\x80\xbf\xff", "<80>|<bf>|<ff>|", 0},
        {"\xc0\xaf", "<c0>|<af>|", 0},                   /* overlong */
        {"\xe0\x9f\xbf", "<e0>|<9f>|<bf>|", 0},          /* overlong */
        {"\xed\xa0\x80", "<ed>|<a0>|<80>|", 0},          /* a surrogate */
        {"\xf4\x90\x80\x80", "<f4>|<90>|<80>|<80>|", 0}, /* above U+10FFFF */
        {"\xf0\x8f\xbf\xbf", "<f0>|<8f>|<bf>|<bf>|", 0}, /* overlong */
        {"\xf5\x80", "<f5>|<80>|", 0},
        {"\xed\x9f\xbf\xf4\x8f\xbf\xbf", "\xed\x9f\xbf|\xf4\x8f\xbf\xbf|", 0}, /* the last before each gap */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char taken[200] = "";
        shd_characters characters = {.take = take, .user = taken};
        for (const char *at = cases[i].put; *at; at++) shd_characters_put(&characters, (unsigned char)*at);
        cr_assert_str_eq(taken, cases[i].taken, "case %d: %s", (int)i, taken);
        cr_assert_eq(shd_characters_end(&characters), cases[i].left, "case %d", (int)i);
        cr_assert_eq(
            memcmp(characters.held, cases[i].put + strlen(cases[i].put) - cases[i].left, (size_t)cases[i].left), 0);
        shd_characters_put(&characters, 'x'); /* what was left is not taken up again */
        cr_assert_eq(taken[strlen(taken) - 2], 'x');
        cr_assert_eq(strlen(taken), strlen(cases[i].taken) + 2);
    }
}
