#include "runtime/base/status.h"

#include <criterion/criterion.h>
#include <string.h>

Test(status, every_code_has_a_text_of_its_own) {
    static const sherd_status codes[] = {
#define CODE(name, value, text) SHERD_##name,
        SHERD_STATUS_MAP(CODE)
#undef CODE
    };
    int count = (int)(sizeof codes / sizeof *codes);
    for (int i = 0; i < count; i++)
        for (int j = 0; j < i; j++) cr_assert_str_neq(sherd_status_text(codes[i]), sherd_status_text(codes[j]));
    cr_assert_str_eq(sherd_status_text((sherd_status)12345), "unknown status");
}

Test(status, codes_from_100_are_fatal) {
    cr_assert_not(sherd_status_is_fatal(SHERD_INTERNAL));
    cr_assert(sherd_status_is_fatal(SHERD_COMM));
}

Test(status, a_cause_may_be_wrapped_in_its_context) {
    cr_assert_eq(shd_fail(SHERD_DATA, "file %d", 7), SHERD_DATA);
    shd_fail_within(SHERD_DATA, "rank %d", 2);
    cr_assert_str_eq(sherd_last_error(), "rank 2: file 7");
}

Test(status, a_cause_is_a_line_that_can_be_shown_whatever_it_quotes) {
    static const struct {
        const char *quoted, *shown;
    } rows[] = {
        {"tok\xc3\xa9n \xe2\x82\xac \xf0\x9f\x98\x80", "tok\xc3\xa9n \xe2\x82\xac \xf0\x9f\x98\x80"},
        {"\x1b[2Jgone", "?[2Jgone"},
        {"a\nb\tc\rd\x7f", "a?b?c?d?"},
        {"\xc2\x9b"
         "2J",
         "?2J"},
        {"line\xe2\x80\xa8line", "line?line"},
        {"latin \xe9t\xe9", "latin ?t?"},
        {"cut \xe2\x82", "cut ??"},
        {"\xed\xa0\x80", "???"},
        {"", ""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        shd_fail(SHERD_DATA, "%s", rows[i].quoted);
        cr_expect_str_eq(sherd_last_error(), rows[i].shown);
        shd_fail(SHERD_DATA, "x");
        shd_fail_within(SHERD_DATA, "%s", rows[i].quoted);
        cr_expect(strncmp(sherd_last_error(), rows[i].shown, strlen(rows[i].shown)) == 0);
        cr_expect_str_eq(sherd_last_error() + strlen(rows[i].shown), ": x");
    }
    /* Cut to fit, at every place of a character. */
    char text[5000];
    for (size_t shift = 0; shift < 4; shift++) {
        memset(text, 'a', shift);
        for (size_t i = shift; i + 4 < sizeof text; i += 4) memcpy(text + i, "\xf0\x9f\x98\x80", 5);
        shd_fail(SHERD_DATA, "%s", text);
        for (int round = 0; round < 2; round++) {
            size_t length = strlen(sherd_last_error()), tail = 0;
            while (tail < length && sherd_last_error()[length - 1 - tail] == '?') tail++;
            cr_expect_leq(tail, 3);
            cr_expect_eq((length - tail - shift * (size_t)(round + 1) - (round ? 2 : 0)) % 4, 0);
            char context[8] = "";
            memset(context, 'a', shift);
            shd_fail_within(SHERD_DATA, "%s", context);
        }
    }
}
