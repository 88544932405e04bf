#include "io/checkpoint_pieces.h"

#include "io/checkpoint_manifest.h"
#include "runtime/base/arith.h"
#include "runtime/base/dtype.h"
#include "runtime/base/memory.h"
#include "runtime/base/status.h"

#include <stdlib.h>
#include <string.h>

typedef struct named {
    const char *name;
    int32_t index;
} named;

/* One block's place: of which value, which elements, in which file. */
typedef struct piece {
    int64_t value_index; /* tensor · (1 + states) + 0 for the parameter, 1 + s for state s */
    shd_checkpoint_range range;
} piece;

/* All blocks of all files. */
typedef struct piece_list {
    piece *list;
    int64_t count;
} piece_list;

static sherd_status fail_memory(void) { return shd_fail(SHERD_MEMORY, "out of memory for a checkpoint's blocks"); }

static int compare_names(const void *left, const void *right) {
    return strcmp(((const named *)left)->name, ((const named *)right)->name);
}

/* By value, rank, first element: so that what can be joined follows each other. */
static int compare_pieces(const void *left, const void *right) {
    const piece *a = left, *b = right;
    if (a->value_index != b->value_index) return a->value_index < b->value_index ? -1 : 1;
    if (a->range.rank != b->range.rank) return a->range.rank < b->range.rank ? -1 : 1;
    if (a->range.first != b->range.first) return a->range.first < b->range.first ? -1 : 1;
    return 0;
}

static int compare_ranges(const void *left, const void *right) {
    const shd_checkpoint_range *a = left, *b = right;
    if (a->first != b->first) return a->first < b->first ? -1 : 1;
    return a->rank < b->rank ? -1 : a->rank > b->rank;
}

/* Tensors by name, sorted, each name once. Release *out with shd_free. */
static sherd_status sort_tensors(const shd_checkpoint_manifest *manifest, named **out) {
    named *list = shd_alloc((size_t)manifest->tensor_count, sizeof *list);
    if (!list) return fail_memory();
    for (int32_t i = 0; i < manifest->tensor_count; i++) list[i] = (named){manifest->tensors[i].name, i};
    qsort(list, (size_t)manifest->tensor_count, sizeof *list, compare_names);
    for (int32_t i = 1; i < manifest->tensor_count; i++) {
        if (strcmp(list[i - 1].name, list[i].name) != 0) continue;
        const char *name = list[i].name;
        shd_free(list);
        return shd_fail(SHERD_DATA, "a checkpoint cannot have two tensors called %s", name);
    }
    *out = list;
    return SHERD_OK;
}

/* 0 for the parameter, 1 + s for state s, -1 for a word that is neither. */
static int32_t find_state(const shd_checkpoint_manifest *manifest, const char *state) {
    if (strcmp(state, SHD_CHECKPOINT_PARAMETER) == 0) return 0;
    for (int32_t i = 0; i < manifest->state_count; i++)
        if (strcmp(state, manifest->state_names[i]) == 0) return 1 + i;
    return -1;
}

/* Every value as the manifest has it, with the dtype that goes without saying. */
static sherd_status list_values(const shd_checkpoint_manifest *manifest, shd_keep *keep, shd_checkpoint_value **out) {
    int64_t states = manifest->state_count;
    shd_checkpoint_value *values =
        shd_keep_take(keep, (size_t)manifest->tensor_count * (size_t)(1 + states) * sizeof *values + 1);
    if (!values) return fail_memory();
    *out = values;
    for (int32_t t = 0; t < manifest->tensor_count; t++) {
        const sherd_tensor *tensor = &manifest->tensors[t];
        int64_t elements = shd_element_count(tensor);
        *values++ = (shd_checkpoint_value){.dtype = SHERD_FP32, .element_count = elements};
        for (int64_t s = 0; s < states; s++)
            *values++ = (shd_checkpoint_value){.dtype = manifest->state_dtype,
                                               .element_count = manifest->state_elements
                                                                    ? manifest->state_elements[t * states + s]
                                                                : tensor->frozen ? 0
                                                                                 : elements};
    }
    return SHERD_OK;
}

