/* Which path a product of 16-bit matrices takes on this processor: its feature flags decide
 * (docs/decisions/0013-products-of-16-bit-numbers.md). */
#include "runtime/ops/half_product.h"

#include "runtime/base/arith.h"
#include "runtime/ops/half/path.h"

#include <assert.h>
#include <stdatomic.h>

#ifdef __x86_64__
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

typedef struct features {
    bool avx512, avx512_bf16, avx512_fp16, amx;
} features;

static bool bit(uint32_t bits, int index) { return bits >> index & 1; }

/* Which registers the operating system saves (XCR0). */
static uint32_t saved_registers(void) {
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

static features ask_processor(void) {
    features f = {0};
    uint32_t a, b, c, d;
    f.avx512 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("avx512f") &&
               __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
               __builtin_cpu_supports("avx512vl");
    if (!f.avx512 || !__get_cpuid_count(7, 0, &a, &b, &c, &d)) return f;
    f.avx512_fp16 = bit(d, 23);
    f.amx = bit(d, 22) && bit(d, 24) && bit(saved_registers(), 17) && bit(saved_registers(), 18);
    if (a >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d)) f.avx512_bf16 = bit(a, 5);
    return f;
}

/* Linux lets a process use tiles after it has asked; its threads and children may then as well. */
static bool tiles_granted(void) {
    enum { REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 }; /* ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA */
    return syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
}

static const shd_half_path *choose_bf16(void) {
    const features f = ask_processor();
    if (f.amx && tiles_granted()) return &shd_half_amx;
    if (f.avx512_bf16 && !f.avx512_fp16) return &shd_half_avx512_bf16;
    return &shd_half_widening;
}
#else
static const shd_half_path *choose_bf16(void) { return &shd_half_widening; }
#endif

static const shd_half_path *path_of(sherd_dtype dtype) {
    static _Atomic(const shd_half_path *) chosen; /* whoever asks first and at once gets the same answer */
    if (dtype != SHERD_BF16) return &shd_half_widening;
    const shd_half_path *path = atomic_load_explicit(&chosen, memory_order_relaxed);
    if (!path) {
        path = choose_bf16();
        atomic_store_explicit(&chosen, path, memory_order_relaxed);
    }
    return path;
}

int64_t shd_half_product_scratch_bytes(void) {
    return shd_max(path_of(SHERD_BF16)->scratch_bytes, path_of(SHERD_FP16)->scratch_bytes);
}

bool shd_half_product_cuts_freely(sherd_dtype dtype) { return path_of(dtype)->cuts_freely; }

void shd_half_product_run(const shd_half_product *product) {
    assert(product->dtype != SHERD_FP32 && (product->c_dtype == product->dtype || product->c_dtype == SHERD_FP32));
    assert(!product->accumulate || product->c_dtype == SHERD_FP32);
    if (product->m > 0 && product->n > 0) path_of(product->dtype)->run(product);
}

const char *shd_half_product_name(sherd_dtype dtype) { return path_of(dtype)->name; }
