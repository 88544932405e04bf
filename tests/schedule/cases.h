/* Models and plans that the tests of this folder share. */
#ifndef SHD_TESTS_SCHEDULE_CASES_H
#define SHD_TESTS_SCHEDULE_CASES_H

#include "runtime/schedule/program.h"
#include "runtime/schedule/verify.h"

/* embed, block, head. */
typedef enum case_model {
    CASE_UNTIED,       /* every tensor its own */
    CASE_TIED,         /* the head reads a tensor of embed */
    CASE_FROZEN,       /* embed holds a frozen tensor too; tied */
    CASE_FROZEN_BLOCK, /* nothing of block is trained */
    CASE_TINY,         /* fewer elements than ranks, a scalar, an empty tensor, a unit without tensors */
    CASE_RECOMPUTED,   /* the tied one; embed and block run forward again */
    CASE_PART,         /* the same; they make part of what they leave again */
    CASE_DEEP,         /* five blocks of two sizes, tied */
    CASE_MUON,         /* four blocks with matrices that need owners and vectors that do not, tied */
    CASE_ADAFACTOR,    /* the deep one; everything needs owners, who read parameters too */
    CASE_MODELS
} case_model;
const char *case_model_name(case_model model);
/* Whether tensors have owners: then clipping makes no difference. */
bool case_is_owned(case_model model);

typedef struct case_policy {
    int32_t world_size, stage, prefetch, gradient_slots, replicas; /* replicas: 0 is 1 */
    bool shared;
    sherd_recompute recompute; /* with CASE_RECOMPUTED and CASE_PART theirs */
    sherd_dtype parameter_dtype, reduce_dtype, state_dtype;
    bool saves; /* steps save while they run */
} case_policy;

enum { CASE_MAX_RANKS = 8 };

/* All ranks' plans and programs of one case; aborts when one cannot be made. */
typedef struct case_programs {
    int32_t rank_count;
    shd_plan *plans[CASE_MAX_RANKS];
    shd_program *programs[CASE_MAX_RANKS];
} case_programs;

case_programs case_compile(case_model model, case_policy policy, shd_program_kind kind, int32_t micro_steps, bool clip);
void case_destroy(case_programs *programs);
sherd_status case_verify(const case_programs *programs, int64_t *peak_bytes);

/* The next policy of the matrix stages × gather × prefetch × meshes, the fewest ranks first, then of a smaller one of the
 * same in which parameters and exchanged gradients are bf16; start from `(case_policy){0}`; false after the last. */
bool case_next_policy(case_policy *policy);

#endif
