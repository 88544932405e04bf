#include "runtime/cli/placement.h"

#include <sherd/status.h>
#include <stdlib.h>
#include <string.h>

bool shd_placement_take(const shd_command *command, const char *value, shd_affinity_choice *out) {
    static const char *const words[] = {
        [SHD_AFFINITY_NONE] = "none", [SHD_AFFINITY_AUTO] = "auto", [SHD_AFFINITY_CORES] = "cores"};
    for (int i = 0; i < (int)(sizeof words / sizeof *words); i++)
        if (!strcmp(value, words[i])) {
            *out = (shd_affinity_choice)i;
            return true;
        }
    shd_usage_error(command, "--affinity %.40s: none, auto or cores is needed", value);
    return false;
}

void shd_placement_make(shd_affinity_choice choice, bool gpus, shd_launch *launch, shd_affinity *affinity) {
    const shd_affinity_source here = {.gpus = gpus};
    char text[320];
    *affinity = (shd_affinity){0};
    if (shd_affinity_init(affinity, choice, launch->rank_count, &here) != SHERD_OK) {
        shd_say_error("warning: ranks are not bound to cores: %s", sherd_last_error());
        return;
    }
    affinity->sets_threads = launch->rank_count > 1 && !getenv("OMP_NUM_THREADS");
    launch->affinity = affinity;
    if (!affinity->masks && !(affinity->sets_threads && affinity->threads > 1)) return;
    shd_affinity_text(affinity, text, sizeof text);
    shd_say_error("%s", text);
}
