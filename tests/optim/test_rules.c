#include "optim/optimizer.h"
#include "optim/rules.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Four units: an embedding, two blocks, a head. */
static const sherd_tensor tensors[] = {
    {.name = "wte.weight", .dim_count = 2, .shape = {8, 4}},
    {.name = "wpe.weight", .dim_count = 2, .shape = {8, 4}},
    {.name = "h.0.ln.weight", .dim_count = 1, .shape = {4}},
    {.name = "h.0.fc.weight", .dim_count = 2, .shape = {4, 4}},
    {.name = "h.0.fc.bias", .dim_count = 1, .shape = {4}},
    {.name = "h.1.ln.weight", .dim_count = 1, .shape = {4}},
    {.name = "h.1.fc.weight", .dim_count = 2, .shape = {4, 4}},
    {.name = "h.1.fc.bias", .dim_count = 1, .shape = {4}},
    {.name = "ln_f.weight", .dim_count = 1, .shape = {4}},
    {.name = "scale", .dim_count = 0},
};
enum { WTE, WPE, LN_0, FC_0, BIAS_0, LN_1, FC_1, BIAS_1, LN_F, SCALE, TENSORS };
static const sherd_unit units[] = {
    {.name = "embedding", .first_tensor = WTE, .tensor_count = 2},
    {.name = "block 0", .first_tensor = LN_0, .tensor_count = 3},
    {.name = "block 1", .first_tensor = LN_1, .tensor_count = 3},
    {.name = "head", .first_tensor = LN_F, .tensor_count = 2},
};
static const sherd_model model = {
    .size = sizeof model, .units = units, .unit_count = 4, .tensors = tensors, .tensor_count = TENSORS};

static sherd_optimizer start(void) {
    sherd_optimizer optimizer = SHERD_OPTIMIZER_INIT;
    optimizer.weight_decay = 0.5;
    return optimizer;
}

static void expect_rules(const sherd_optimizer *optimizer, const shd_tensor_rule expected[TENSORS]) {
    shd_tensor_rule rules[TENSORS];
    cr_assert_eq(shd_optimizer_check(optimizer), SHERD_OK, "%s", sherd_last_error());
    cr_assert_eq(shd_tensor_rules_resolve(optimizer, &model, rules), SHERD_OK, "%s", sherd_last_error());
    for (int t = 0; t < TENSORS; t++) {
        cr_expect_float_eq(rules[t].lr_factor, expected[t].lr_factor, 1e-15, "%s: factor %.17g, not %.17g",
                           tensors[t].name, rules[t].lr_factor, expected[t].lr_factor);
        cr_expect_eq(rules[t].weight_decay, expected[t].weight_decay, "%s: decay %g, not %g", tensors[t].name,
                     rules[t].weight_decay, expected[t].weight_decay);
    }
}

Test(rules, weight_decay_touches_what_it_is_told_to) {
    sherd_optimizer optimizer = start();
    const shd_tensor_rule yes = {1, 0.5}, no = {1, 0};
    expect_rules(&optimizer, (const shd_tensor_rule[TENSORS]){yes, yes, no, yes, no, no, yes, no, no, no});
    optimizer.decay = SHERD_DECAY_ALL;
    expect_rules(&optimizer, (const shd_tensor_rule[TENSORS]){yes, yes, yes, yes, yes, yes, yes, yes, yes, yes});
    optimizer.decay = SHERD_DECAY_NONE;
    expect_rules(&optimizer, (const shd_tensor_rule[TENSORS]){no, no, no, no, no, no, no, no, no, no});
    optimizer.decay = SHERD_DECAY_PATTERNS;
    expect_rules(&optimizer, (const shd_tensor_rule[TENSORS]){no, no, no, no, no, no, no, no, no, no});
    optimizer.decay_patterns = (const char *const[]){"h.?.fc.*", "scale", "*.0.*"};
    optimizer.decay_pattern_count = 3;
    expect_rules(&optimizer, (const shd_tensor_rule[TENSORS]){no, no, yes, yes, yes, no, yes, yes, no, yes});
}

Test(rules, a_tensor_has_the_first_group_that_matches_it) {
    sherd_optimizer optimizer = start();
    sherd_optimizer_group groups[3] = {SHERD_OPTIMIZER_GROUP_INIT, SHERD_OPTIMIZER_GROUP_INIT,
                                       SHERD_OPTIMIZER_GROUP_INIT};
    groups[0].match = "h.1.*";
    groups[0].lr_factor = 0.25;
    groups[1].match = "*.bias"; /* that of block 1 is taken */
    groups[1].weight_decay = 0.125;
    groups[2].match = "w[tp]e.weight";
    groups[2].lr_factor = 0;
    groups[2].weight_decay = 0;
    optimizer.groups = groups;
    optimizer.group_count = 3;
    const shd_tensor_rule embedding = {0, 0}, plain = {1, 0}, matrix = {1, 0.5};
    expect_rules(&optimizer,
                 (const shd_tensor_rule[TENSORS]){
                     embedding, embedding, plain, matrix, {1, 0.125}, {0.25, 0}, {0.25, 0.5}, {0.25, 0}, plain, plain});
}

