#include "io/timeline.h"
#include "runtime/base/memory.h"
#include "tests/io/make_job.h"

#include <criterion/criterion.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

TestSuite(timeline, .init = enter_fresh_folder, .fini = leave_fresh_folder);

static const shd_timeline_slice bare = {.name = "REDUCE h.0",
                                        .category = "instruction",
                                        .process = 2,
                                        .track = 1,
                                        .started_ns = INT64_C(9000000000001500),
                                        .ended_ns = INT64_C(9000000000004750),
                                        .micro_step = -1,
                                        .bytes = -1,
                                        .sequence = -1,
                                        .waited_ns = -1};

static json_t *read_json(const char *path) {
    size_t length;
    char *text = read_file(path, &length);
    json_t *json = json_loadb(text, length, JSON_REJECT_DUPLICATES, NULL);
    cr_assert_not_null(json, "%s", text);
    free(text);
    return json;
}

Test(timeline, has_microseconds_from_its_origin_on_and_what_is_known) {
    shd_timeline timeline = shd_timeline_make(INT64_C(9000000000000000));
    shd_timeline_slice full = bare;
    full.name = "a \"name\" with \\ and \n";
    full.unit = "h.\"0\"";
    full.micro_step = 0;
    full.bytes = INT64_C(1) << 40;
    full.sequence = 7;
    full.waited_ns = 1001;
    shd_timeline_add_track(&timeline, 2, "rank 2", 1, "gather");
    shd_timeline_add_slice(&timeline, &bare);
    shd_timeline_add_slice(&timeline, &full);
    cr_assert_eq(shd_timeline_write(&timeline, "t.json", "{\"step\":3}"), SHERD_OK, "%s", sherd_last_error());
    json_t *json = read_json("t.json"), *events = json_object_get(json, "traceEvents");
    cr_assert_eq(json_array_size(events), 6u);
    cr_assert_eq(json_integer_value(json_object_get(json_object_get(json, "otherData"), "step")), 3);
    const json_t *first = json_array_get(events, 4), *second = json_array_get(events, 5);
    cr_assert_str_eq(json_string_value(json_object_get(first, "name")), "REDUCE h.0");
    cr_assert_eq(json_number_value(json_object_get(first, "ts")), 1.5);
    cr_assert_eq(json_number_value(json_object_get(first, "dur")), 3.25);
    cr_assert_eq(json_object_size(json_object_get(first, "args")), 0u);
    cr_assert_str_eq(json_string_value(json_object_get(second, "name")), "a \"name\" with \\ and  ");
    const json_t *args = json_object_get(second, "args");
    cr_assert_str_eq(json_string_value(json_object_get(args, "unit")), "h.\"0\"");
    cr_assert_eq(json_integer_value(json_object_get(args, "micro_step")), 0);
    cr_assert_eq(json_integer_value(json_object_get(args, "bytes")), INT64_C(1) << 40);
    cr_assert_eq(json_number_value(json_object_get(args, "waited_us")), 1.001);
    json_decref(json);
    cr_assert_eq(shd_memory_held(SHD_MEMORY_OBJECTS), 0);
}

Test(timeline, numbers_no_process_and_no_thread_0_or_twice) {
    shd_timeline timeline = shd_timeline_make(0);
    int64_t seen[3 * SHD_TIMELINE_TRACKS];
    for (int32_t p = 0; p < 3; p++)
        for (int32_t t = 0; t < SHD_TIMELINE_TRACKS; t++) {
            shd_timeline_slice slice = bare;
            slice.process = p;
            slice.track = t;
            shd_timeline_add_slice(&timeline, &slice);
        }
    cr_assert_eq(shd_timeline_write(&timeline, "t.json", "{}"), SHERD_OK);
    json_t *json = read_json("t.json"), *events = json_object_get(json, "traceEvents");
    for (size_t i = 0; i < json_array_size(events); i++) {
        seen[i] = json_integer_value(json_object_get(json_array_get(events, i), "tid"));
        cr_assert_gt(json_integer_value(json_object_get(json_array_get(events, i), "pid")), 0);
        cr_assert_gt(seen[i], 0);
        for (size_t j = 0; j < i; j++) cr_assert_neq(seen[i], seen[j]);
    }
    json_decref(json);
}

Test(timeline, leaves_the_older_file_when_it_cannot_be_written) {
    write_text("t.json", "older");
    mkdir("t.json.fresh", 0777);
    shd_timeline timeline = shd_timeline_make(0);
    shd_timeline_add_slice(&timeline, &bare);
    cr_assert_eq(shd_timeline_write(&timeline, "t.json", "{}"), SHERD_IO);
    size_t length;
    char *text = read_file("t.json", &length);
    cr_assert_str_eq(text, "older");
    free(text);
    shd_timeline_drop(&timeline);
    cr_assert_eq(shd_memory_held(SHD_MEMORY_OBJECTS), 0);
}
