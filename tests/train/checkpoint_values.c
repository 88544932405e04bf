#include "tests/train/checkpoint_values.h"

#include "io/checkpoint.h"
#include "io/checkpoint_reader.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

typedef struct values {
    float *at;
    int64_t count;
} values;

static sherd_status keep(void *user, const float *portion, int64_t count) {
    values *all = user;
    all->at = realloc(all->at, (size_t)(all->count + count) * sizeof *all->at);
    memcpy(all->at + all->count, portion, (size_t)count * sizeof *portion);
    all->count += count;
    return SHERD_OK;
}

/* The codes of states in 8 bits as they are: what they stand for does not matter here. */
static sherd_status raw_codes(void *user, const char *state, sherd_dtype from_dtype, const void *from,
                              sherd_dtype to_dtype, int64_t count, void *to) {
    (void)user, (void)state, (void)from_dtype, (void)to_dtype;
    const unsigned char *bytes = from;
    float *floats = to;
    /* A block is a scale and 256 codes. */
    for (int64_t i = 0; i < count; i++) floats[i] = bytes[i / 256 * 260 + 4 + i % 256];
    return SHERD_OK;
}

/* State `index` of a tensor; -1: the parameter. */
static values read_state(const shd_checkpoint *checkpoint, int32_t tensor, int32_t index) {
    values all = {0};
    shd_reader *reader;
    const shd_reader_convert convert = {.run = raw_codes};
    const shd_checkpoint_manifest *manifest = shd_checkpoint_content(checkpoint);
    const char *name = manifest->tensors[tensor].name;
    const char *state = index < 0 ? SHD_CHECKPOINT_PARAMETER : manifest->state_names[index];
    int64_t count = manifest->values[tensor * (1 + manifest->state_count) + 1 + index].element_count;
    cr_assert_eq(shd_reader_create(checkpoint, &reader), SHERD_OK, "%s", sherd_last_error());
    cr_assert_eq(shd_reader_stream(reader, name, state, 0, count, &convert, keep, &all), SHERD_OK, "%s: %s of %s",
                 sherd_last_error(), state, name);
    shd_reader_destroy(reader);
    return all;
}

void expect_same_checkpoints(const char *one, const char *other) {
    shd_checkpoint *a, *b;
    cr_assert_eq(shd_checkpoint_open(one, &a), SHERD_OK, "%s", sherd_last_error());
    cr_assert_eq(shd_checkpoint_open(other, &b), SHERD_OK, "%s", sherd_last_error());
    const shd_checkpoint_manifest *first = shd_checkpoint_content(a), *second = shd_checkpoint_content(b);
    cr_assert_eq(first->update_count, second->update_count);
    cr_assert_eq(first->loss_scale.scale, second->loss_scale.scale);
    cr_assert_eq(first->loss_scale.good_steps, second->loss_scale.good_steps);
    cr_assert_eq(first->loss_scale.hysteresis, second->loss_scale.hysteresis);
    cr_assert_eq(first->state_count, second->state_count);
    for (int32_t t = 0; t < first->tensor_count; t++)
        for (int32_t s = -1; s < first->state_count; s++) {
            const char *state = s < 0 ? SHD_CHECKPOINT_PARAMETER : first->state_names[s];
            values x = read_state(a, t, s), y = read_state(b, t, s);
            cr_assert_eq(x.count, y.count);
            cr_assert(s >= 0 || x.count > 0);
            cr_assert_eq(x.count ? memcmp(x.at, y.at, (size_t)x.count * sizeof *x.at) : 0, 0, "%s: %s of %s", other,
                         state, first->tensors[t].name);
            free(x.at);
            free(y.at);
        }
    shd_checkpoint_close(a);
    shd_checkpoint_close(b);
}
