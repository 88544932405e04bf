/* Where ranks run: --affinity. */
#ifndef SHD_CLI_PLACEMENT_H
#define SHD_CLI_PLACEMENT_H

#include "runtime/cli/options.h"
#include "runtime/launch/affinity.h"
#include "runtime/launch/launch.h"

/* False, with what is wrong said, for a value that is none. */
bool shd_placement_take(const shd_command *command, const char *value, shd_affinity_choice *out);
/* Fills *affinity for the ranks of *launch, which borrows it, and says what is not the usual: ranks that are bound, more
 * threads than one. `gpus`: ranks may use GPUs, and are put near them. Where the machine cannot be looked at, which is
 * said too, ranks run where this process may. */
void shd_placement_make(shd_affinity_choice choice, bool gpus, shd_launch *launch, shd_affinity *affinity);

#endif
