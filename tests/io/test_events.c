#include "io/events.h"
#include "tests/io/make_job.h"

#include <criterion/criterion.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

TestSuite(events, .init = enter_fresh_folder, .fini = leave_fresh_folder, .timeout = 30);

/* The n-th line of log/events.jsonl, from 0, as strict JSON; NULL behind the last, and for a line that is none. */
static json_t *event_at(int n) {
    size_t length;
    char *text = read_file("log/events.jsonl", &length), *line = text;
    for (; n > 0 && line; n--) line = (line = strchr(line, '\n')) ? line + 1 : NULL;
    char *end = line ? strchr(line, '\n') : NULL;
    json_t *event = end ? json_loadb(line, (size_t)(end - line), JSON_REJECT_DUPLICATES, NULL) : NULL;
    free(text);
    return event;
}

static const char *text_of(const json_t *event, const char *key) {
    return json_string_value(json_object_get(event, key));
}

Test(events, are_lines_of_strict_json_with_what_is_known) {
    double before = (double)time(NULL);
    const shd_event start = {.kind = SHD_EVENT_START, .step = 0, .rank = -1, .text = "2 ranks, \"tiny\""};
    const shd_event failure = {.kind = SHD_EVENT_FAILURE, .step = -1, .rank = 3};
    cr_assert_eq(shd_event_add("log", &start), SHERD_OK, "%s", sherd_last_error());
    cr_assert_eq(shd_event_add("log", &failure), SHERD_OK);
    json_t *first = event_at(0), *second = event_at(1);
    cr_assert_str_eq(text_of(first, "event"), "start");
    cr_assert_str_eq(text_of(first, "text"), "2 ranks, \"tiny\"");
    cr_assert_eq(json_integer_value(json_object_get(first, "step")), 0);
    cr_assert_eq(json_object_size(first), 4u);
    double at = json_real_value(json_object_get(first, "time"));
    cr_assert(at >= before && at <= (double)time(NULL) + 1, "%f", at);
    cr_assert_str_eq(text_of(second, "event"), "failure");
    cr_assert_eq(json_integer_value(json_object_get(second, "rank")), 3);
    cr_assert_eq(json_object_size(second), 3u);
    cr_assert_null(event_at(2));
    json_decref(first);
    json_decref(second);
}

Test(events, have_a_word_for_every_kind) {
    for (int32_t kind = 0; kind < SHD_EVENTS; kind++) {
        cr_assert_not_null(shd_event_word((shd_event_kind)kind));
        for (int32_t other = 0; other < kind; other++)
            cr_assert_str_neq(shd_event_word((shd_event_kind)kind), shd_event_word((shd_event_kind)other));
    }
}

Test(events, of_text_without_end_are_cut_and_stay_strict) {
    char *text = malloc(100000);
    memset(text, '"', 99999);
    text[99999] = 0;
    const shd_event event = {.kind = SHD_EVENT_STOP, .step = 7, .rank = 1, .text = text};
    cr_assert_eq(shd_event_add("log", &event), SHERD_OK);
    json_t *read = event_at(0);
    cr_assert_eq(strlen(text_of(read, "text")), (size_t)SHD_EVENT_TEXT_BYTES);
    json_decref(read);
    free(text);
}

Test(events, begin_a_line_of_their_own_behind_a_torn_one) {
    const shd_event event = {.kind = SHD_EVENT_END, .step = 9, .rank = -1};
    mkdir("log", 0777);
    write_text("log/events.jsonl", "{\"time\":1,\"eve");
    cr_assert_eq(shd_event_add("log", &event), SHERD_OK);
    cr_assert_null(event_at(0));
    json_t *read = event_at(1);
    cr_assert_str_eq(text_of(read, "event"), "end");
    json_decref(read);
}

/* Three writers at once, as ranks and their launcher are. */
Test(events, of_several_processes_never_mix) {
    enum { WRITERS = 3, EACH = 200 };
    char text[500];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = 0;
    for (int32_t w = 0; w < WRITERS; w++)
        if (fork() == 0) {
            bool good = true;
            for (int32_t i = 0; i < EACH; i++) {
                const shd_event event = {.kind = SHD_EVENT_SAVE, .step = i, .rank = w, .text = text};
                good = shd_event_add("log", &event) == SHERD_OK && good;
            }
            _exit(!good);
        }
    for (int32_t w = 0; w < WRITERS; w++) {
        int state;
        cr_assert_gt(wait(&state), 0);
        cr_assert_eq(state, 0);
    }
    size_t length;
    char *all = read_file("log/events.jsonl", &length), *line = all;
    int next[WRITERS] = {0};
    for (char *end; *line; line = end + 1) {
        end = strchr(line, '\n');
        cr_assert_not_null(end);
        json_t *event = json_loadb(line, (size_t)(end - line), JSON_REJECT_DUPLICATES, NULL);
        cr_assert_not_null(event, "%.*s", (int)(end - line), line);
        json_int_t rank = json_integer_value(json_object_get(event, "rank"));
        cr_assert_eq(json_integer_value(json_object_get(event, "step")), next[rank]++);
        json_decref(event);
    }
    for (int32_t w = 0; w < WRITERS; w++) cr_assert_eq(next[w], EACH);
    free(all);
}

Test(events, that_cannot_be_written_name_the_file) {
    const shd_event event = {.kind = SHD_EVENT_END, .step = 1, .rank = -1};
    mkdir("log", 0777);
    mkdir("log/events.jsonl", 0777);
    cr_assert_eq(shd_event_add("log", &event), SHERD_IO);
    cr_assert_not_null(strstr(sherd_last_error(), "log/events.jsonl"), "%s", sherd_last_error());
}
