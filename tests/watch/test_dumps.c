/* Reading dumps that somebody has damaged, or made up. */
#include "runtime/base/memory.h"
#include "runtime/watch/dumps.h"
#include "tests/watch/made_dumps.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char good[] =
    "{\"sherd_dump\":1,\"rank\":1,\"world_size\":2,\"written_by\":0,\"pid\":7,\"now_ns\":90,\"host\":\"h\\u001b[31m\","
    "\"alarm\":{\"rank\":0,\"text\":\"why\"},\"process\":{\"life\":\"stopped\"},\"activity\":{\"name\":\"in a step\","
    "\"step\":3},\"where\":{\"kind\":\"work\",\"text\":\"in FORWARD\",\"since_ns\":50},\"units\":[\"h.0\"],"
    "\"events\":[{\"kind\":\"FORWARD\",\"unit\":0,\"step\":3,\"bytes\":0,\"queue\":0,\"collective\":-1,"
    "\"queued_ns\":1,\"started_ns\":2,\"ended_ns\":0},{\"kind\":\"REDUCE\",\"unit\":9,\"step\":3,\"bytes\":64,"
    "\"queue\":2,\"collective\":17,\"queued_ns\":1,\"started_ns\":2,\"ended_ns\":3}]}";

static sherd_status parse(const char *text, size_t bytes, shd_rank_dump *out) {
    int32_t world_size = 0;
    sherd_status status = shd_dump_parse(text, bytes, "the file", &world_size, out);
    if (status == SHERD_OK) cr_assert_eq(world_size, 2);
    return status;
}

Test(dumps, a_good_dump_is_read_and_what_terminals_would_obey_is_not_kept) {
    shd_rank_dump dump;
    cr_assert_eq(parse(good, strlen(good), &dump), SHERD_OK, "%s", sherd_last_error());
    cr_assert(dump.there && dump.rank == 1 && dump.written_by == 0 && dump.pid == 7 && dump.alarm_rank == 0);
    cr_assert(dump.now_ns == 90 && dump.since_ns == 50 && dump.step == 3 && dump.event_count == 2);
    cr_assert_str_eq(dump.host, "h?[31m");
    cr_assert_str_eq(dump.alarm, "why");
    cr_assert_str_eq(dump.events[0].unit, "h.0");
    cr_assert_str_eq(dump.events[1].unit, "", "there is no such unit");
    cr_assert(dump.events[1].collective == 17 && dump.events[1].queue == 2 && dump.events[1].bytes == 64);
    shd_free(dump.events);
}

Test(dumps, a_dump_that_is_cut_anywhere_is_refused) {
    for (size_t bytes = 0; bytes < strlen(good); bytes++) {
        shd_rank_dump dump;
        cr_assert_eq(parse(good, bytes, &dump), SHERD_DATA, "%zu bytes", bytes);
        cr_assert(strstr(sherd_last_error(), "the file"), "%s", sherd_last_error());
    }
}

Test(dumps, a_dump_with_a_wrong_value_is_refused) {
    static const char *const swaps[][2] = {
        {"\"sherd_dump\":1", "\"sherd_dump\":2"},
        {"\"sherd_dump\":1", "\"sherd_dumb\":1"},
        {"\"rank\":1", "\"rank\":2"},
        {"\"rank\":1", "\"rank\":-1"},
        {"\"rank\":1", "\"rank\":\"1\""},
        {"\"world_size\":2", "\"world_size\":0"},
        {"\"world_size\":2", "\"world_size\":1000000000"},
        {"\"now_ns\":90", "\"now_ns\":9e1"},
        {"\"units\":[\"h.0\"]", "\"units\":3"},
        {"\"events\":[{", "\"events\":[3,{"},
        {"\"events\":[", "\"others\":["},
        {"\"ended_ns\":3", "\"ended_ns\":-9223372036854775808"},
        {"\"step\":3},\"where\"", "\"step\":9223372036854775807},\"where\""},
        {"\"queue\":2", "\"queue\":null"},
        {"\"unit\":0", "\"unit\":\"h.0\""},
        {"\"where\":{\"kind\":\"work\"", "\"where\":{\"sort\":\"work\""},
        {"\"process\":{\"life\":\"stopped\"}", "\"process\":null"},
        {"\"pid\":7", "\"pid\":7,\"pid\":8"},
    };
    for (size_t i = 0; i < sizeof swaps / sizeof *swaps; i++) {
        char text[2000];
        const char *at = strstr(good, swaps[i][0]);
        cr_assert_not_null(at);
        snprintf(text, sizeof text, "%.*s%s%s", (int)(at - good), good, swaps[i][1], at + strlen(swaps[i][0]));
        shd_rank_dump dump;
        cr_assert_eq(parse(text, strlen(text), &dump), SHERD_DATA, "%s", swaps[i][1]);
    }
}

static sherd_status load(const char *folder) {
    shd_dumps *dumps = NULL;
    sherd_status status = shd_dumps_load(folder, &dumps);
    if (status == SHERD_OK) shd_dumps_destroy(dumps);
    return status;
}

Test(dumps, a_folder_without_dumps_or_with_those_of_two_jobs_is_refused) {
    const char *folder = dumps_folder();
    cr_assert_eq(load("/no/such/folder"), SHERD_IO);
    cr_assert_eq(load(folder), SHERD_DATA);
    dumps_write(folder, ".rank-00001-by-0-17", "half");
    dumps_write(folder, "notes.txt", "mine");
    cr_assert_eq(load(folder), SHERD_DATA);
    dumps_write(folder, "rank-00001.json", good);
    cr_assert_eq(load(folder), SHERD_OK);
    dumps_write(folder, "rank-00000.json", good); /* rank 1 again */
    cr_assert_eq(load(folder), SHERD_DATA);
    char text[2000];
    const char *at = strstr(good, "\"rank\":1,\"world_size\":2");
    snprintf(text, sizeof text, "%.*s\"rank\":0,\"world_size\":3%s", (int)(at - good), good,
             at + strlen("\"rank\":1,\"world_size\":2"));
    dumps_write(folder, "rank-00000.json", text);
    cr_assert_eq(load(folder), SHERD_DATA);
    cr_assert(strstr(sherd_last_error(), "another job"), "%s", sherd_last_error());
}
