/* A whole checkpoint. Input: the manifest's text before the seal; after "SHERDCKP" each, a rank file as seal_rank_file
 * takes it. Blanks for "stored", "bytes" and "xxh3" in the manifest become those of the rank files.
 *
 * What opens is verified, read parameter by parameter and at once, and exported; the ways agree. */
#include "io/checkpoint.h"
#include "io/checkpoint_block.h"
#include "io/checkpoint_export.h"
#include "io/checkpoint_manifest.h"
#include "io/parameter_reader.h"
#include "io/safetensors.h"
#include "runtime/base/dtype.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/seal.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { RANKS_MAX = 4, MAGIC_BYTES = 8 };

/* --- writing ------------------------------------------------------------------------------------------------------ */

typedef struct places {
    const char *folder, *manifest, *ranks[RANKS_MAX], *exported;
} places;

static places make_places(void) {
    places made = {fuzz_path("step-00000003"), fuzz_path("step-00000003/" SHD_MANIFEST_NAME),
                   .exported = fuzz_path("exported.safetensors")};
    for (int i = 0; i < RANKS_MAX; i++) {
        char name[64];
        snprintf(name, sizeof name, "step-00000003/rank-%05d.bin", i);
        made.ranks[i] = fuzz_path(name);
    }
    fuzz_check(mkdir(made.folder, 0700) == 0);
    return made;
}

/* Writes the checkpoint; rank files of the input before go. */
static void write_checkpoint(const places *at, const char *data, size_t bytes) {
    const char *end = data + bytes, *body_end = NULL, *next;
    /* The first "bytes" are those of all. */
    uint64_t sizes[1 + RANKS_MAX] = {0}, hashes[RANKS_MAX], total = 0;
    size_t count = 0;
    for (const char *from = data; count <= RANKS_MAX; from = next + MAGIC_BYTES, count++) {
        next = memmem(from, (size_t)(end - from), "SHERDCKP", MAGIC_BYTES);
        const char *to = next ? next : end;
        if (!body_end) {
            body_end = to;
        } else {
            fuzz_text file = {0};
            seal_rank_file(&file, (const uint8_t *)from, (size_t)(to - from), (int32_t)count - 1, &hashes[count - 1]);
            sizes[count] = file.length;
            total += file.length;
            fuzz_write(at->ranks[count - 1], file.bytes, file.length);
            free(file.bytes);
        }
        if (!next) break;
    }
    if (count > RANKS_MAX) count = RANKS_MAX;
    for (size_t i = count; i < RANKS_MAX; i++) unlink(at->ranks[i]);
    fuzz_text summed = {0}, sized = {0}, filled = {0}, sealed = {0};
    fuzz_fill(&summed, data, (size_t)(body_end - data), "\"stored\"", &total, 1);
    fuzz_fill(&sized, summed.bytes, summed.length, "\"bytes\"", sizes, 1 + count);
    fuzz_fill(&filled, sized.bytes, sized.length, "\"xxh3\"", hashes, count);
    seal_manifest(&sealed, filled.bytes, filled.length);
    fuzz_write(at->manifest, sealed.bytes, sealed.length);
    free(summed.bytes);
    free(sized.bytes);
    free(filled.bytes);
    free(sealed.bytes);
}

/* --- reading ------------------------------------------------------------------------------------------------------ */

static int64_t count_elements(const sherd_tensor *tensor) {
    int64_t count = 1;
    for (int32_t d = 0; d < tensor->dim_count; d++) count *= tensor->shape[d];
    return count;
}

static const shd_safetensors_entry *find_entry(const shd_safetensors *file, const char *name) {
    for (int32_t i = 0; i < shd_safetensors_count(file); i++)
        if (strcmp(shd_safetensors_at(file, i)->name, name) == 0) return shd_safetensors_at(file, i);
    return NULL;
}

enum { ELEMENTS_MAX = 1 << 20 };

/* A manifest may say of more elements than memory has that they are there. */
static bool is_large(const shd_checkpoint_manifest *manifest) {
    int64_t count = 0;
    for (int64_t i = 0; i < (int64_t)manifest->tensor_count * (1 + manifest->state_count) && count <= ELEMENTS_MAX; i++)
        count += manifest->values[i].element_count < ELEMENTS_MAX ? manifest->values[i].element_count : ELEMENTS_MAX;
    return count > ELEMENTS_MAX;
}

