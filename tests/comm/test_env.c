#include <sherd/options.h>
#include <sherd/status.h>

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static const char *const variables[] = {"RANK",        "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE",
                                        "MASTER_ADDR", "MASTER_PORT"};
static const char *const values[] = {"2", "4", "2", "4", "127.0.0.1", "29500"};
enum { VARIABLES = 6 };

/* torchrun's set for rank 2 of 4. */
static void set_all(void) {
    for (int v = 0; v < VARIABLES; v++) setenv(variables[v], values[v], 1);
    setenv("TORCHELASTIC_RUN_ID", "job", 1);
    setenv("TORCHELASTIC_RESTART_COUNT", "0", 1);
}

static void clear_all(void) {
    for (int v = 0; v < VARIABLES; v++) unsetenv(variables[v]);
    unsetenv("TORCHELASTIC_RUN_ID");
    unsetenv("TORCHELASTIC_RESTART_COUNT");
}

/* The rendezvous name under the present environment, in storage of this function. */
static const char *name_now(char room[256]) {
    sherd_options options = SHERD_OPTIONS_INIT;
    cr_assert_eq(sherd_options_from_env(&options), SHERD_OK, "%s", sherd_last_error());
    return strcpy(room, options.rendezvous);
}

Test(env, without_a_launcher_nothing_changes) {
    clear_all();
    setenv("MASTER_ADDR", "left over", 1);
    sherd_options options = SHERD_OPTIONS_INIT;
    options.rank = 0;
    cr_assert_eq(sherd_options_from_env(&options), SHERD_OK);
    cr_assert_eq(options.world_size, 1);
    cr_assert_null(options.rendezvous);
}

Test(env, a_complete_set_gives_rank_world_size_and_a_name) {
    set_all();
    sherd_options options = SHERD_OPTIONS_INIT;
    cr_assert_eq(sherd_options_from_env(&options), SHERD_OK, "%s", sherd_last_error());
    cr_assert_eq(options.rank, 2);
    cr_assert_eq(options.world_size, 4);
    cr_assert_not_null(options.rendezvous);
    cr_assert_eq(options.stage, 3, "other options stay as they were");
}

Test(env, every_variable_of_the_set_is_needed_and_named) {
    for (int v = 0; v < VARIABLES; v++) {
        set_all();
        unsetenv(variables[v]);
        sherd_options options = SHERD_OPTIONS_INIT;
        cr_assert_eq(sherd_options_from_env(&options), SHERD_CONFIG, "without %s", variables[v]);
        cr_assert(strstr(sherd_last_error(), variables[v]));
        cr_assert_eq(options.world_size, 1);
        cr_assert_null(options.rendezvous);
    }
}

Test(env, numbers_must_be_plain_decimals_in_range) {
    static const char *const bad[][2] = {
        {"RANK", "4"},
        {"RANK", "-1"},
        {"RANK", "+1"},
        {"RANK", " 1"},
        {"RANK", "1 "},
        {"RANK", ""},
        {"RANK", "0x1"},
        {"RANK", "01"},
        {"RANK", "1e0"},
        {"WORLD_SIZE", "0"},
        {"WORLD_SIZE", "99999999999999999999"},
        {"WORLD_SIZE", "2147483648"},
        {"LOCAL_RANK", "4"},
        {"LOCAL_WORLD_SIZE", "0"},
        {"LOCAL_WORLD_SIZE", "5"},
        {"MASTER_PORT", "65536"},
        {"MASTER_PORT", "0"},
        {"MASTER_ADDR", ""},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        set_all();
        setenv(bad[i][0], bad[i][1], 1);
        sherd_options options = SHERD_OPTIONS_INIT;
        cr_assert_eq(sherd_options_from_env(&options), SHERD_CONFIG, "%s='%s'", bad[i][0], bad[i][1]);
        cr_assert(strstr(sherd_last_error(), bad[i][0]), "%s", sherd_last_error());
    }
}

Test(env, ranks_on_several_hosts_are_refused_for_now) {
    set_all();
    setenv("LOCAL_WORLD_SIZE", "2", 1);
    setenv("LOCAL_RANK", "0", 1);
    sherd_options options = SHERD_OPTIONS_INIT;
    cr_assert_eq(sherd_options_from_env(&options), SHERD_CONFIG);
    cr_assert(strstr(sherd_last_error(), "on one host"));
}

Test(env, jobs_and_attempts_get_names_of_their_own_and_ranks_the_same) {
    static const char *const changes[][2] = {{"MASTER_PORT", "29501"},
                                             {"MASTER_ADDR", "127.0.0.2"},
                                             {"TORCHELASTIC_RUN_ID", "other"},
                                             {"TORCHELASTIC_RESTART_COUNT", "1"}};
    char first[256], other[256];
    set_all();
    name_now(first);
    setenv("RANK", "0", 1);
    setenv("LOCAL_RANK", "0", 1);
    cr_assert_str_eq(name_now(other), first);
    for (int c = 0; c < 4; c++) {
        set_all();
        setenv(changes[c][0], changes[c][1], 1);
        cr_assert_str_neq(name_now(other), first, "%s", changes[c][0]);
    }
    set_all();
    char long_address[400];
    memset(long_address, 'a', sizeof long_address);
    long_address[399] = 0;
    setenv("MASTER_ADDR", long_address, 1);
    name_now(first);
    long_address[398] = 'b';
    setenv("MASTER_ADDR", long_address, 1);
    cr_assert_str_neq(name_now(other), first);
}

Test(env, options_must_start_from_their_initialiser) {
    sherd_options options = {0};
    cr_assert_eq(sherd_options_from_env(&options), SHERD_ARGUMENT);
    cr_assert_eq(sherd_options_from_env(NULL), SHERD_ARGUMENT);
}