static sherd_status check_block(const shd_file_block *block, bool parameter, shd_checkpoint_value *value) {
    if (value->element_count == 0 && !parameter)
        return shd_fail(SHERD_DATA, "it holds %s of tensor %s, which has no such state", block->state, block->tensor);
    /* The first block of a parameter tells its dtype. */
    if (parameter && value->range_count == 0) value->dtype = block->form.dtype;
    if (block->form.dtype != value->dtype)
        return shd_fail(SHERD_DATA, "it holds %s of tensor %s in %s, which is to be in %s", block->state, block->tensor,
                        shd_dtype_text(block->form.dtype), shd_dtype_text(value->dtype));
    if (block->form.count > value->element_count || block->first > value->element_count - block->form.count)
        return shd_fail(SHERD_DATA, "it holds %lld elements from %lld on of %s of tensor %s, which has %lld",
                        (long long)block->form.count, (long long)block->first, block->state, block->tensor,
                        (long long)value->element_count);
    if (block->form.dtype == SHERD_INT8 && block->form.count % SHD_CODE_BLOCK_COUNT != 0 &&
        block->first + block->form.count != value->element_count)
        return shd_fail(SHERD_DATA, "it holds %s of tensor %s up to element %lld, within a block of codes",
                        block->state, block->tensor, (long long)(block->first + block->form.count));
    return SHERD_OK;
}

/* Finds the block's place; range_count counts a value's blocks meanwhile. */
static sherd_status place_block(const shd_checkpoint_manifest *manifest, const named *by_name,
                                const shd_file_block *block, shd_checkpoint_value *values, piece *out) {
    const named wanted = {.name = block->tensor};
    const named *found = bsearch(&wanted, by_name, (size_t)manifest->tensor_count, sizeof wanted, compare_names);
    if (!found) return shd_fail(SHERD_DATA, "it holds %s of tensor %s, which is unknown", block->state, block->tensor);
    int32_t state = find_state(manifest, block->state);
    if (state < 0)
        return shd_fail(SHERD_DATA, "it holds %s of tensor %s, which has no such state", block->state, block->tensor);
    int64_t index = (int64_t)found->index * (1 + manifest->state_count) + state;
    SHD_TRY(check_block(block, state == 0, &values[index]));
    values[index].range_count++;
    *out = (piece){.value_index = index, .range = {.first = block->first, .count = block->form.count}};
    return SHERD_OK;
}

static sherd_status place_file(const shd_checkpoint_manifest *manifest, const named *by_name, const shd_rank_file *file,
                               shd_checkpoint_value *values, piece_list *pieces) {
    for (int64_t i = 0; i < file->index.count; i++) {
        piece *out = &pieces->list[pieces->count];
        sherd_status status = place_block(manifest, by_name, &file->index.blocks[i], values, out);
        if (status != SHERD_OK) return shd_fail_within(status, "%s", file->path);
        out->range.rank = file->rank;
        pieces->count++;
    }
    return SHERD_OK;
}

/* Joins pieces [at, end), which are of one value, into its ranges; `room` has place for all. Returns how many. */
static int64_t join_ranges(const piece *pieces, int64_t count, shd_checkpoint_range *room) {
    int64_t joined = 0;
    for (int64_t i = 0; i < count; i++) {
        const shd_checkpoint_range *next = &pieces[i].range;
        shd_checkpoint_range *last = joined > 0 ? &room[joined - 1] : NULL;
        if (last && last->rank == next->rank && next->first <= last->first + last->count)
            last->count = shd_max(last->count, next->first + next->count - last->first);
        else
            room[joined++] = *next;
    }
    qsort(room, (size_t)joined, sizeof *room, compare_ranges);
    return joined;
}

