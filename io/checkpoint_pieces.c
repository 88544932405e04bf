#include "io/checkpoint_pieces.h"

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

static int compare_names(const void *left, const void *right) {
    return strcmp(((const named *)left)->name, ((const named *)right)->name);
}

static int compare_pieces(const void *left, const void *right) {
    const shd_piece *a = left, *b = right;
    if (a->tensor_index != b->tensor_index) return a->tensor_index < b->tensor_index ? -1 : 1;
    if (a->state_index != b->state_index) return a->state_index < b->state_index ? -1 : 1;
    if (a->first != b->first) return a->first < b->first ? -1 : 1;
    return a->rank < b->rank ? -1 : a->rank > b->rank;
}

int64_t shd_state_elements(const shd_checkpoint_manifest *manifest, int32_t tensor_index, int32_t state_index) {
    const sherd_tensor *tensor = &manifest->tensors[tensor_index];
    if (state_index == 0) return shd_element_count(tensor);
    if (!manifest->state_elements) return tensor->frozen ? 0 : shd_element_count(tensor);
    return manifest->state_elements[(int64_t)tensor_index * manifest->state_count + state_index - 1];
}

/* Tensors by name, sorted, each name once. Release *out with shd_free. */
static sherd_status sort_tensors(const shd_checkpoint_manifest *manifest, named **out) {
    named *list = shd_alloc((size_t)manifest->tensor_count, sizeof *list);
    if (!list) return shd_fail(SHERD_MEMORY, "out of memory for a checkpoint's tensors");
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

/* 0 for the parameter, 1 + i for state i, -1 for a word that is neither. */
static int32_t find_state(const shd_checkpoint_manifest *manifest, const char *state) {
    if (strcmp(state, SHD_CHECKPOINT_PARAMETER) == 0) return 0;
    for (int32_t i = 0; i < manifest->state_count; i++)
        if (strcmp(state, manifest->state_names[i]) == 0) return 1 + i;
    return -1;
}

/* Finds the slice's place; it must be that of a tensor the manifest knows. */
static sherd_status place_slice(const shd_checkpoint_manifest *manifest, const named *by_name,
                                const shd_rank_slice *slice, shd_piece *piece) {
    const named wanted = {.name = slice->tensor};
    const named *found = bsearch(&wanted, by_name, (size_t)manifest->tensor_count, sizeof wanted, compare_names);
    if (!found) return shd_fail(SHERD_DATA, "it holds %s of tensor %s, which is unknown", slice->state, slice->tensor);
    piece->tensor_index = found->index;
    piece->state_index = find_state(manifest, slice->state);
    piece->first = slice->first;
    piece->count = slice->count;
    int64_t elements = piece->state_index < 0 ? 0 : shd_state_elements(manifest, found->index, piece->state_index);
    if (elements == 0 && piece->state_index != 0)
        return shd_fail(SHERD_DATA, "it holds %s of tensor %s, which has no such state", slice->state, slice->tensor);
    sherd_dtype dtype = piece->state_index == 0 ? SHERD_FP32 : manifest->state_dtype;
    if (slice->dtype != dtype)
        return shd_fail(SHERD_DATA, "it holds %s of tensor %s in %s, where the manifest has %s", slice->state,
                        slice->tensor, shd_dtype_text(slice->dtype), shd_dtype_text(dtype));
    if (slice->first + slice->count > elements)
        return shd_fail(SHERD_DATA, "it holds elements %lld to %lld of %s of tensor %s, which has %lld",
                        (long long)slice->first, (long long)(slice->first + slice->count), slice->state, slice->tensor,
                        (long long)elements);
    return SHERD_OK;
}

static sherd_status place_all(const shd_checkpoint_manifest *manifest, const named *by_name,
                              shd_rank_file1 *const *files, shd_pieces *pieces) {
    for (int32_t rank = 0; rank < manifest->world_size; rank++)
        for (int64_t i = 0; i < files[rank]->slice_count; i++) {
            if (files[rank]->slices[i].count == 0) continue;
            shd_piece *piece = &pieces->list[pieces->count++];
            sherd_status status = place_slice(manifest, by_name, &files[rank]->slices[i], piece);
            if (status != SHERD_OK) return shd_fail_within(status, "%s", files[rank]->path);
            piece->rank = rank;
            piece->slice_index = i;
        }
    qsort(pieces->list, (size_t)pieces->count, sizeof *pieces->list, compare_pieces);
    return SHERD_OK;
}

/* Checks that pieces from *at on cover one state of one tensor, and moves *at behind them. */
static sherd_status check_cover(const shd_checkpoint_manifest *manifest, const shd_pieces *pieces, int32_t tensor_index,
                                int32_t state_index, int64_t *at) {
    int64_t covered = 0, missing_end = shd_state_elements(manifest, tensor_index, state_index);
    for (; *at < pieces->count; (*at)++) {
        const shd_piece *piece = &pieces->list[*at];
        if (piece->tensor_index != tensor_index || piece->state_index != state_index) break;
        if (piece->first > covered) {
            missing_end = piece->first;
            break;
        }
        covered = shd_max(covered, piece->first + piece->count);
    }
    if (covered == missing_end) return SHERD_OK;
    return shd_fail(SHERD_DATA, "no rank's file holds elements %lld to %lld of %s of tensor %s", (long long)covered,
                    (long long)missing_end,
                    state_index ? manifest->state_names[state_index - 1] : SHD_CHECKPOINT_PARAMETER,
                    manifest->tensors[tensor_index].name);
}

static sherd_status check_all(const shd_checkpoint_manifest *manifest, const shd_pieces *pieces) {
    int64_t at = 0;
    for (int32_t tensor = 0; tensor < manifest->tensor_count; tensor++)
        for (int32_t state = 0; state <= manifest->state_count; state++)
            SHD_TRY(check_cover(manifest, pieces, tensor, state, &at));
    return SHERD_OK;
}

sherd_status shd_pieces_collect(const shd_checkpoint_manifest *manifest, shd_rank_file1 *const *files,
                                shd_pieces *out) {
    int64_t most = 0;
    for (int32_t rank = 0; rank < manifest->world_size; rank++) most += files[rank]->slice_count;
    named *by_name = NULL;
    SHD_TRY(sort_tensors(manifest, &by_name));
    shd_pieces pieces = {.list = shd_alloc((size_t)most, sizeof *pieces.list)};
    sherd_status status = pieces.list ? SHERD_OK : shd_fail(SHERD_MEMORY, "out of memory for a checkpoint's slices");
    if (status == SHERD_OK) status = place_all(manifest, by_name, files, &pieces);
    if (status == SHERD_OK) status = check_all(manifest, &pieces);
    shd_free(by_name);
    if (status != SHERD_OK) {
        shd_free(pieces.list);
        return status;
    }
    *out = pieces;
    return SHERD_OK;
}
