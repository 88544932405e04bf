#include "optim/rules.h"

#include "runtime/base/pattern.h"
#include "runtime/base/status.h"

#include <math.h>
#include <stdio.h>

/* Values end in float32: what overflows there is refused. */
static bool fits_float(double value) { return value <= 3.4e38; }

static sherd_status check_group(const sherd_optimizer *optimizer, int32_t index) {
    const sherd_optimizer_group *group = &optimizer->groups[index];
    if (!group->match || !*group->match)
        return shd_fail(SHERD_CONFIG, "optimizer.groups[%d].match is missing; it must be a pattern of tensor names",
                        index);
    if (!(group->lr_factor >= 0) || !fits_float(optimizer->lr * group->lr_factor))
        return shd_fail(SHERD_CONFIG,
                        "optimizer.groups[%d].lr_factor is %g; it must be 0 or more, and with optimizer.lr finite in "
                        "float32",
                        index, group->lr_factor);
    if (isnan(group->weight_decay) || !fits_float(group->weight_decay))
        return shd_fail(SHERD_CONFIG,
                        "optimizer.groups[%d].weight_decay is %g; it must be 0 or more, and finite in float32, or "
                        "negative for none of its own",
                        index, group->weight_decay);
    if ((int)group->optimizer < SHERD_GROUP_AUTO || group->optimizer > SHERD_GROUP_MUON)
        return shd_fail(SHERD_CONFIG,
                        "optimizer.groups[%d].optimizer has the unknown value %d; it must be auto, adamw or muon",
                        index, (int)group->optimizer);
    if (group->optimizer != SHERD_GROUP_AUTO && optimizer->kind != SHERD_MUON)
        return shd_fail(SHERD_CONFIG,
                        "optimizer.groups[%d].optimizer is %s, but only with optimizer.name muon can groups choose; "
                        "take auto",
                        index, group->optimizer == SHERD_GROUP_MUON ? "muon" : "adamw");
    return SHERD_OK;
}

sherd_status shd_tensor_rules_check(const sherd_optimizer *optimizer) {
    if ((int)optimizer->decay < SHERD_DECAY_MATRICES || optimizer->decay > SHERD_DECAY_PATTERNS)
        return shd_fail(SHERD_CONFIG,
                        "optimizer.decay has the unknown value %d; it must be matrices, all, none or patterns",
                        (int)optimizer->decay);
    if (optimizer->decay_pattern_count < 0 || (optimizer->decay_pattern_count > 0 && !optimizer->decay_patterns))
        return shd_fail(SHERD_CONFIG, "optimizer.decay has %d patterns and %s list of them",
                        optimizer->decay_pattern_count, optimizer->decay_patterns ? "a" : "no");
    if (!(optimizer->layer_lr_decay > 0) || !(optimizer->layer_lr_decay <= 1))
        return shd_fail(SHERD_CONFIG, "optimizer.layer_lr_decay is %g; it must be above 0 and at most 1",
                        optimizer->layer_lr_decay);
    if (optimizer->group_count < 0 || (optimizer->group_count > 0 && !optimizer->groups))
        return shd_fail(SHERD_CONFIG, "optimizer.groups has %d groups and %s list of them", optimizer->group_count,
                        optimizer->groups ? "a" : "no");
    for (int32_t g = 0; g < optimizer->group_count; g++) SHD_TRY(check_group(optimizer, g));
    return SHERD_OK;
}

/* The first group that matches, -1 for none. */
static int32_t find_group(const sherd_optimizer *optimizer, const char *name) {
    for (int32_t g = 0; g < optimizer->group_count; g++)
        if (shd_pattern_matches(optimizer->groups[g].match, name)) return g;
    return -1;
}

static bool decays(const sherd_optimizer *optimizer, const sherd_tensor *tensor) {
    if (optimizer->decay == SHERD_DECAY_MATRICES) return tensor->dim_count >= 2;
    if (optimizer->decay != SHERD_DECAY_PATTERNS) return optimizer->decay == SHERD_DECAY_ALL;
    for (int32_t p = 0; p < optimizer->decay_pattern_count; p++)
        if (shd_pattern_matches(optimizer->decay_patterns[p], tensor->name)) return true;
    return false;
}

static shd_tensor_rule make_rule(const sherd_optimizer *optimizer, const sherd_tensor *tensor, double layer_factor) {
    shd_tensor_rule rule = {.lr_factor = layer_factor,
                            .weight_decay = decays(optimizer, tensor) ? optimizer->weight_decay : 0};
    int32_t index = find_group(optimizer, tensor->name);
    if (index < 0) return rule;
    const sherd_optimizer_group *group = &optimizer->groups[index];
    rule.lr_factor *= group->lr_factor;
    if (group->weight_decay >= 0) rule.weight_decay = group->weight_decay;
    return rule;
}

