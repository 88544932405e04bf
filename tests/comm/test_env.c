#include <sherd/log.h>
#include <sherd/options.h>
#include <sherd/status.h>

#include "runtime/comm/nccl_env.h"

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

/* Rank 1 of 3, as other launchers tell it; the last variables name the job. */
typedef struct foreign {
    const char *launcher;
    const char *names[6], *values[6];
    int count;
} foreign;

static const foreign others[] = {
    {"Open MPI",
     {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE",
      "PMIX_NAMESPACE"},
     {"1", "3", "1", "3", "4711"},
     5},
    {"Open MPI",
     {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE",
      "OMPI_MCA_ess_base_jobid"},
     {"1", "3", "1", "3", "4711"},
     5},
    {"MPICH", {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"}, {"1", "3", "1", "3"}, 4},
    {"Slurm",
     {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_STEP_NUM_NODES", "SLURM_JOB_ID", "SLURM_STEP_ID"},
     {"1", "3", "1", "1", "17", "0"},
     6},
};
enum { OTHERS = sizeof others / sizeof *others };

static void clear_others(void) {
    for (int o = 0; o < OTHERS; o++)
        for (int v = 0; v < others[o].count; v++) unsetenv(others[o].names[v]);
}

static void set_other(const foreign *other) {
    clear_all();
    clear_others();
    for (int v = 0; v < other->count; v++) setenv(other->names[v], other->values[v], 1);
}

Test(env, complete_sets_of_mpi_and_slurm_give_a_place) {
    for (int o = 0; o < OTHERS; o++) {
        sherd_options options = SHERD_OPTIONS_INIT;
        set_other(&others[o]);
        cr_assert_str_eq(sherd_launcher_from_env(), others[o].launcher);
        cr_assert_eq(sherd_options_from_env(&options), SHERD_OK, "%s", sherd_last_error());
        cr_assert_eq(options.rank, 1);
        cr_assert_eq(options.world_size, 3);
        cr_assert_not_null(options.rendezvous);
    }
}

Test(env, a_part_of_such_a_set_changes_nothing) {
    for (int o = 0; o < OTHERS; o++)
        for (int v = 0; v < others[o].count; v++) {
            sherd_options options = SHERD_OPTIONS_INIT;
            set_other(&others[o]);
            unsetenv(others[o].names[v]);
            cr_assert_null(sherd_launcher_from_env(), "%s without %s", others[o].launcher, others[o].names[v]);
            cr_assert_eq(sherd_options_from_env(&options), SHERD_OK);
            cr_assert_eq(options.world_size, 1);
            cr_assert_null(options.rendezvous);
        }
}

Test(env, such_a_set_that_makes_no_sense_or_tells_of_one_rank_changes_nothing) {
    static const char *const bad[][2] = {{"3", "3"}, {"-1", "3"}, {"x", "3"}, {"0", "0"}, {"0", ""}, {"0", "1"}};
    for (int o = 0; o < OTHERS; o++)
        for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
            sherd_options options = SHERD_OPTIONS_INIT;
            set_other(&others[o]);
            setenv(others[o].names[0], bad[i][0], 1);
            setenv(others[o].names[1], bad[i][1], 1);
            cr_assert_null(sherd_launcher_from_env(), "%s: rank %s of %s", others[o].launcher, bad[i][0], bad[i][1]);
            cr_assert_eq(sherd_options_from_env(&options), SHERD_OK);
            cr_assert_eq(options.world_size, 1);
        }
}

Test(env, the_innermost_launcher_counts) {
    sherd_options options = SHERD_OPTIONS_INIT;
    for (int o = OTHERS; o-- > 0;) { /* the later in the list, the further out */
        for (int v = 0; v < others[o].count; v++) setenv(others[o].names[v], others[o].values[v], 1);
        cr_assert_str_eq(sherd_launcher_from_env(), others[o].launcher);
    }
    set_all();
    cr_assert_str_eq(sherd_launcher_from_env(), "torchrun");
    cr_assert_eq(sherd_options_from_env(&options), SHERD_OK);
    cr_assert_eq(options.world_size, 4);
}

Test(env, ranks_on_several_hosts_need_a_backend_that_is_named) {
    for (int o = 0; o < OTHERS; o++) {
        sherd_options options = SHERD_OPTIONS_INIT;
        set_other(&others[o]);
        if (strcmp(others[o].launcher, "Slurm") == 0)
            setenv("SLURM_STEP_NUM_NODES", "2", 1);
        else
            setenv(others[o].names[3], "2", 1);
        cr_assert_eq(sherd_options_from_env(&options), SHERD_CONFIG);
        cr_assert(strstr(sherd_last_error(), "NCCL") && strstr(sherd_last_error(), others[o].launcher));
    }
}

Test(env, jobs_of_mpi_and_slurm_have_names_of_their_own) {
    char first[256], other[256];
    for (int o = 0; o < OTHERS; o++) {
        set_other(&others[o]);
        name_now(first);
        setenv(others[o].names[0], "0", 1);
        setenv(others[o].names[2], "0", 1);
        cr_assert_str_eq(name_now(other), first, "%s: ranks of a job", others[o].launcher);
        for (int v = 4; v < others[o].count; v++) {
            set_other(&others[o]);
            setenv(others[o].names[v], "99", 1);
            cr_assert_str_neq(name_now(other), first, "%s", others[o].names[v]);
        }
    }
    set_other(&others[OTHERS - 1]);
    setenv("SLURM_RESTART_COUNT", "1", 1);
    cr_assert_str_neq(name_now(other), first);
    unsetenv("SLURM_RESTART_COUNT");
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

Test(env, nccl_gets_the_order_of_kernels_unless_the_user_has_set_it_so_already) {
    unsetenv("NCCL_LAUNCH_ORDER_IMPLICIT");
    cr_assert_eq(shd_nccl_ready_environment(true), SHERD_OK);
    cr_assert_str_eq(getenv("NCCL_LAUNCH_ORDER_IMPLICIT"), "1");
    cr_assert_eq(shd_nccl_ready_environment(true), SHERD_OK);
}

Test(env, what_would_lock_nccl_up_is_refused_and_named) {
    setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "0", 1);
    cr_assert_eq(shd_nccl_ready_environment(false), SHERD_CONFIG);
    cr_assert(strstr(sherd_last_error(), "NCCL_LAUNCH_ORDER_IMPLICIT is '0'"), "%s", sherd_last_error());
    cr_assert_str_eq(getenv("NCCL_LAUNCH_ORDER_IMPLICIT"), "0");
    unsetenv("NCCL_LAUNCH_ORDER_IMPLICIT");
    setenv("NCCL_COMM_BLOCKING", "1", 1);
    cr_assert_eq(shd_nccl_ready_environment(false), SHERD_CONFIG);
    cr_assert(strstr(sherd_last_error(), "NCCL_COMM_BLOCKING is set"), "%s", sherd_last_error());
    unsetenv("NCCL_COMM_BLOCKING");
}

static int told;
static void tell(void *cookie, sherd_log_level level, const char *line) {
    (void)cookie;
    if (level == SHERD_LOG_INFO && strstr(line, "NCCL_DEBUG=WARN")) told++;
}

Test(env, users_variables_of_nccl_are_told_once) {
    setenv("NCCL_DEBUG", "WARN", 1);
    sherd_log_set(tell, NULL, SHERD_LOG_INFO);
    cr_assert_eq(shd_nccl_ready_environment(true), SHERD_OK);
    cr_assert_eq(shd_nccl_ready_environment(false), SHERD_OK);
    cr_assert_eq(told, 1);
    unsetenv("NCCL_DEBUG");
}
