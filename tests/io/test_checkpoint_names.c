#include "io/checkpoint_names.h"
#include "tests/io/files.h"

#include <criterion/criterion.h>

Test(checkpoint_names, are_parsed_when_they_would_be_printed_so) {
    static const struct {
        const char *name;
        shd_step_kind kind;
        int64_t step;
        uint64_t id;
    } rows[] = {
        {"step-00000000", SHD_STEP_COMPLETE, 0, 0},
        {"step-00001200", SHD_STEP_COMPLETE, 1200, 0},
        {"step-123456789012", SHD_STEP_COMPLETE, 123456789012, 0},
        {"step-9223372036854775807", SHD_STEP_COMPLETE, INT64_MAX, 0},
        {"step-00000007.partial-0123456789abcdef", SHD_STEP_PARTIAL, 7, 0x0123456789abcdef},
        {"step-00000007.replaced-ffffffffffffffff", SHD_STEP_REPLACED, 7, UINT64_MAX},
        {"step-00000007.aside-0000000000000000", SHD_STEP_ASIDE, 7, 0},
        {"step-", SHD_STEP_OTHER, -1, 0},
        {"step-7", SHD_STEP_OTHER, -1, 0},
        {"step-000000007", SHD_STEP_OTHER, -1, 0},
        {"step--0000007", SHD_STEP_OTHER, -1, 0},
        {"step- 0000007", SHD_STEP_OTHER, -1, 0},
        {"step-+0000007", SHD_STEP_OTHER, -1, 0},
        {"step-0000000x", SHD_STEP_OTHER, -1, 0},
        {"step-99999999999999999999", SHD_STEP_OTHER, -1, 0},
        {"step-00000007.partial", SHD_STEP_OTHER, -1, 0},
        {"step-00000007.partial-", SHD_STEP_OTHER, -1, 0},
        {"step-00000007.partial-123", SHD_STEP_OTHER, -1, 0},
        {"step-00000007.partial-0123456789ABCDEF", SHD_STEP_OTHER, -1, 0},
        {"step-00000007.partial-0123456789abcdef0", SHD_STEP_OTHER, -1, 0},
        {"step-00000007.partial-0123456789abcdef.", SHD_STEP_OTHER, -1, 0},
        {"step-00000007.other-0123456789abcdef", SHD_STEP_OTHER, -1, 0},
    };
    shd_step_name parsed;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        cr_assert(shd_step_name_parse(rows[i].name, &parsed), "%s", rows[i].name);
        cr_expect(parsed.kind == rows[i].kind && parsed.step == rows[i].step && parsed.id == rows[i].id, "%s: %d %lld",
                  rows[i].name, parsed.kind, (long long)parsed.step);
        char path[SHD_PATH_BYTES];
        if (parsed.kind == SHD_STEP_OTHER) continue;
        cr_assert_eq(shd_step_path(path, "a", parsed.kind, parsed.step, parsed.id), SHERD_OK);
        cr_expect_str_eq(path, path_in("a", rows[i].name));
    }
    cr_expect_not(shd_step_name_parse("steps-00000001", &parsed));
    cr_expect_not(shd_step_name_parse("", &parsed));
    cr_expect_eq(shd_step_name_of_path("a/step-00000003//").step, 3);
    cr_expect_eq(shd_step_name_of_path("step-00000004").step, 4);
    cr_expect_eq(shd_step_name_of_path("/").kind, SHD_STEP_OTHER);
    cr_expect_eq(shd_rank_name_parse("rank-00017.bin"), 17);
    cr_expect_eq(shd_rank_name_parse("rank-123456.bin"), 123456);
    cr_expect_eq(shd_rank_name_parse("rank-17.bin"), -1);
    cr_expect_eq(shd_rank_name_parse("rank-00017.bin~"), -1);
}