/* A group that says nothing is an exception to those after it. */
Test(rules, a_group_can_keep_tensors_from_later_ones) {
    sherd_optimizer optimizer = start();
    sherd_optimizer_group groups[2] = {SHERD_OPTIMIZER_GROUP_INIT, SHERD_OPTIMIZER_GROUP_INIT};
    groups[0].match = "*.weight";
    groups[1].match = "*";
    groups[1].lr_factor = 3;
    optimizer.decay = SHERD_DECAY_ALL;
    optimizer.groups = groups;
    optimizer.group_count = 2;
    const shd_tensor_rule kept = {1, 0.5}, other = {3, 0.5};
    expect_rules(&optimizer,
                 (const shd_tensor_rule[TENSORS]){kept, kept, kept, kept, other, kept, kept, other, kept, other});
}

Test(rules, layers_learn_more_slowly_the_more_lie_above_them) {
    sherd_optimizer optimizer = start();
    sherd_optimizer_group group = SHERD_OPTIMIZER_GROUP_INIT;
    group.match = "wpe.*";
    group.lr_factor = 2;
    optimizer.decay = SHERD_DECAY_NONE;
    optimizer.layer_lr_decay = 0.5;
    optimizer.groups = &group;
    optimizer.group_count = 1;
    const shd_tensor_rule low = {0.25, 0}, high = {0.5, 0}, head = {1, 0};
    expect_rules(&optimizer,
                 (const shd_tensor_rule[TENSORS]){{0.125, 0}, {0.25, 0}, low, low, low, high, high, high, head, head});
}

static void refused(const sherd_optimizer *optimizer, const char *says) {
    shd_tensor_rule rules[TENSORS];
    sherd_status status = shd_optimizer_check(optimizer);
    if (status == SHERD_OK) status = shd_tensor_rules_resolve(optimizer, &model, rules);
    cr_assert_eq(status, SHERD_CONFIG, "accepted, where it should say: %s", says);
    cr_assert_str_eq(sherd_last_error(), says);
}

Test(rules, a_pattern_that_is_left_without_a_tensor_is_refused_by_name) {
    sherd_optimizer optimizer = start();
    optimizer.decay = SHERD_DECAY_PATTERNS;
    optimizer.decay_patterns = (const char *const[]){"wte.*", "wte"};
    optimizer.decay_pattern_count = 2;
    refused(&optimizer, "optimizer.decay: \"wte\" matches no tensor; there are wte.weight, wpe.weight, h.0.ln.weight, "
                        "h.0.fc.weight, h.0.fc.bias, h.1.ln.weight, … scale (10 in all)");
    optimizer.decay = SHERD_DECAY_NONE; /* unused, so not looked at */
    shd_tensor_rule rules[TENSORS];
    cr_assert_eq(shd_tensor_rules_resolve(&optimizer, &model, rules), SHERD_OK);
    sherd_optimizer_group groups[2] = {SHERD_OPTIMIZER_GROUP_INIT, SHERD_OPTIMIZER_GROUP_INIT};
    groups[0].match = "h.*";
    groups[1].match = "h.2.*";
    optimizer.groups = groups;
    optimizer.group_count = 2;
    refused(&optimizer, "optimizer.groups[1].match: \"h.2.*\" matches no tensor; there are wte.weight, wpe.weight, "
                        "h.0.ln.weight, h.0.fc.weight, h.0.fc.bias, h.1.ln.weight, … scale (10 in all)");
    groups[1].match = "h.1.*";
    refused(&optimizer, "optimizer.groups[1].match: \"h.1.*\" matches only what groups before it have; the first group "
                        "that matches counts, so put it before them");
}

