/* sherd: train models whose parameters, gradients and optimizer state are split over data-parallel ranks.
 *
 * Include this header alone; it includes the rest. A trainer with its own loop does:
 *
 *     sherd_options options = SHERD_OPTIONS_INIT;
 *     sherd_options_from_env(&options);              // rank and world size, as torchrun and `sherd run` export them
 *     options.stage = 3;
 *     sherd_session_create(&options, &model, &session);
 *     sherd_session_fill(session, initial_values, mine);
 *     for (each step) {
 *         sherd_step_begin(session, my_target_count);
 *         for (each micro-batch) {
 *             for (u = 0; u < units; u++) {
 *                 sherd_forward_begin(session, u, &view);
 *                 ... reads view.parameters[tensor] ...
 *                 sherd_forward_end(session, u);
 *             }
 *             sherd_add_loss(session, losses, count);    // one term a target, in double, neither averaged nor scaled
 *             for (u = units; u-- > 0;) {
 *                 sherd_backward_begin(session, u, &view);
 *                 ... writes view.gradients[tensor]: those of the summed loss times view.loss_scale ...
 *                 sherd_backward_end(session, u);
 *             }
 *         }
 *         sherd_step(session, &result);
 *     }
 *     sherd_session_destroy(session);
 *
 * Every call returns a status; sherd_last_error() says what happened. loss_scale is 1 ÷ the targets of all ranks, so a
 * backward pass starts with dloss = view.loss_scale, once, at the loss. examples/01_own_loop.c is such a trainer, whole.
 * In C++ parameters and activations need a cast: auto w = static_cast<const float *>(view.parameters[0]).
 */
#ifndef SHERD_SHERD_H
#define SHERD_SHERD_H

#include <sherd/dtype.h>
#include <sherd/log.h>
#include <sherd/model.h>
#include <sherd/options.h>
#include <sherd/session.h>
#include <sherd/status.h>
#include <sherd/version.h>

#endif
