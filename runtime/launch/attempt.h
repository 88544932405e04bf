/* One attempt at a job, on this host: its ranks started, watched, and gone again. */
#ifndef SHD_LAUNCH_ATTEMPT_H
#define SHD_LAUNCH_ATTEMPT_H

#include "runtime/launch/descriptors.h"
#include "runtime/launch/launch.h"
#include "runtime/launch/nodes.h"
#include "runtime/launch/signals.h"
#include "runtime/launch/variables.h"

/* Starts the host's ranks at their place and returns when all, and what they have left in their process groups, are
 * gone; with `nodes` (NULL: there is one), when the attempt is over on all of them. Signals of `signals`, which the
 * caller watches, are passed on; ranks have the limit that `descriptors` knows. Fails as shd_launch_run; *report is
 * set in every case. */
sherd_status shd_attempt_run(const shd_launch *launch, const shd_launch_place *place, const shd_signals *signals,
                             const shd_descriptors *descriptors, shd_nodes *nodes, shd_launch_report *report);

#endif
