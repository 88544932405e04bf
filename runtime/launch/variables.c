#include "runtime/launch/variables.h"

#include "runtime/base/memory.h"
#include "runtime/base/status.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern char **environ;

/* What an outer launcher may have set, and what would be wrong in its ranks' ranks; and what is the launcher's alone. */
static const char *const withheld[] = {"TORCHELASTIC_USE_AGENT_STORE", "TORCHELASTIC_ERROR_FILE", SHD_VARIABLES_SECRET};

static bool is_named(const char *entry, const char *name) {
    size_t length = strlen(name);
    return !strncmp(entry, name, length) && entry[length] == '=';
}

static bool is_withheld(const char *entry) {
    for (size_t i = 0; i < sizeof withheld / sizeof *withheld; i++)
        if (is_named(entry, withheld[i])) return true;
    return false;
}

/* The index of the own variable `name`, or own_count. */
static int find_own(const shd_variables *variables, const char *name) {
    int index = 0;
    while (index < variables->own_count && !is_named(variables->own[index], name)) index++;
    return index;
}

/* The list is made anew when an own variable comes to be: an inherited one of its name goes. */
static sherd_status list_all(shd_variables *variables) {
    size_t inherited = 0;
    while (environ[inherited]) inherited++;
    char **list = shd_alloc(inherited + SHD_VARIABLES_MAX + 1, sizeof *list);
    if (!list) return shd_fail(SHERD_MEMORY, "no memory for the environment of the ranks");
    size_t count = 0;
    for (int i = 0; i < variables->own_count; i++) list[count++] = variables->own[i];
    for (size_t i = 0; i < inherited; i++) {
        char name[128];
        size_t length = strcspn(environ[i], "=");
        snprintf(name, sizeof name, "%.*s", (int)(length < sizeof name ? length : sizeof name - 1), environ[i]);
        bool own = length < sizeof name && find_own(variables, name) < variables->own_count;
        if (!own && !is_withheld(environ[i])) list[count++] = environ[i];
    }
    list[count] = NULL;
    shd_free(variables->environment);
    variables->environment = list;
    return SHERD_OK;
}

sherd_status shd_variables_set(shd_variables *variables, const char *name, const char *value) {
    int index = find_own(variables, name);
    if (index == SHD_VARIABLES_MAX) return shd_fail(SHERD_INTERNAL, "no room for the variable %s of the ranks", name);
    size_t bytes = strlen(name) + strlen(value) + 2;
    char *text = shd_alloc(bytes, 1);
    if (!text) return shd_fail(SHERD_MEMORY, "no memory for the environment of the ranks");
    snprintf(text, bytes, "%s=%s", name, value);
    bool is_new = index == variables->own_count;
    if (!is_new) shd_free(variables->own[index]);
    variables->own[index] = text;
    if (!is_new) {
        if (variables->environment) variables->environment[index] = text;
        return SHERD_OK;
    }
    variables->own_count++;
    return variables->environment ? list_all(variables) : SHERD_OK;
}

static sherd_status set_number(shd_variables *variables, const char *name, long value) {
    char text[24];
    snprintf(text, sizeof text, "%ld", value);
    return shd_variables_set(variables, name, text);
}

sherd_status shd_variables_take_rank(shd_variables *variables, int32_t local_rank) {
    int32_t rank = variables->place.first_rank + local_rank;
    SHD_TRY(set_number(variables, "RANK", rank));
    SHD_TRY(set_number(variables, "LOCAL_RANK", local_rank));
    return set_number(variables, "ROLE_RANK", rank);
}

static sherd_status set_shared(shd_variables *variables, const shd_launch_place *place) {
    SHD_TRY(set_number(variables, "WORLD_SIZE", place->world_size));
    SHD_TRY(set_number(variables, "LOCAL_WORLD_SIZE", place->local_count));
    SHD_TRY(set_number(variables, "GROUP_RANK", place->node));
    SHD_TRY(set_number(variables, "GROUP_WORLD_SIZE", place->node_count));
    SHD_TRY(set_number(variables, "ROLE_WORLD_SIZE", place->world_size));
    SHD_TRY(shd_variables_set(variables, "ROLE_NAME", place->role));
    SHD_TRY(shd_variables_set(variables, "MASTER_ADDR", place->master_address));
    SHD_TRY(set_number(variables, "MASTER_PORT", place->master_port));
    SHD_TRY(shd_variables_set(variables, "TORCHELASTIC_RUN_ID", place->run_id));
    SHD_TRY(set_number(variables, "TORCHELASTIC_RESTART_COUNT", place->attempt));
    SHD_TRY(set_number(variables, "TORCHELASTIC_MAX_RESTARTS", place->max_restarts));
    /* A process group whose peer is lost then fails instead of waiting; torchrun sets it too. */
    if (!getenv("TORCH_NCCL_ASYNC_ERROR_HANDLING"))
        SHD_TRY(shd_variables_set(variables, "TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"));
    if (place->local_count > 1 && !getenv("OMP_NUM_THREADS"))
        SHD_TRY(shd_variables_set(variables, "OMP_NUM_THREADS", "1"));
    return SHERD_OK;
}

sherd_status shd_variables_init(shd_variables *variables, const shd_launch_place *place) {
    *variables = (shd_variables){.place = *place};
    sherd_status status = set_shared(variables, place);
    if (status == SHERD_OK) status = shd_variables_take_rank(variables, 0);
    if (status == SHERD_OK) status = list_all(variables);
    if (status != SHERD_OK) shd_variables_fini(variables);
    return status;
}

void shd_variables_fini(shd_variables *variables) {
    for (int i = 0; i < variables->own_count; i++) shd_free(variables->own[i]);
    shd_free(variables->environment);
    *variables = (shd_variables){0};
}