static sherd_status check_cover(const shd_checkpoint_manifest *manifest, int64_t value_index,
                                const shd_checkpoint_value *value) {
    int64_t tensor = value_index / (1 + manifest->state_count), state = value_index % (1 + manifest->state_count);
    shd_checkpoint_range gap;
    if (!shd_ranges_gap(value->ranges, value->range_count, value->element_count, &gap)) return SHERD_OK;
    return shd_fail(SHERD_DATA, "no rank's file holds elements %lld to %lld of %s of tensor %s", (long long)gap.first,
                    (long long)(gap.first + gap.count),
                    state ? manifest->state_names[state - 1] : SHD_CHECKPOINT_PARAMETER,
                    manifest->tensors[tensor].name);
}

/* Gives every value its ranges. */
static sherd_status list_ranges(const shd_checkpoint_manifest *manifest, const piece_list *pieces, shd_keep *keep,
                                shd_checkpoint_value *values) {
    int64_t value_count = (int64_t)manifest->tensor_count * (1 + manifest->state_count), at = 0;
    shd_checkpoint_range *room = shd_keep_take(keep, (size_t)pieces->count * sizeof *room + 1);
    if (!room) return fail_memory();
    for (int64_t v = 0; v < value_count; v++) {
        int64_t end = at;
        while (end < pieces->count && pieces->list[end].value_index == v) end++;
        values[v].ranges = &room[at];
        values[v].range_count = join_ranges(&pieces->list[at], end - at, &room[at]);
        at = end;
        SHD_TRY(check_cover(manifest, v, &values[v]));
    }
    return SHERD_OK;
}

static sherd_status describe_values(shd_rank_file *const *files, const named *by_name, piece_list *pieces,
                                    shd_keep *keep, shd_checkpoint_manifest *manifest) {
    shd_checkpoint_value *values = NULL;
    SHD_TRY(list_values(manifest, keep, &values));
    for (int32_t rank = 0; rank < manifest->world_size; rank++)
        SHD_TRY(place_file(manifest, by_name, files[rank], values, pieces));
    qsort(pieces->list, (size_t)pieces->count, sizeof *pieces->list, compare_pieces);
    SHD_TRY(list_ranges(manifest, pieces, keep, values));
    manifest->values = values;
    return SHERD_OK;
}

static sherd_status describe_files(shd_rank_file *const *files, shd_keep *keep, shd_checkpoint_manifest *manifest) {
    shd_checkpoint_file *list = shd_keep_take(keep, (size_t)manifest->world_size * sizeof *list);
    if (!list) return fail_memory();
    manifest->files = list;
    manifest->raw_bytes = manifest->stored_bytes = 0;
    for (int32_t rank = 0; rank < manifest->world_size; rank++) {
        const shd_index *index = &files[rank]->index;
        list[rank] = (shd_checkpoint_file){.bytes = files[rank]->bytes, .index_hash = files[rank]->index_hash};
        manifest->stored_bytes += files[rank]->bytes;
        for (int64_t i = 0; i < index->count; i++)
            manifest->raw_bytes += shd_span_bytes(index->blocks[i].form.dtype, index->blocks[i].form.count);
    }
    return SHERD_OK;
}

sherd_status shd_pieces_describe(shd_rank_file *const *files, shd_keep *keep, shd_checkpoint_manifest *manifest) {
    named *by_name = NULL;
    int64_t most = 0;
    for (int32_t rank = 0; rank < manifest->world_size; rank++) most += files[rank]->index.count;
    piece_list pieces = {.list = shd_alloc((size_t)most, sizeof *pieces.list)};
    sherd_status status = pieces.list ? sort_tensors(manifest, &by_name) : fail_memory();
    if (status == SHERD_OK) status = describe_values(files, by_name, &pieces, keep, manifest);
    if (status == SHERD_OK) status = describe_files(files, keep, manifest);
    shd_free(by_name);
    shd_free(pieces.list);
    return status;
}
