#include "runtime/train/checkpoint_contents.h"

#include "io/checkpoint_file.h"
#include "io/checkpoint_reader.h"
#include "runtime/base/dtype.h"
#include "runtime/base/memory.h"
#include "runtime/base/status.h"
#include "runtime/session/state_codes.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- what files hold ---------------------------------------------------------------------------------------------- */

/* Tensors by name, for bisection. */
typedef struct name_place {
    const char *name;
    int32_t tensor;
} name_place;

static int compare_names(const void *a, const void *b) {
    return strcmp(((const name_place *)a)->name, ((const name_place *)b)->name);
}

typedef struct tally {
    const shd_checkpoint_manifest *manifest;
    name_place *names; /* [tensor_count], sorted */
    shd_value_summary *values;
} tally;

/* The value that a block is of; NULL: none that the manifest knows. */
static shd_value_summary *find_value(const tally *t, const shd_file_block *block) {
    const shd_checkpoint_manifest *manifest = t->manifest;
    const name_place key = {.name = block->tensor};
    const name_place *found = bsearch(&key, t->names, (size_t)manifest->tensor_count, sizeof key, compare_names);
    int32_t state = strcmp(block->state, SHD_CHECKPOINT_PARAMETER) ? 1 : 0;
    while (state > 0 && state <= manifest->state_count && strcmp(manifest->state_names[state - 1], block->state))
        state++;
    if (!found || state > manifest->state_count) return NULL;
    return &t->values[(int64_t)found->tensor * (1 + manifest->state_count) + state];
}

static sherd_status tally_file(const tally *t, const char *folder, int32_t rank) {
    char path[SHD_PATH_BYTES];
    shd_rank_file *file;
    SHD_TRY(shd_rank_file_path(path, folder, rank));
    SHD_TRY(shd_rank_file_open(path, t->manifest->step, rank, &file));
    for (int64_t i = 0; i < file->index.count; i++) {
        const shd_file_block *block = &file->index.blocks[i];
        shd_value_summary *value = find_value(t, block);
        if (!value) continue;
        value->block_count++;
        value->raw_bytes += shd_span_bytes(block->form.dtype, block->form.count);
        value->stored_bytes += block->form.stored_bytes;
    }
    shd_rank_file_close(file);
    return SHERD_OK;
}

static sherd_status tally_files(tally *t, const char *folder) {
    const int32_t count = t->manifest->tensor_count;
    t->names = shd_alloc((size_t)count, sizeof *t->names);
    if (!t->names) return shd_fail(SHERD_MEMORY, "no memory for the contents of a checkpoint");
    for (int32_t i = 0; i < count; i++) t->names[i] = (name_place){t->manifest->tensors[i].name, i};
    qsort(t->names, (size_t)count, sizeof *t->names, compare_names);
    for (int32_t rank = 0; rank < t->manifest->world_size; rank++) SHD_TRY(tally_file(t, folder, rank));
    return SHERD_OK;
}

/* --- norms -------------------------------------------------------------------------------------------------------- */

/* Values on their way, and what is known of all of them together. */
typedef struct norm_walk {
    shd_value_summary *value;
    double squares;
    const shd_advance *advance;
    int64_t done_bytes, all_bytes;
} norm_walk;

static sherd_status take_values(void *user, const float *values, int64_t count) {
    norm_walk *walk = user;
    for (int64_t i = 0; i < count; i++) {
        const double magnitude = fabs((double)values[i]);
        if (!isfinite(magnitude)) {
            walk->value->nonfinite_count++;
            continue;
        }
        walk->squares += magnitude * magnitude;
        walk->value->largest = fmax(walk->value->largest, magnitude);
    }
    walk->done_bytes += count * (int64_t)sizeof *values;
    SHD_TRY(shd_advance_tell(walk->advance, walk->done_bytes, walk->all_bytes));
    return SHERD_OK;
}

static sherd_status walk_values(const tally *t, shd_reader *reader, const shd_reader_convert *convert,
                                norm_walk *walk) {
    const shd_checkpoint_manifest *manifest = t->manifest;
    const int32_t states = manifest->state_count;
    for (int32_t i = 0; i < manifest->tensor_count * (1 + states); i++)
        walk->all_bytes += manifest->values[i].element_count * (int64_t)sizeof(float);
    for (int32_t i = 0; i < manifest->tensor_count * (1 + states); i++) {
        const int32_t state = i % (1 + states);
        walk->value = &t->values[i];
        walk->squares = 0;
        SHD_TRY(shd_reader_stream(reader, manifest->tensors[i / (1 + states)].name,
                                  state ? manifest->state_names[state - 1] : SHD_CHECKPOINT_PARAMETER, 0,
                                  manifest->values[i].element_count, convert, take_values, walk));
        walk->value->norm = sqrt(walk->squares);
    }
    return SHERD_OK;
}

static sherd_status add_norms(const tally *t, const shd_checkpoint *checkpoint, const shd_advance *advance) {
    shd_reader *reader;
    shd_state_codes *codes;
    norm_walk walk = {.advance = advance};
    SHD_TRY(shd_state_codes_create(t->manifest->optimizer, &codes));
    sherd_status status = shd_reader_create(checkpoint, &reader);
    if (status == SHERD_OK) {
        const shd_reader_convert convert = shd_state_codes_converter(codes);
        status = walk_values(t, reader, &convert, &walk);
        shd_reader_destroy(reader);
    }
    shd_state_codes_destroy(codes);
    return status;
}

/* --- both --------------------------------------------------------------------------------------------------------- */

sherd_status shd_contents_read(const shd_checkpoint *checkpoint, bool norms, const shd_advance *advance,
                               shd_value_summary **out) {
    const shd_checkpoint_manifest *manifest = shd_checkpoint_content(checkpoint);
    tally t = {.manifest = manifest};
    t.values = shd_alloc((size_t)manifest->tensor_count * (size_t)(1 + manifest->state_count), sizeof *t.values);
    sherd_status status = t.values ? tally_files(&t, shd_checkpoint_path(checkpoint))
                                   : shd_fail(SHERD_MEMORY, "no memory for the contents of a checkpoint");
    shd_free(t.names);
    if (status == SHERD_OK && norms) status = add_norms(&t, checkpoint, advance);
    if (status == SHERD_OK)
        *out = t.values;
    else
        shd_free(t.values);
    return status;
}

void shd_contents_free(shd_value_summary *contents) { shd_free(contents); }
