/* The reader of a checkpoint's manifest. Input: the text before the seal, which is put behind it; the input is also
 * read as it is.
 *
 * A manifest that is accepted comes back the same after it has been written and read. */
#include "io/checkpoint_manifest.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/seal.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef struct read_manifest {
    shd_keep *keep;
    shd_checkpoint_manifest content;
} read_manifest;

static sherd_status read_folder(const char *folder, read_manifest *out) {
    *out = (read_manifest){.keep = shd_keep_create()};
    fuzz_check(out->keep);
    return shd_manifest_read(folder, out->keep, &out->content);
}

/* What is accepted covers every element, in files that there are; and comes back. */
static void check_value(const shd_checkpoint_manifest *manifest, const shd_checkpoint_value *x,
                        const shd_checkpoint_value *y) {
    int64_t covered = 0;
    fuzz_check(x->dtype == y->dtype && x->element_count == y->element_count && x->range_count == y->range_count);
    for (int64_t i = 0; i < x->range_count; i++) {
        const shd_checkpoint_range *p = &x->ranges[i], *q = &y->ranges[i];
        fuzz_check(p->rank == q->rank && p->first == q->first && p->count == q->count);
        fuzz_check(p->rank >= 0 && p->rank < manifest->world_size && p->count > 0 && p->first <= covered);
        fuzz_check(p->first >= 0 && p->count <= x->element_count - p->first);
        if (covered < p->first + p->count) covered = p->first + p->count;
    }
    fuzz_check(covered == x->element_count);
}

static void check_equal(const read_manifest *a, const read_manifest *b) {
    const shd_checkpoint_manifest *x = &a->content, *y = &b->content;
    fuzz_check(x->step == y->step && x->world_size == y->world_size && x->stage == y->stage);
    fuzz_check(strcmp(x->optimizer, y->optimizer) == 0 && x->time_s == y->time_s && x->precision == y->precision);
    fuzz_check(x->raw_bytes == y->raw_bytes && x->stored_bytes == y->stored_bytes && x->replicas == y->replicas);
    fuzz_check(x->loss_scale.scale == y->loss_scale.scale && x->update_count == y->update_count);
    fuzz_check(x->state_dtype == y->state_dtype && x->state_count == y->state_count &&
               x->tensor_count == y->tensor_count);
    fuzz_check(strcmp(x->note, y->note) == 0);
    for (int32_t i = 0; i < x->state_count; i++) fuzz_check(strcmp(x->state_names[i], y->state_names[i]) == 0);
    for (int32_t i = 0; i < x->tensor_count; i++) {
        const sherd_tensor *p = &x->tensors[i], *q = &y->tensors[i];
        fuzz_check(strcmp(p->name, q->name) == 0 && p->dim_count == q->dim_count && p->frozen == q->frozen);
        for (int32_t d = 0; d < p->dim_count; d++) fuzz_check(p->shape[d] == q->shape[d]);
    }
    for (int32_t i = 0; i < x->world_size; i++)
        fuzz_check(x->files[i].bytes == y->files[i].bytes && x->files[i].index_hash == y->files[i].index_hash);
    for (int64_t i = 0; i < (int64_t)x->tensor_count * (1 + x->state_count); i++)
        check_value(x, &x->values[i], &y->values[i]);
}

static void check_manifest(const read_manifest *manifest) {
    static const char *folder;
    if (!folder) {
        folder = fuzz_path("written");
        fuzz_check(mkdir(folder, 0700) == 0);
    }
    read_manifest again;
    fuzz_check(shd_manifest_write(folder, &manifest->content) == SHERD_OK);
    fuzz_check(read_folder(folder, &again) == SHERD_OK);
    check_equal(manifest, &again);
    shd_keep_destroy(again.keep);
    fuzz_note_accepted();
}

static void try_text(const char *folder, const char *path, const void *text, size_t bytes) {
    fuzz_write(path, text, bytes);
    read_manifest manifest;
    sherd_status status = read_folder(folder, &manifest);
    if (status == SHERD_OK)
        check_manifest(&manifest);
    else
        fuzz_check_refusal(status, status == SHERD_UNSUPPORTED ? status : SHERD_DATA);
    shd_keep_destroy(manifest.keep);
    fuzz_check_released();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    static const char *folder, *path;
    if (!path) {
        folder = fuzz_path(".");
        path = fuzz_path(SHD_MANIFEST_NAME);
    }
    try_text(folder, path, data, bytes);
    fuzz_text sealed = {0};
    seal_manifest(&sealed, (const char *)data, bytes);
    try_text(folder, path, sealed.bytes, sealed.length);
    free(sealed.bytes);
    return 0;
}
