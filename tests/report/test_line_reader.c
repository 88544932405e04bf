#include "runtime/report/line_reader.h"

#include "runtime/base/status.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char path[] = "/tmp/sherd-line-reader-XXXXXX";

static void write_file(const char *bytes, size_t count) {
    int descriptor = mkstemp(path);
    cr_assert_geq(descriptor, 0);
    cr_assert_eq(write(descriptor, bytes, count), (ssize_t)count);
    close(descriptor);
}

typedef struct sum {
    int64_t count, numbers;
} sum;

static sherd_status take(void *user, const json_t *object) {
    sum *all = user;
    const json_t *number = json_object_get(object, "n");
    if (!number) return shd_fail(SHERD_DATA, "no n");
    all->count++;
    all->numbers += json_integer_value(number);
    return SHERD_OK;
}

static sum read_all(const char *bytes, size_t length, shd_line_counts *counts) {
    sum all = {0};
    write_file(bytes, length);
    cr_assert_eq(shd_lines_read(path, take, &all, counts), SHERD_OK, "%s", sherd_last_error());
    unlink(path);
    return all;
}

Test(line_reader, whole_lines_are_given_and_others_counted) {
    static const char text[] =
        "{\"n\":1}\n\nnot json\n{\"n\":2}\r\n[3]\n{\"m\":4}\n{\"n\":\"\xff\"}\n{\"n\":5,\"n\":6}\n  \n{\"n\":7}\n";
    shd_line_counts counts;
    sum all = read_all(text, sizeof text - 1, &counts);
    cr_assert_eq(all.numbers, 1 + 2 + 7);
    cr_assert(counts.there && counts.good == 3 && counts.damaged == 5 && counts.first_damaged == 3 && !counts.torn);
}

Test(line_reader, a_last_line_without_end_is_taken_when_it_is_whole) {
    static const char text[] = "{\"n\":1}\n{\"n\":2}";
    shd_line_counts counts;
    cr_assert_eq(read_all(text, sizeof text - 1, &counts).numbers, 3);
    cr_assert(!counts.torn && counts.damaged == 0);
}

Test(line_reader, a_torn_last_line_is_not_called_damage) {
    static const char text[] = "{\"n\":1}\n{\"n\":";
    shd_line_counts counts;
    cr_assert_eq(read_all(text, sizeof text - 1, &counts).numbers, 1);
    cr_assert(counts.torn && counts.damaged == 0);
}

Test(line_reader, an_empty_file_has_no_lines_and_a_missing_one_is_not_there) {
    shd_line_counts counts;
    cr_assert_eq(read_all("", 0, &counts).count, 0);
    cr_assert(counts.there && counts.good == 0 && counts.damaged == 0);
    cr_assert_eq(shd_lines_read("/nowhere/at/all", take, NULL, &counts), SHERD_OK);
    cr_assert_not(counts.there);
}

Test(line_reader, lines_longer_than_the_buffer_are_one_damaged_line_each) {
    enum { LONG = 3 * SHD_LINE_BYTES + 17 };
    char *text = malloc(LONG + 40);
    memset(text, 'x', LONG);
    memcpy(text, "{\"n\":1}\n", 8);
    memcpy(text + LONG, "\n{\"n\":2}\n", 9);
    shd_line_counts counts;
    sum all = read_all(text, LONG + 9, &counts);
    cr_assert_eq(all.numbers, 3);
    cr_assert(counts.damaged == 1 && counts.first_damaged == 2);
    free(text);
}

Test(line_reader, lines_longer_than_what_is_read_at_once_are_whole) {
    enum { LONG = SHD_LINE_BYTES - 100 };
    char *text = malloc(2 * LONG + 100);
    size_t used = (size_t)sprintf(text, "{\"n\":1}\n");
    for (int i = 2; i <= 4; i += 2) {
        used += (size_t)sprintf(text + used, "{\"n\":%d,\"pad\":\"", i);
        memset(text + used, 'x', LONG - 30);
        used += LONG - 30;
        used += (size_t)sprintf(text + used, "\"}\n");
    }
    used += (size_t)sprintf(text + used, "{\"n\":8}\n");
    shd_line_counts counts;
    sum all = read_all(text, used, &counts);
    cr_assert(all.numbers == 15 && counts.good == 4 && counts.damaged == 0);
    free(text);
}

Test(line_reader, lines_across_the_borders_of_reads_are_whole) {
    enum { LINES = 200000 };
    char *text = malloc((size_t)LINES * 32);
    size_t used = 0;
    int64_t want = 0;
    for (int i = 0; i < LINES; i++) {
        used += (size_t)sprintf(text + used, "{\"n\":%d,\"pad\":\"%.*s\"}\n", i, i % 7, "abcdefg");
        want += i;
    }
    shd_line_counts counts;
    sum all = read_all(text, used, &counts);
    cr_assert(all.count == LINES && all.numbers == want && counts.good == LINES && counts.damaged == 0);
    free(text);
}

Test(line_reader, a_zero_byte_damages_its_line_only) {
    static const char text[] = "{\"n\":1}\n{\"n\":2\0}\n{\"n\":4}\n";
    shd_line_counts counts;
    cr_assert_eq(read_all(text, sizeof text - 1, &counts).numbers, 5);
    cr_assert_eq(counts.damaged, 1);
}

Test(line_reader, an_object_is_a_whole_file) {
    json_t *object;
    cr_assert_eq(shd_object_read("/nowhere/at/all", &object), SHERD_OK);
    cr_assert_null(object);
    write_file("{\"a\":\n 1}\n", 10);
    cr_assert_eq(shd_object_read(path, &object), SHERD_OK);
    cr_assert_eq(json_integer_value(json_object_get(object, "a")), 1);
    json_decref(object);
    unlink(path);
    strcpy(path + strlen(path) - 6, "XXXXXX");
    write_file("{\"a\":", 5);
    cr_assert_eq(shd_object_read(path, &object), SHERD_DATA);
    unlink(path);
}

Test(line_reader, numbers_are_those_of_metrics) {
    double number;
    json_t *list = json_loads("[1, 2.5, true, false, \"nan\", \"inf\", \"-inf\", \"x\", null, []]", 0, NULL);
    const double want[] = {1, 2.5, 1, 0};
    for (size_t i = 0; i < 4; i++) cr_assert(shd_number_read(json_array_get(list, i), &number) && number == want[i]);
    cr_assert(shd_number_read(json_array_get(list, 4), &number) && isnan(number));
    cr_assert(shd_number_read(json_array_get(list, 5), &number) && isinf(number) && number > 0);
    cr_assert(shd_number_read(json_array_get(list, 6), &number) && isinf(number) && number < 0);
    for (size_t i = 7; i < 10; i++) cr_assert_not(shd_number_read(json_array_get(list, i), &number));
    json_decref(list);
}
