/* The table of a device's operations. */
#include "runtime/ops/cuda/cuda_ops.h"
#include "runtime/ops/cuda/pointwise.h"

#include <criterion/criterion.h>
#include <string.h>

Test(cuda_ops, every_place_of_the_table_is_filled) {
    const char *table = (const char *)&shd_ops_cuda;
    cr_assert_str_eq(shd_ops_cuda.name, "cuda");
    for (size_t at = sizeof shd_ops_cuda.name; at < sizeof shd_ops_cuda; at += sizeof(void *)) {
        void *place;
        memcpy(&place, table + at, sizeof place);
        cr_assert_not_null(place, "at byte %zu", at);
    }
}

/* Products lend it to the sums of norms, in every type. */
Test(cuda_ops, scratch_has_room_for_what_borrows_it) {
    for (sherd_dtype dtype = SHERD_FP32; dtype <= SHERD_FP16; dtype++)
        cr_assert_geq(shd_ops_cuda.matmul_scratch_bytes(dtype, 1), SHD_NORM_WORK_BYTES);
}
