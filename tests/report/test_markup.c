#include "runtime/report/markup.h"

#include "runtime/base/memory.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

static void check_text(void (*write)(shd_text *, const char *), const char *text, const char *want) {
    shd_text out = {0};
    char *got;
    shd_text_add(&out, "%s", "");
    write(&out, text);
    cr_assert_eq(shd_text_finish(&out, &got), SHERD_OK);
    cr_assert_str_eq(got, want);
    shd_free(got);
}

Test(markup, what_would_be_markup_is_escaped) {
    check_text(shd_markup_text, "<b a=\"1\" c='2'>&amp;</b>",
               "&lt;b a=&quot;1&quot; c=&#39;2&#39;&gt;&amp;amp;&lt;/b&gt;");
    check_text(shd_markup_text, "loss: 2 µs\n\tnext", "loss: 2 µs\n\tnext");
    check_text(shd_markup_text, "", "");
}

Test(markup, bytes_that_are_no_text_become_replacements) {
    check_text(shd_markup_text,
               "a\xff"
               "b",
               "a\xef\xbf\xbd"
               "b");
    check_text(shd_markup_text,
               "\xc0\xbc"
               "script",
               "\xef\xbf\xbd\xef\xbf\xbd"
               "script");
    check_text(shd_markup_text, "\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");
    check_text(shd_markup_text, "\033[31m\x01\r", "\xef\xbf\xbd[31m\xef\xbf\xbd\xef\xbf\xbd");
    check_text(shd_markup_text, "cut \xe2\x82", "cut \xef\xbf\xbd\xef\xbf\xbd");
}

Test(markup, json_cannot_end_the_script_it_stands_in) {
    check_text(shd_markup_json, "</script>\"\\'&\n", "\"\\u003c/script\\u003e\\u0022\\u005c\\u0027\\u0026\\u000a\"");
    check_text(shd_markup_json, "\xff é", "\"\\ufffd é\"");
    check_text(shd_markup_json, "\x7f\x02", "\"\\ufffd\\ufffd\"");
}

Test(markup, a_long_text_is_cut_between_characters) {
    shd_text out = {0};
    char *got;
    shd_markup_head(&out, "abcé", 4);
    shd_text_add(&out, "|");
    shd_markup_head(&out, "abcé", 5);
    shd_text_add(&out, "|");
    shd_markup_head(&out, "a<cdef", 3);
    cr_assert_eq(shd_text_finish(&out, &got), SHERD_OK);
    cr_assert_str_eq(got, "abc…|abcé|a&lt;c…");
    shd_free(got);
}

static void check_number(double value, const char *want) {
    char text[SHD_NUMBER_BYTES];
    shd_number_text(value, text);
    cr_assert_str_eq(text, want);
}

Test(markup, numbers_are_short) {
    check_number(0, "0");
    check_number(1.5321, "1.532");
    check_number(0.0003, "0.0003");
    check_number(3e-5, "3e-5");
    check_number(-2.5e-10, "-2.5e-10");
    check_number(9999, "9999");
    check_number(9999.6, "10k");
    check_number(12345, "12.3k");
    check_number(999999, "1M");
    check_number(4.567e6, "4.57M");
    check_number(-1.5e12, "-1.5T");
    check_number(1e300, "1e300");
    check_number((double)NAN, "nan");
    check_number(-(double)INFINITY, "-inf");
}

Test(markup, exact_numbers_are_no_longer_than_need_be) {
    const double values[] = {0.003, 0.1, 1.0 / 3, 1e-8, 65536, -0.8, 1e22, 123456789.125};
    static const char *const want[] = {"0.003", "0.1",  "0.3333333333333333", "1e-8", "65536",
                                       "-0.8",  "1e22", "123456789.125"};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        shd_text out = {0};
        char *got;
        shd_markup_exact(&out, values[i]);
        cr_assert_eq(shd_text_finish(&out, &got), SHERD_OK);
        cr_assert_str_eq(got, want[i]);
        shd_free(got);
    }
}

Test(markup, counts_spans_sizes_and_moments_are_for_people) {
    char text[SHD_NUMBER_BYTES];
    const struct {
        int64_t count;
        const char *want;
    } counts[] = {{0, "0"}, {999, "999"}, {1000, "1,000"}, {-12345, "-12,345"}, {1234567, "1,234,567"}};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        shd_count_text(counts[i].count, text);
        cr_assert_str_eq(text, counts[i].want);
    }
    shd_count_text(INT64_MIN, text);
    cr_assert_str_eq(text, "-9,223,372,036,854,775,808");
    shd_span_text(42.4, text);
    cr_assert_str_eq(text, "0:42");
    shd_span_text(3723, text);
    cr_assert_str_eq(text, "1:02:03");
    shd_span_text(86400 * 3 + 3600 * 4 + 5, text);
    cr_assert_str_eq(text, "3 d 4:00:05");
    shd_span_text((double)NAN, text);
    cr_assert_str_eq(text, "0:00");
    shd_size_text(12.3 * 1024 * 1024, text);
    cr_assert_str_eq(text, "12.3 MiB");
    shd_moment_text(1772368205.9, text);
    cr_assert_str_eq(text, "2026-03-01 12:30:05 UTC");
    shd_moment_text(-1, text);
    cr_assert_str_eq(text, "");
    shd_moment_text((double)NAN, text);
    cr_assert_str_eq(text, "");
}
