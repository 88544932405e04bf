#include "runtime/train/feed.h"

#include "runtime/base/memory.h"
#include "runtime/base/status.h"

struct shd_feed {
    shd_feed_config config; /* the path is not kept */
    shd_tokens *tokens;
    shd_order order;
    int32_t *inputs, *targets; /* [micro_steps, micro_batch, context] */
    double *losses;            /* [micro_batch, context] */
};

static sherd_status init(shd_feed *feed) {
    SHD_TRY(shd_tokens_open(&feed->config.tokens, &feed->tokens));
    feed->order = (shd_order){.seed = feed->config.seed,
                              .sequence_count = shd_tokens_sequence_count(feed->tokens),
                              .shuffle = feed->config.shuffle};
    size_t micro_tokens = (size_t)shd_feed_micro_tokens(feed);
    size_t all_bytes = micro_tokens * sizeof(int32_t);
    feed->inputs = shd_alloc((size_t)feed->config.micro_steps, all_bytes);
    feed->targets = shd_alloc((size_t)feed->config.micro_steps, all_bytes);
    feed->losses = shd_alloc(micro_tokens, sizeof *feed->losses);
    if (!feed->inputs || !feed->targets || !feed->losses)
        return shd_fail(SHERD_MEMORY, "no memory for %d micro-batches of %zu tokens", feed->config.micro_steps,
                        micro_tokens);
    return SHERD_OK;
}

sherd_status shd_feed_create(const shd_feed_config *config, shd_feed **out) {
    shd_feed *feed = shd_alloc(1, sizeof *feed);
    if (!feed) return shd_fail(SHERD_MEMORY, "%s: out of memory", config->tokens.path);
    feed->config = *config;
    sherd_status status = init(feed);
    feed->config.tokens.path = NULL;
    if (status != SHERD_OK) {
        shd_feed_destroy(feed);
        return status;
    }
    *out = feed;
    return SHERD_OK;
}

void shd_feed_destroy(shd_feed *feed) {
    if (!feed) return;
    shd_tokens_close(feed->tokens);
    shd_free(feed->inputs);
    shd_free(feed->targets);
    shd_free(feed->losses);
    shd_free(feed);
}

shd_tokens *shd_feed_tokens(shd_feed *feed) { return feed->tokens; }

int64_t shd_feed_micro_tokens(const shd_feed *feed) { return feed->config.micro_batch * feed->config.tokens.context; }

/* Reads sequence `index` of the file into row `row` of micro-step `micro_step` and counts its targets. */
static sherd_status read_row(shd_feed *feed, int32_t micro_step, int64_t row, int64_t index, int64_t *target_count) {
    int64_t at = micro_step * shd_feed_micro_tokens(feed) + row * feed->config.tokens.context, counted;
    SHD_TRY(shd_tokens_read(feed->tokens, index, feed->inputs + at, feed->targets + at, &counted));
    *target_count += counted;
    return SHERD_OK;
}

sherd_status shd_feed_read_step(shd_feed *feed, int64_t first, int64_t *target_count) {
    int64_t size = feed->config.micro_batch, counted = 0;
    for (int32_t k = 0; k < feed->config.micro_steps; k++) {
        int64_t micro_batch = (int64_t)k * feed->config.world_size + feed->config.rank;
        for (int64_t row = 0; row < size; row++)
            SHD_TRY(read_row(feed, k, row, shd_order_index(&feed->order, first + micro_batch * size + row), &counted));
    }
    *target_count = counted;
    return SHERD_OK;
}

sherd_status shd_feed_read_padded(shd_feed *feed, int64_t index, int64_t sequence_count, int64_t *target_count) {
    int64_t size = feed->config.micro_batch, context = feed->config.tokens.context, counted = 0;
    for (int64_t row = 0; row < size; row++) {
        int64_t sequence = index * size + row;
        if (sequence < sequence_count) {
            SHD_TRY(read_row(feed, 0, row, sequence, &counted));
            continue;
        }
        for (int64_t i = row * context; i < (row + 1) * context; i++) {
            feed->inputs[i] = 0;
            feed->targets[i] = -1;
        }
    }
    *target_count = counted;
    return SHERD_OK;
}

shd_batch shd_feed_batch(const shd_feed *feed, int32_t micro_step) {
    int64_t at = micro_step * shd_feed_micro_tokens(feed);
    return (shd_batch){.inputs = feed->inputs + at, .targets = feed->targets + at, .losses = feed->losses};
}
