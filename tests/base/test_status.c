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
