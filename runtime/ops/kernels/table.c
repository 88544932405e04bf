/* One instruction set's kernels for one type (element.h): compiled once for each, with KERNELS_TABLE the table's name and
 * KERNELS_NAME the set's in words. */
#include "runtime/ops/kernels/kernels.h"

#include "runtime/ops/kernels/lanes.h"

#include "runtime/ops/kernels/activation.h"
#include "runtime/ops/kernels/norm.h"
#include "runtime/ops/kernels/softmax.h"

#include "runtime/ops/kernels/mask.h"

extern const shd_kernels KERNELS_TABLE;
const shd_kernels KERNELS_TABLE = {
    .name = KERNELS_NAME,
    .add = add,
    .accumulate = accumulate,
    .widen = widen,
    .scale = scale,
    .gelu = gelu,
    .gelu_backward = gelu_backward,
    .relu = relu,
    .relu_backward = relu_backward,
    .swiglu = swiglu,
    .swiglu_backward = swiglu_backward,
    .layernorm = layernorm,
    .layernorm_backward = layernorm_backward,
    .rmsnorm = rmsnorm,
    .rmsnorm_backward = rmsnorm_backward,
    .column_sum = column_sum,
    .norm_weight_backward = norm_weight_backward,
    .rope = rope,
    .max = max,
    .exp_sum = exp_sum,
    .dot = dot,
    .softmax_backward = softmax_backward,
    .dropout = dropout,
    .drop = drop,
    .softmax_dropout_backward = softmax_dropout_backward,
};