static bool has_elements(const sherd_tensor *tensor) {
    for (int32_t i = 0; i < tensor->dim_count; i++)
        if (tensor->shape[i] == 0) return false;
    return true;
}

/* Embeddings and the output layer are no hidden layers: what they map from or to are tokens, one by one. */
static sherd_status choose_whole(const sherd_optimizer *optimizer, const sherd_tensor *tensor, bool hidden,
                                 bool *whole) {
    *whole = false;
    if (optimizer->kind != SHERD_MUON && optimizer->kind != SHERD_ADAFACTOR) return SHERD_OK;
    int32_t index = find_group(optimizer, tensor->name);
    sherd_group_optimizer chosen = index < 0 ? SHERD_GROUP_AUTO : optimizer->groups[index].optimizer;
    bool matrix = tensor->dim_count == 2;
    if (chosen == SHERD_GROUP_MUON && !matrix)
        return shd_fail(SHERD_CONFIG,
                        "optimizer.groups[%d].optimizer is muon, but \"%s\" has %d dimension%s, and muon is for "
                        "matrices; give it a group before this one",
                        index, tensor->name, tensor->dim_count, tensor->dim_count == 1 ? "" : "s");
    bool muon = chosen == SHERD_GROUP_AUTO ? hidden && matrix : chosen == SHERD_GROUP_MUON;
    *whole = !tensor->frozen && has_elements(tensor) && (muon || optimizer->kind == SHERD_ADAFACTOR);
    return SHERD_OK;
}

static bool matches_any(const char *pattern, const sherd_model *model) {
    for (int32_t t = 0; t < model->tensor_count; t++)
        if (shd_pattern_matches(pattern, model->tensors[t].name)) return true;
    return false;
}

static sherd_status check_patterns_match(const sherd_optimizer *optimizer, const sherd_model *model) {
    for (int32_t p = 0; optimizer->decay == SHERD_DECAY_PATTERNS && p < optimizer->decay_pattern_count; p++)
        if (!matches_any(optimizer->decay_patterns[p], model))
            return shd_pattern_fail("optimizer.decay", optimizer->decay_patterns[p], model->tensors,
                                    model->tensor_count);
    return SHERD_OK;
}

/* A group whose tensors all belong to groups before it does nothing, and was meant to. */
static sherd_status check_groups_match(const sherd_optimizer *optimizer, const sherd_model *model) {
    for (int32_t g = 0; g < optimizer->group_count; g++) {
        const char *match = optimizer->groups[g].match;
        char key[48];
        snprintf(key, sizeof key, "optimizer.groups[%d].match", g);
        if (!matches_any(match, model)) return shd_pattern_fail(key, match, model->tensors, model->tensor_count);
        bool taken = true;
        for (int32_t t = 0; t < model->tensor_count; t++) taken &= find_group(optimizer, model->tensors[t].name) != g;
        if (taken)
            return shd_fail(SHERD_CONFIG,
                            "%s: \"%s\" matches only what groups before it have; the first group that matches counts, "
                            "so put it before them",
                            key, match);
    }
    return SHERD_OK;
}

sherd_status shd_tensor_rules_resolve(const sherd_optimizer *optimizer, const sherd_model *model,
                                      shd_tensor_rule *rules) {
    SHD_TRY(check_patterns_match(optimizer, model));
    SHD_TRY(check_groups_match(optimizer, model));
    bool whole = false;
    for (int32_t u = 0; u < model->unit_count; u++) {
        const sherd_unit *unit = &model->units[u];
        double layer_factor = pow(optimizer->layer_lr_decay, model->unit_count - 1 - u);
        for (int32_t t = unit->first_tensor; t < unit->first_tensor + unit->tensor_count; t++) {
            rules[t] = make_rule(optimizer, &model->tensors[t], layer_factor);
            bool hidden = u > 0 && u < model->unit_count - 1;
            SHD_TRY(choose_whole(optimizer, &model->tensors[t], hidden, &rules[t].whole));
            whole |= rules[t].whole;
        }
    }
    if (optimizer->kind == SHERD_MUON && !whole)
        return shd_fail(SHERD_CONFIG,
                        "optimizer.name is muon, but no matrix between the first and the last unit is trained; take "
                        "adamw, or give it matrices in optimizer.groups");
    return SHERD_OK;
}