/* Compares what the reader gives of `tensor` with `exported`; false when it is refused. */
static bool check_tensor(const shd_parameter_reader *reader, const sherd_tensor *tensor,
                         const shd_safetensors *exported) {
    int64_t count = count_elements(tensor), half = count / 2;
    float *whole = malloc((size_t)count * sizeof *whole + 1), *parts = malloc((size_t)count * sizeof *parts + 1);
    fuzz_check(whole && parts);
    sherd_status status = shd_parameter_reader_read(reader, tensor->name, 0, count, whole);
    if (status == SHERD_OK) {
        fuzz_check(shd_parameter_reader_read(reader, tensor->name, 0, half, parts) == SHERD_OK);
        fuzz_check(shd_parameter_reader_read(reader, tensor->name, half, count - half, parts + half) == SHERD_OK);
        fuzz_check(memcmp(whole, parts, (size_t)count * sizeof *whole) == 0);
    } else {
        fuzz_check_refusal(status, SHERD_DATA);
    }
    fuzz_check_refusal(shd_parameter_reader_read(reader, tensor->name, 1, count, parts), SHERD_ARGUMENT);
    if (exported) {
        const shd_safetensors_entry *entry = find_entry(exported, tensor->name);
        fuzz_check(status == SHERD_OK && entry && entry->element_count == count);
        fuzz_check(shd_safetensors_read(exported, entry, 0, count, parts) == SHERD_OK);
        fuzz_check(memcmp(whole, parts, (size_t)count * sizeof *whole) == 0);
        if (count > 0) fuzz_note_accepted();
    }
    free(whole);
    free(parts);
    return status == SHERD_OK;
}

/* Reads everything at once, as a session does, in the types that are stored; false when it is refused. */
static bool check_values(const shd_checkpoint *checkpoint) {
    const shd_checkpoint_manifest *manifest = shd_checkpoint_content(checkpoint);
    int64_t values = 1 + manifest->state_count, count = manifest->tensor_count * values;
    shd_checkpoint_slice *slices = calloc((size_t)count + 1, sizeof *slices);
    void *memory = NULL;
    fuzz_check(slices && posix_memalign(&memory, SHD_BLOCK_ALIGN_BYTES, (size_t)shd_reader_memory_bytes(1)) == 0);
    for (int64_t i = 0; i < count; i++) {
        const shd_checkpoint_value *value = &manifest->values[i];
        slices[i] = (shd_checkpoint_slice){
            .tensor = manifest->tensors[i / values].name,
            .state = i % values ? manifest->state_names[i % values - 1] : SHD_CHECKPOINT_PARAMETER,
            .count = value->element_count,
            .values = malloc((size_t)shd_span_bytes(value->dtype, value->element_count) + 1),
            .dtype = value->dtype};
        fuzz_check(slices[i].values);
    }
    const shd_reader_config config = {.threads = 1, .memory = memory};
    sherd_status status = shd_checkpoint_read(checkpoint, slices, count, &config);
    if (status != SHERD_OK) fuzz_check_refusal(status, status == SHERD_UNSUPPORTED ? status : SHERD_DATA);
    for (int64_t i = 0; i < count; i++) free(slices[i].values);
    free(slices);
    free(memory);
    return status == SHERD_OK;
}

static void check_export(const places *at, const shd_checkpoint_manifest *manifest,
                         const shd_parameter_reader *reader) {
    shd_safetensors *exported = NULL;
    bool complete = true, named = true;
    sherd_status status = shd_checkpoint_export(at->folder, at->exported);
    if (status == SHERD_OK)
        fuzz_check(shd_safetensors_open(at->exported, &exported) == SHERD_OK);
    else
        fuzz_check_refusal(status, status == SHERD_ARGUMENT ? status : SHERD_DATA);
    for (int32_t i = 0; i < manifest->tensor_count; i++) {
        complete = check_tensor(reader, &manifest->tensors[i], exported) && complete;
        named = named && strcmp(manifest->tensors[i].name, "__metadata__") != 0; /* safetensors has no such tensor */
    }
    fuzz_check((complete && named) == (status == SHERD_OK));
    shd_safetensors_close(exported);
}

static void ignore(void *user, const shd_damage *damage, int64_t done_bytes, int64_t total_bytes) {
    (void)user;
    fuzz_check(!damage || damage->cause);
    fuzz_check(done_bytes <= total_bytes);
}

static void check_checkpoint(const places *at, const shd_checkpoint *checkpoint) {
    const shd_checkpoint_manifest *manifest = shd_checkpoint_content(checkpoint);
    int64_t damaged = -1;
    fuzz_check(shd_checkpoint_verify(at->folder, ignore, NULL, &damaged) == SHERD_OK && damaged >= 0);
    if (is_large(manifest)) return;
    fuzz_check(check_values(checkpoint) || damaged > 0);
    shd_parameter_reader *reader = NULL;
    sherd_status status = shd_parameter_reader_create(checkpoint, &reader);
    if (status == SHERD_OK)
        check_export(at, manifest, reader);
    else
        fuzz_check(damaged > 0);
    shd_parameter_reader_destroy(reader);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    static places at;
    if (!at.folder) at = make_places();
    write_checkpoint(&at, bytes > 0 ? (const char *)data : "", bytes);
    shd_checkpoint *checkpoint = NULL;
    sherd_status status = shd_checkpoint_open(at.folder, &checkpoint);
    if (status == SHERD_OK)
        check_checkpoint(&at, checkpoint);
    else
        fuzz_check_refusal(status, status == SHERD_UNSUPPORTED ? status : SHERD_DATA);
    shd_checkpoint_close(checkpoint);
    fuzz_check_released();
    return 0;
}
