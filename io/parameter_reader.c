#include "io/parameter_reader.h"

#include "io/checkpoint_manifest.h"
#include "runtime/base/memory.h"
#include "runtime/base/status.h"

#include <string.h>

struct shd_parameter_reader {
    const shd_checkpoint_manifest *manifest;
    shd_reader *reader;
};

sherd_status shd_parameter_reader_create(const shd_checkpoint *checkpoint, shd_parameter_reader **out) {
    shd_parameter_reader *reader = shd_alloc(1, sizeof *reader);
    if (!reader) return shd_fail(SHERD_MEMORY, "no memory to read a checkpoint");
    reader->manifest = shd_checkpoint_content(checkpoint);
    sherd_status status = shd_reader_create(checkpoint, &reader->reader);
    if (status != SHERD_OK) {
        shd_free(reader);
        return status;
    }
    *out = reader;
    return SHERD_OK;
}

void shd_parameter_reader_destroy(shd_parameter_reader *reader) {
    if (!reader) return;
    shd_reader_destroy(reader->reader);
    shd_free(reader);
}

static sherd_status find_tensor(const shd_checkpoint_manifest *manifest, const char *name, const sherd_tensor **out) {
    for (int32_t i = 0; i < manifest->tensor_count; i++)
        if (strcmp(manifest->tensors[i].name, name) == 0) {
            *out = &manifest->tensors[i];
            return SHERD_OK;
        }
    return shd_fail(SHERD_ARGUMENT, "the checkpoint has no parameter %s", name);
}

/* Takes values one behind the other. */
static sherd_status take(void *user, const float *values, int64_t count) {
    float **to = user;
    memcpy(*to, values, (size_t)count * sizeof *values);
    *to += count;
    return SHERD_OK;
}

sherd_status shd_parameter_reader_read(const shd_parameter_reader *reader, const char *tensor, int64_t first,
                                       int64_t count, float *values) {
    const sherd_tensor *found = NULL;
    SHD_TRY(find_tensor(reader->manifest, tensor, &found));
    int64_t available = shd_element_count(found);
    if (first < 0 || count < 0 || first > available - count)
        return shd_fail(SHERD_ARGUMENT, "%s has %lld elements, not those from %lld to %lld", tensor,
                        (long long)available, (long long)first, (long long)(first + count));
    return shd_reader_stream(reader->reader, tensor, SHD_CHECKPOINT_PARAMETER, first, count, NULL, take, &values);
}

sherd_status shd_parameter_reader_stream(const shd_parameter_reader *reader, const char *tensor, shd_value_sink sink,
                                         void *user) {
    const sherd_tensor *found = NULL;
    SHD_TRY(find_tensor(reader->manifest, tensor, &found));
    return shd_reader_stream(reader->reader, tensor, SHD_CHECKPOINT_PARAMETER, 0, shd_element_count(found), NULL, sink,
                             user);
}
