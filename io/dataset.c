#include "io/dataset.h"

#include "io/mixture.h"
#include "io/order.h"
#include "runtime/base/arith.h"
#include "runtime/base/log.h"
#include "runtime/base/memory.h"
#include "runtime/base/status.h"

#include <assert.h>
#include <stdio.h>
#include <xxhash.h>

_Static_assert((int)SHD_MIXTURE_SOURCES == (int)SHD_JOB_SOURCES, "a job's sources are one mixture");

enum { KEY_BYTES = 64, OPEN_FILES = 256 };

typedef struct source {
    shd_tokens *tokens; /* this one or the other */
    shd_arrays *arrays;
    shd_source_summary held;
    shd_order order;
    double weight;
} source;

struct shd_dataset {
    char key[KEY_BYTES];
    int64_t length; /* of a sequence: context; of a sample: numbers */
    shd_mixture mixture;
    source sources[SHD_MIXTURE_SOURCES];
};

/* "data.train", or with several sources "data.train[2]", from 0. */
static void name_source(const shd_dataset *dataset, int32_t index, char name[KEY_BYTES + 16]) {
    if (dataset->mixture.source_count == 1)
        snprintf(name, KEY_BYTES + 16, "%s", dataset->key);
    else
        snprintf(name, KEY_BYTES + 16, "%s[%d]", dataset->key, index);
}

static sherd_status open_tokens(const shd_dataset_config *config, const char *name, const shd_job_data_source *given,
                                source *made) {
    const shd_tokens_config tokens = {.key = name,
                                      .paths = given->paths,
                                      .path_count = given->path_count,
                                      .format = config->format,
                                      .vocab_size = config->vocab_size,
                                      .context = config->context,
                                      .ignored_token = config->ignored_token,
                                      .separator = config->separator,
                                      .open_files = OPEN_FILES / config->sources->count};
    SHD_TRY(shd_tokens_open(&tokens, &made->tokens));
    made->held = shd_tokens_summarize(made->tokens);
    return SHERD_OK;
}

static sherd_status open_arrays(const shd_dataset_config *config, const char *name, const shd_job_data_source *given,
                                source *made) {
    const shd_arrays_config arrays = {.key = name,
                                      .inputs = given->paths,
                                      .inputs_count = given->path_count,
                                      .targets = given->target_paths,
                                      .targets_count = given->target_path_count,
                                      .shape = *config->samples,
                                      .open_files = OPEN_FILES / config->sources->count};
    SHD_TRY(shd_arrays_open(&arrays, &made->arrays));
    made->held = shd_arrays_summarize(made->arrays);
    return SHERD_OK;
}

static sherd_status open_source(shd_dataset *dataset, const shd_dataset_config *config, int32_t index) {
    const shd_job_data_source *given = &config->sources->items[index];
    source *made = &dataset->sources[index];
    char name[KEY_BYTES + 16];
    name_source(dataset, index, name);
    SHD_TRY(config->samples ? open_arrays(config, name, given, made) : open_tokens(config, name, given, made));
    made->weight = given->weight;
    made->order = (shd_order){.seed = config->seed,
                              .source = (uint64_t)index,
                              .sequence_count = made->held.sequence_count,
                              .shuffle = config->shuffle};
    return SHERD_OK;
}

sherd_status shd_dataset_open(const shd_dataset_config *config, shd_dataset **out) {
    int32_t count = config->sources->count;
    assert(count > 0 && count <= SHD_MIXTURE_SOURCES);
    shd_dataset *dataset = shd_alloc(1, sizeof *dataset);
    if (!dataset) return shd_fail(SHERD_MEMORY, "%s: out of memory", config->key);
    snprintf(dataset->key, sizeof dataset->key, "%s", config->key);
    dataset->length = config->samples ? config->samples->input_count : config->context;
    double weights[SHD_MIXTURE_SOURCES];
    for (int32_t i = 0; i < count; i++) weights[i] = config->sources->items[i].weight;
    dataset->mixture = shd_mixture_make(weights, count);
    for (int32_t i = 0; i < count; i++) {
        sherd_status status = open_source(dataset, config, i);
        if (status == SHERD_OK) continue;
        shd_dataset_close(dataset);
        return status;
    }
    *out = dataset;
    return SHERD_OK;
}

void shd_dataset_close(shd_dataset *dataset) {
    if (!dataset) return;
    for (int32_t i = 0; i < dataset->mixture.source_count; i++) {
        shd_tokens_close(dataset->sources[i].tokens);
        shd_arrays_close(dataset->sources[i].arrays);
    }
    shd_free(dataset);
}

int32_t shd_dataset_source_count(const shd_dataset *dataset) { return dataset->mixture.source_count; }

