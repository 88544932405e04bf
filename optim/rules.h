/* What every tensor has of its own: resolved once, from decay, groups and layer_lr_decay, so that an update need not
 * ask for names. The same on every rank and at every stage. Layer-wise learning rates as in Clark et al.: "ELECTRA",
 * ICLR 2020, a unit being a layer. */
#ifndef SHD_OPTIM_RULES_H
#define SHD_OPTIM_RULES_H

#include <sherd/model.h>
#include <sherd/options.h>

typedef struct shd_tensor_rule {
    double lr_factor; /* multiplies the schedule's learning rate */
    double weight_decay;
    bool whole; /* its step needs all of it at once: whole.h */
} shd_tensor_rule;

/* Checks the values of groups and patterns, not yet whether they match.
 * Fails: CONFIG, naming the field as the job file does ("optimizer.groups[1].lr_factor is -1; …"). */
sherd_status shd_tensor_rules_check(const sherd_optimizer *optimizer);

/* Fills rules[model->tensor_count]; frozen tensors have rules too, which nobody follows. `optimizer` and `model` are
 * checked. Whole are Adafactor's tensors, and those Muon takes: matrices of units other than the first and the last, and
 * what groups give it; frozen tensors and those without elements never are.
 * Fails: CONFIG, when a pattern or group is left without a tensor, or Muon without a matrix, or when a group gives Muon
 * a tensor that is no matrix: it is named. */
sherd_status shd_tensor_rules_resolve(const sherd_optimizer *optimizer, const sherd_model *model,
                                      shd_tensor_rule *rules);

#endif
