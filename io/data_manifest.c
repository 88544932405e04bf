#define XXH_STATIC_LINKING_ONLY /* the streaming state on the stack */
#include "io/data_manifest.h"

#include "io/file.h"
#include "io/file_list.h"
#include "io/json.h"
#include "runtime/base/arith.h"
#include "runtime/base/clock.h"
#include "runtime/base/status.h"

#include <sys/stat.h>
#include <xxhash.h>

typedef struct manifest {
    const shd_manifest_limits *limits;
    int64_t spent_bytes;
    double end_ms; /* when the time for sums is over */
    json_t *list;
    shd_keep *keep;
} manifest;

/* An open file, whose parts are added to a sum. */
typedef struct summed_file {
    const char *path;
    int descriptor;
    int64_t bytes;
    double end_ms;
    bool late; /* the time was over before all was added */
    XXH3_state_t hash;
} summed_file;

static sherd_status add_range(summed_file *file, int64_t first, int64_t bytes) {
    char block[1 << 14];
    for (int64_t at = first; at < first + bytes; at += (int64_t)sizeof block) {
        file->late = shd_clock_ms() >= file->end_ms;
        if (file->late) return SHERD_OK;
        int64_t part = shd_min(first + bytes - at, (int64_t)sizeof block);
        SHD_TRY(shd_file_read(file->descriptor, file->path, at, block, part));
        XXH3_64bits_update(&file->hash, block, (size_t)part);
    }
    return SHERD_OK;
}

static sherd_status add_pieces(summed_file *file) {
    int64_t last = file->bytes - SHD_MANIFEST_PIECE_BYTES;
    for (int64_t i = 0; i < SHD_MANIFEST_PIECES && !file->late; i++)
        SHD_TRY(add_range(file, i * last / (SHD_MANIFEST_PIECES - 1), SHD_MANIFEST_PIECE_BYTES));
    return SHERD_OK;
}

/* The checksum into `entry`, if the budget allows one. */
static sherd_status add_checksum(manifest *to, summed_file *file, json_t *entry) {
    const int64_t sampled_bytes = (int64_t)SHD_MANIFEST_PIECES * SHD_MANIFEST_PIECE_BYTES;
    int64_t left = to->limits->budget_bytes - to->spent_bytes;
    bool whole = file->bytes <= to->limits->whole_bytes && file->bytes <= left;
    if (!whole && (file->bytes < sampled_bytes || sampled_bytes > left)) return SHERD_OK;
    file->end_ms = to->end_ms;
    XXH3_64bits_reset(&file->hash);
    SHD_TRY(whole ? add_range(file, 0, file->bytes) : add_pieces(file));
    if (file->late) return SHERD_OK;
    to->spent_bytes += whole ? file->bytes : sampled_bytes;
    json_object_set_new(entry, whole ? "xxh3" : "xxh3_sampled", shd_json_from_hash(XXH3_64bits_digest(&file->hash)));
    return SHERD_OK;
}

static sherd_status add_file(manifest *to, const char *key, int32_t source, const char *path) {
    struct stat about;
    summed_file file = {.path = path};
    SHD_TRY(shd_file_open(path, &file.descriptor, &file.bytes));
    json_t *entry = json_object();
    json_object_set_new(entry, "key", json_string(key));
    if (source >= 0) json_object_set_new(entry, "source", json_integer(source));
    json_object_set_new(entry, "path", shd_json_from_text(path));
    json_object_set_new(entry, "bytes", json_integer(file.bytes));
    if (fstat(file.descriptor, &about) == 0)
        json_object_set_new(entry, "modified", json_integer((json_int_t)about.st_mtim.tv_sec));
    sherd_status status = add_checksum(to, &file, entry);
    shd_file_close(file.descriptor);
    if (json_array_append_new(to->list, entry) != 0 && status == SHERD_OK)
        status = shd_fail(SHERD_MEMORY, "no memory for the list of data files");
    return status;
}

static sherd_status add_paths(manifest *to, const char *key, int32_t source, const char *const *paths, int32_t count) {
    const char *const *files;
    int32_t file_count;
    SHD_TRY(shd_file_list_expand(key, paths, count, to->keep, &files, &file_count));
    for (int32_t i = 0; i < file_count; i++) SHD_TRY(add_file(to, key, source, files[i]));
    return SHERD_OK;
}

static sherd_status add_sources(manifest *to, const char *key, const shd_job_sources *sources) {
    for (int32_t s = 0; s < sources->count; s++) {
        const shd_job_data_source *source = &sources->items[s];
        SHD_TRY(add_paths(to, key, s, source->paths, source->path_count));
        if (source->target_paths) SHD_TRY(add_paths(to, key, s, source->target_paths, source->target_path_count));
    }
    return SHERD_OK;
}

/* A checkpoint or a folder of Hugging Face's is in the job by its path alone. */
static sherd_status add_init(manifest *to, const shd_job *job) {
    struct stat about;
    const char *path = job->model.init.path;
    if (!path || stat(path, &about) != 0 || !S_ISREG(about.st_mode)) return SHERD_OK;
    return add_file(to, "model.init", -1, path);
}

sherd_status shd_data_manifest(const shd_job *job, const shd_manifest_limits *limits, json_t **out) {
    manifest made = {.limits = limits,
                     .end_ms = shd_clock_ms() + limits->budget_ms,
                     .list = json_array(),
                     .keep = shd_keep_create()};
    sherd_status status = SHERD_OK;
    if (!made.list || !made.keep) status = shd_fail(SHERD_MEMORY, "no memory for the list of data files");
    if (status == SHERD_OK) status = add_sources(&made, "data.train", &job->data.train);
    if (status == SHERD_OK) status = add_sources(&made, "data.validation", &job->data.validation);
    if (status == SHERD_OK) status = add_init(&made, job);
    shd_keep_destroy(made.keep);
    if (status != SHERD_OK) {
        json_decref(made.list);
        return status;
    }
    *out = made.list;
    return SHERD_OK;
}