shd_source_summary shd_dataset_source(const shd_dataset *dataset, int32_t index) {
    return dataset->sources[index].held;
}

int64_t shd_dataset_sequence_count(const shd_dataset *dataset) {
    int64_t count = 0;
    for (int32_t i = 0; i < dataset->mixture.source_count; i++) count += shd_dataset_source(dataset, i).sequence_count;
    return count;
}

int64_t shd_dataset_token_count(const shd_dataset *dataset) {
    int64_t count = 0;
    for (int32_t i = 0; i < dataset->mixture.source_count; i++) count += shd_dataset_source(dataset, i).token_count;
    return count;
}

uint64_t shd_dataset_fingerprint(const shd_dataset *dataset) {
    uint64_t hash = shd_dataset_source(dataset, 0).fingerprint;
    for (int32_t i = 0; dataset->mixture.source_count > 1 && i < dataset->mixture.source_count; i++) {
        const uint64_t part[2] = {shd_dataset_source(dataset, i).fingerprint, dataset->mixture.below[i + 1]};
        hash = XXH3_64bits_withSeed(part, sizeof part, hash);
    }
    return hash;
}

int64_t shd_dataset_drawn(const shd_dataset *dataset, int32_t index, int64_t q) {
    return shd_mixture_count(&dataset->mixture, index, q);
}

sherd_status shd_dataset_read(shd_dataset *dataset, int64_t q, const shd_example *into, int64_t *counted) {
    shd_mixture_place place = shd_mixture_find(&dataset->mixture, q);
    source *from = &dataset->sources[place.source];
    int64_t index = shd_order_index(&from->order, place.number);
    return from->tokens ? shd_tokens_read(from->tokens, index, into->inputs, into->targets, counted)
                        : shd_arrays_read(from->arrays, index, into->features, into->targets, into->values, counted);
}

shd_source_place shd_dataset_locate(const shd_dataset *dataset, int64_t q) {
    shd_mixture_place place = shd_mixture_find(&dataset->mixture, q);
    const source *from = &dataset->sources[place.source];
    int64_t index = shd_order_index(&from->order, place.number);
    return from->tokens ? shd_tokens_locate(from->tokens, index) : shd_arrays_locate(from->arrays, index);
}

sherd_status shd_dataset_sample(shd_dataset *dataset) {
    for (int32_t i = 0; i < dataset->mixture.source_count; i++) {
        source *from = &dataset->sources[i];
        SHD_TRY(from->tokens ? shd_tokens_sample(from->tokens) : shd_arrays_sample(from->arrays));
    }
    return SHERD_OK;
}

sherd_status shd_dataset_scan(shd_dataset *dataset, int64_t *summed_count) {
    int64_t summed = 0;
    for (int32_t i = 0; i < dataset->mixture.source_count; i++) {
        source *from = &dataset->sources[i];
        int64_t some = 0;
        SHD_TRY(from->tokens ? shd_tokens_scan(from->tokens, &some) : shd_arrays_scan(from->arrays));
        summed += some;
    }
    *summed_count = summed;
    return SHERD_OK;
}

void shd_dataset_log(const shd_dataset *dataset) {
    for (int32_t i = 0; i < dataset->mixture.source_count; i++) {
        shd_source_summary held = shd_dataset_source(dataset, i);
        char name[KEY_BYTES + 16], share[48] = "", skipped[80] = "";
        name_source(dataset, i, name);
        if (dataset->mixture.source_count > 1) {
            double part = (double)(dataset->mixture.below[i + 1] - dataset->mixture.below[i]);
            snprintf(share, sizeof share, ", %.4g%% of the mixture",
                     100 * part / (double)dataset->mixture.below[dataset->mixture.source_count]);
        }
        if (held.short_count > 0)
            snprintf(skipped, sizeof skipped, ", among them all of %d file%s shorter than a sequence", held.short_count,
                     held.short_count == 1 ? "" : "s");
        if (dataset->sources[i].arrays) {
            shd_log(SHERD_LOG_INFO, "%s: %lld sample%s of %lld number%s in %d file%s%s", name,
                    (long long)held.sequence_count, held.sequence_count == 1 ? "" : "s", (long long)dataset->length,
                    dataset->length == 1 ? "" : "s", held.file_count, held.file_count == 1 ? "" : "s", share);
            continue;
        }
        shd_log(SHERD_LOG_INFO,
                "%s: %lld tokens in %d file%s, %lld sequence%s of %lld%s; %lld token%s left out at ends%s", name,
                (long long)held.token_count, held.file_count, held.file_count == 1 ? "" : "s",
                (long long)held.sequence_count, held.sequence_count == 1 ? "" : "s", (long long)dataset->length, share,
                (long long)held.dropped_count, held.dropped_count == 1 ? " is" : "s are", skipped);
    }
}