Test(rules, a_bad_value_is_refused_with_its_group) {
    sherd_optimizer optimizer = start();
    sherd_optimizer_group groups[2] = {{.match = "*", .lr_factor = 1}, {.match = "*", .lr_factor = 1}};
    optimizer.groups = groups;
    optimizer.group_count = 2;
    static const char lr_range[] = "; it must be 0 or more, and with optimizer.lr finite in float32";
    static const char decay_range[] = "; it must be 0 or more, and finite in float32, or negative for none of its own";
    const struct {
        double lr_factor, weight_decay;
        const char *key, *value, *range;
    } rows[] = {{-1, 0, "lr_factor", "-1", lr_range},
                {NAN, 0, "lr_factor", "nan", lr_range},
                {1e43, 0, "lr_factor", "1e+43", lr_range},
                {1, NAN, "weight_decay", "nan", decay_range},
                {1, 1e39, "weight_decay", "1e+39", decay_range}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char says[256];
        groups[1].lr_factor = rows[i].lr_factor;
        groups[1].weight_decay = rows[i].weight_decay;
        snprintf(says, sizeof says, "optimizer.groups[1].%s is %s%s", rows[i].key, rows[i].value, rows[i].range);
        refused(&optimizer, says);
    }
    groups[1] = (sherd_optimizer_group)SHERD_OPTIMIZER_GROUP_INIT;
    refused(&optimizer, "optimizer.groups[1].match is missing; it must be a pattern of tensor names");
    optimizer.groups = NULL;
    refused(&optimizer, "optimizer.groups has 2 groups and no list of them");
    optimizer.group_count = 0;
    optimizer.decay_pattern_count = 1;
    refused(&optimizer, "optimizer.decay has 1 patterns and no list of them");
    optimizer.decay_pattern_count = 0;
    optimizer.decay = (sherd_decay)4;
    refused(&optimizer, "optimizer.decay has the unknown value 4; it must be matrices, all, none or patterns");
}

/* One letter a tensor: which are updated whole. */
static void expect_whole(const sherd_optimizer *optimizer, const sherd_model *of, const char *expected) {
    shd_tensor_rule rules[TENSORS];
    cr_assert_eq(shd_optimizer_check(optimizer), SHERD_OK, "%s", sherd_last_error());
    cr_assert_eq(shd_tensor_rules_resolve(optimizer, of, rules), SHERD_OK, "%s", sherd_last_error());
    for (int t = 0; t < TENSORS; t++)
        cr_expect_eq(rules[t].whole, expected[t] == 'W', "%s of \"%s\"", of->tensors[t].name, expected);
}

Test(rules, muon_takes_the_matrices_of_hidden_units) {
    sherd_optimizer optimizer = start();
    expect_whole(&optimizer, &model, "..........");
    optimizer.kind = SHERD_MUON;
    expect_whole(&optimizer, &model, "...W..W...");
    sherd_optimizer_group groups[2] = {SHERD_OPTIMIZER_GROUP_INIT, SHERD_OPTIMIZER_GROUP_INIT};
    groups[0].match = "h.0.*";
    groups[0].optimizer = SHERD_GROUP_ADAMW;
    groups[1].match = "wpe.*";
    groups[1].optimizer = SHERD_GROUP_MUON;
    optimizer.groups = groups;
    optimizer.group_count = 2;
    expect_whole(&optimizer, &model, ".W....W...");
}

Test(rules, adafactor_takes_all_that_is_trained) {
    sherd_tensor changed[TENSORS];
    sherd_model other = model;
    memcpy(changed, tensors, sizeof changed);
    changed[WPE].frozen = true;
    changed[FC_1].shape[1] = 0;
    other.tensors = changed;
    sherd_optimizer optimizer = start();
    optimizer.kind = SHERD_ADAFACTOR;
    expect_whole(&optimizer, &other, "W.WWWW.WWW");
    optimizer.kind = SHERD_MUON;
    expect_whole(&optimizer, &other, "...W......");
}

Test(rules, muon_refuses_what_is_no_matrix_and_a_model_without_any) {
    sherd_optimizer optimizer = start();
    sherd_optimizer_group group = SHERD_OPTIMIZER_GROUP_INIT;
    optimizer.groups = &group;
    optimizer.group_count = 1;
    group.match = "h.0.fc.*";
    group.optimizer = SHERD_GROUP_MUON;
    refused(&optimizer, "optimizer.groups[0].optimizer is muon, but only with optimizer.name muon can groups choose; "
                        "take auto");
    optimizer.kind = SHERD_MUON;
    refused(&optimizer, "optimizer.groups[0].optimizer is muon, but \"h.0.fc.bias\" has 1 dimension, and muon is for "
                        "matrices; give it a group before this one");
    group.optimizer = (sherd_group_optimizer)3;
    refused(&optimizer, "optimizer.groups[0].optimizer has the unknown value 3; it must be auto, adamw or muon");
    group.match = "*";
    group.optimizer = SHERD_GROUP_ADAMW;
    refused(&optimizer, "optimizer.name is muon, but no matrix between the first and the last unit is trained; take "
                        "adamw, or give it matrices in optimizer.groups");
}
