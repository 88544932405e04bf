#include "io/json_line.h"

#include <criterion/criterion.h>
#include <jansson.h>
#include <locale.h>
#include <math.h>
#include <string.h>

static json_t *parse(const shd_json_line *line) {
    json_t *value = json_loadb(line->bytes, line->length, JSON_REJECT_DUPLICATES, NULL);
    cr_assert_not_null(value, "no JSON: %s", line->bytes);
    return value;
}

Test(json_line, has_members_of_every_kind_and_nested_ones) {
    char bytes[400];
    shd_json_line line = shd_json_line_make(bytes, sizeof bytes);
    shd_json_line_open(&line, NULL, '{');
    shd_json_line_integer(&line, "low", INT64_MIN);
    shd_json_line_open(&line, "empty", '[');
    shd_json_line_close(&line, ']');
    shd_json_line_open(&line, "list", '[');
    shd_json_line_integer(&line, NULL, 1);
    shd_json_line_bool(&line, NULL, false);
    shd_json_line_open(&line, NULL, '{');
    shd_json_line_close(&line, '}');
    shd_json_line_close(&line, ']');
    shd_json_line_real(&line, "third", 1.0 / 3, 9);
    shd_json_line_real(&line, "exact", 1.0 / 3, 17);
    shd_json_line_thousandths(&line, "time", 1764489600.1239);
    shd_json_line_close(&line, '}');
    shd_json_line_end(&line);
    cr_assert_str_eq(bytes, "{\"low\":-9223372036854775808,\"empty\":[],\"list\":[1,false,{}],\"third\":0.333333333,"
                            "\"exact\":0.33333333333333331,\"time\":1764489600.124}\n");
    cr_assert_not(line.full);
}

Test(json_line, has_words_for_what_is_no_number) {
    char bytes[100];
    shd_json_line line = shd_json_line_make(bytes, sizeof bytes);
    shd_json_line_open(&line, NULL, '[');
    shd_json_line_real(&line, NULL, NAN, 9);
    shd_json_line_real(&line, NULL, -NAN, 9);
    shd_json_line_real(&line, NULL, INFINITY, 9);
    shd_json_line_real(&line, NULL, -INFINITY, 9);
    shd_json_line_close(&line, ']');
    cr_assert_str_eq(bytes, "[\"nan\",\"nan\",\"inf\",\"-inf\"]");
}

Test(json_line, keeps_any_text_strict_and_on_one_line) {
    char bytes[400], all[256];
    for (int i = 0; i < 255; i++) all[i] = (char)(i + 1);
    all[255] = 0;
    const struct {
        const char *given, *read;
        size_t limit;
    } cases[] = {{"plain", "plain", 100},
                 {"a\"b\\c", "a\"b\\c", 100},
                 {"line\nend\ttab", "line end tab", 100},
                 {"\x1b[31mred", " [31mred", 100},
                 {"caf\xc3\xa9", "caf\xc3\xa9", 100},
                 {"caf\xc3\xa9", "caf?", 4},
                 {"\xff\xc3(",
                  "?"
                  "?(",
                  100},
                 {"", "", 100},
                 {"cut here", "cut", 3}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        shd_json_line line = shd_json_line_make(bytes, sizeof bytes);
        shd_json_line_open(&line, NULL, '{');
        shd_json_line_text(&line, "text", cases[i].given, cases[i].limit);
        shd_json_line_close(&line, '}');
        json_t *value = parse(&line);
        cr_assert_str_eq(json_string_value(json_object_get(value, "text")), cases[i].read);
        json_decref(value);
    }
    shd_json_line line = shd_json_line_make(bytes, sizeof bytes);
    shd_json_line_open(&line, NULL, '[');
    shd_json_line_text(&line, NULL, all, sizeof all);
    shd_json_line_close(&line, ']');
    cr_assert_null(strchr(bytes, '\n'));
    json_decref(parse(&line));
}

Test(json_line, that_is_full_says_so_and_writes_no_further) {
    char bytes[16 + 8];
    memset(bytes, '#', sizeof bytes);
    shd_json_line line = shd_json_line_make(bytes, 16);
    shd_json_line_open(&line, NULL, '[');
    for (int i = 0; i < 20; i++) shd_json_line_integer(&line, NULL, i);
    cr_assert(line.full);
    cr_assert_leq(line.length, 15u);
    cr_assert_eq(bytes[line.length], 0);
    for (size_t i = 16; i < sizeof bytes; i++) cr_assert_eq(bytes[i], '#');
}

Test(json_line, has_points_in_every_locale) {
    if (!setlocale(LC_NUMERIC, "de_DE.UTF-8")) cr_skip_test("no German locale here");
    char bytes[64];
    shd_json_line line = shd_json_line_make(bytes, sizeof bytes);
    shd_json_line_real(&line, NULL, 1.5, 9);
    shd_json_line_thousandths(&line, NULL, 2.25);
    cr_assert_str_eq(bytes, "1.5,2.250");
}
