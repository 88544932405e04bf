#include "io/order.h"

#include "runtime/base/random.h"

int64_t shd_order_index(const shd_order *order, int64_t q) {
    int64_t epoch = q / order->sequence_count, place = q % order->sequence_count;
    if (!order->shuffle) return place;
    uint32_t words[4];
    shd_philox(shd_random_key(order->seed, "shuffle"), (uint64_t)epoch, order->source, words);
    return shd_permute((uint64_t)words[0] << 32 | words[1], order->sequence_count, place);
}
