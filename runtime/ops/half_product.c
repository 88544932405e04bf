/* Which path a product of 16-bit matrices takes on this processor. */
#include "runtime/ops/half_product.h"

#include "runtime/base/arith.h"
#include "runtime/ops/half/path.h"

#include <assert.h>

static const shd_half_path *path_of(sherd_dtype dtype) {
    (void)dtype;
    return &shd_half_widening;
}

int64_t shd_half_product_scratch_bytes(void) {
    return shd_max(path_of(SHERD_BF16)->scratch_bytes, path_of(SHERD_FP16)->scratch_bytes);
}

void shd_half_product_run(const shd_half_product *product) {
    assert(product->dtype != SHERD_FP32 && (product->c_dtype == product->dtype || product->c_dtype == SHERD_FP32));
    assert(!product->accumulate || product->c_dtype == SHERD_FP32);
    if (product->m > 0 && product->n > 0) path_of(product->dtype)->run(product);
}

const char *shd_half_product_name(sherd_dtype dtype) { return path_of(dtype)->name; }
