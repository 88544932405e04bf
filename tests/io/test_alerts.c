#include "io/alerts.h"
#include "tests/io/make_job.h"

#include <criterion/criterion.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

TestSuite(alerts, .init = enter_fresh_folder, .fini = leave_fresh_folder, .timeout = 30);

enum { EXAMPLES = 300 };

static shd_alert_example find(void *user, int64_t i) {
    (void)user;
    return (shd_alert_example){.number = 1000 + i,
                               .rank = (int32_t)(i % 3),
                               .micro_step = (int32_t)(i / 3),
                               .file = i % 2 ? "/data/\"odd\".bin" : "even.bin",
                               .index = 7 * i,
                               .token = i % 5 ? 11 * i : -1};
}

Test(alerts, a_line_has_every_example_of_the_batch) {
    const shd_alert alert = {.step = 4,
                             .action = "skip",
                             .loss = (double)NAN,
                             .grad_norm = 2,
                             .param_norm = 3,
                             .rank = 1,
                             .micro_step = 2,
                             .unit = "head",
                             .in_row = 1,
                             .example_count = EXAMPLES,
                             .example = find};
    cr_assert_eq(shd_alert_add("log", &alert), SHERD_OK, "%s", sherd_last_error());
    size_t length;
    char *text = read_file("log/alerts.jsonl", &length);
    json_t *line = json_loadb(text, length, JSON_REJECT_DUPLICATES, NULL), *batch = json_object_get(line, "batch");
    cr_assert(line && text[length - 1] == '\n' && !memchr(text, '\n', length - 1));
    cr_assert_eq(json_array_size(batch), (size_t)EXAMPLES);
    cr_assert_str_eq(json_string_value(json_object_get(line, "loss")), "nan");
    for (int i = 0; i < EXAMPLES; i++) {
        const json_t *example = json_array_get(batch, (size_t)i);
        cr_assert_eq(json_integer_value(json_object_get(example, "number")), 1000 + i);
        cr_assert_eq(json_integer_value(json_object_get(example, i % 5 ? "sequence" : "row")), 7 * i);
        cr_assert_eq(json_object_get(example, "token") != NULL, i % 5 != 0);
        cr_assert_str_eq(json_string_value(json_object_get(example, "file")), find(NULL, i).file);
    }
    json_decref(line);
    free(text);
}
