#include "runtime/launch/variables.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of the ranks of the second of three hosts. */
static const shd_launch_place place = {.local_count = 2,
                                       .world_size = 5,
                                       .first_rank = 1,
                                       .node = 1,
                                       .node_count = 3,
                                       .attempt = 2,
                                       .max_restarts = 4,
                                       .role = "default",
                                       .run_id = "job-7",
                                       .master_address = "fd00::1",
                                       .master_port = 12345};

/* The value of `name`, which must not be there twice; NULL: it is not there. */
static const char *value_of(const shd_variables *variables, const char *name) {
    const char *value = NULL;
    size_t length = strlen(name);
    for (char **entry = variables->environment; *entry; entry++) {
        if (strncmp(*entry, name, length) || (*entry)[length] != '=') continue;
        cr_assert_null(value, "%s is there twice", name);
        value = *entry + length + 1;
    }
    return value;
}

static void begin(void) {
    static const char *const names[] = {"OMP_NUM_THREADS", "TORCH_NCCL_ASYNC_ERROR_HANDLING"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) unsetenv(names[i]);
}

TestSuite(variables, .init = begin);

Test(variables, are_those_of_torchrun) {
    static const char *const expected[][2] = {{"RANK", "2"},
                                              {"LOCAL_RANK", "1"},
                                              {"ROLE_RANK", "2"},
                                              {"WORLD_SIZE", "5"},
                                              {"LOCAL_WORLD_SIZE", "2"},
                                              {"GROUP_RANK", "1"},
                                              {"GROUP_WORLD_SIZE", "3"},
                                              {"ROLE_WORLD_SIZE", "5"},
                                              {"ROLE_NAME", "default"},
                                              {"MASTER_ADDR", "fd00::1"},
                                              {"MASTER_PORT", "12345"},
                                              {"TORCHELASTIC_RUN_ID", "job-7"},
                                              {"TORCHELASTIC_RESTART_COUNT", "2"},
                                              {"TORCHELASTIC_MAX_RESTARTS", "4"},
                                              {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"},
                                              {"OMP_NUM_THREADS", "1"}};
    setenv("RANK", "77", 1);
    setenv("ROLE_NAME", "outer", 1);
    shd_variables variables;
    cr_assert_eq(shd_variables_init(&variables, &place), SHERD_OK);
    cr_assert_eq(shd_variables_take_rank(&variables, 1), SHERD_OK);
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        const char *value = value_of(&variables, expected[i][0]);
        cr_assert(value && !strcmp(value, expected[i][1]), "%s is %s", expected[i][0], value ? value : "not set");
    }
    shd_variables_fini(&variables);
}

Test(variables, of_an_outer_launcher_are_not_passed_on_and_the_rest_is) {
    setenv("TORCHELASTIC_USE_AGENT_STORE", "True", 1);
    setenv("TORCHELASTIC_ERROR_FILE", "/tmp/outer", 1);
    setenv("OMP_NUM_THREADS", "7", 1);
    setenv("TORCH_NCCL_ASYNC_ERROR_HANDLING", "3", 1);
    setenv("SHERD_RDZV_SECRET", "whispered by few", 1);
    setenv("EMPTY", "", 1);
    setenv("RANK_OF_MINE", "a=b", 1);
    shd_variables variables;
    cr_assert_eq(shd_variables_init(&variables, &place), SHERD_OK);
    cr_assert_null(value_of(&variables, "TORCHELASTIC_USE_AGENT_STORE"));
    cr_assert_null(value_of(&variables, "TORCHELASTIC_ERROR_FILE"));
    cr_assert_null(value_of(&variables, "SHERD_RDZV_SECRET"));
    cr_assert_str_eq(value_of(&variables, "OMP_NUM_THREADS"), "7");
    cr_assert_str_eq(value_of(&variables, "TORCH_NCCL_ASYNC_ERROR_HANDLING"), "3");
    cr_assert_str_eq(value_of(&variables, "EMPTY"), "");
    cr_assert_str_eq(value_of(&variables, "RANK_OF_MINE"), "a=b");
    shd_variables_fini(&variables);
}

Test(variables, of_one_rank_a_host_leave_threads_alone) {
    shd_launch_place alone = place;
    alone.local_count = 1;
    shd_variables variables;
    cr_assert_eq(shd_variables_init(&variables, &alone), SHERD_OK);
    cr_assert_null(value_of(&variables, "OMP_NUM_THREADS"));
    shd_variables_fini(&variables);
}

Test(variables, more_may_be_set_changed_and_take_the_place_of_inherited_ones) {
    setenv("INHERITED", "old", 1);
    shd_variables variables;
    cr_assert_eq(shd_variables_init(&variables, &place), SHERD_OK);
    char value[5000];
    memset(value, 'x', sizeof value - 1);
    value[sizeof value - 1] = 0;
    cr_assert_eq(shd_variables_set(&variables, "INHERITED", value), SHERD_OK);
    cr_assert_str_eq(value_of(&variables, "INHERITED"), value);
    cr_assert_eq(shd_variables_set(&variables, "INHERITED", "new"), SHERD_OK);
    cr_assert_eq(shd_variables_set(&variables, "OTHER", "1"), SHERD_OK);
    cr_assert_str_eq(value_of(&variables, "INHERITED"), "new");
    cr_assert_str_eq(value_of(&variables, "OTHER"), "1");
    cr_assert_str_eq(value_of(&variables, "WORLD_SIZE"), "5");
    char name[16];
    sherd_status status = SHERD_OK;
    for (int i = 0; i < 2 * SHD_VARIABLES_MAX && status == SHERD_OK; i++) {
        snprintf(name, sizeof name, "V%d", i);
        status = shd_variables_set(&variables, name, "1");
    }
    cr_assert_eq(status, SHERD_INTERNAL);
    shd_variables_fini(&variables);
    shd_variables_fini(&variables);
}
