#include "runtime/launch/output.h"

#include "runtime/base/clock.h"
#include "runtime/base/memory.h"
#include "runtime/base/status.h"
#include "runtime/launch/log_file.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char error_name[] = "error.json";

void shd_output_path(const shd_output *output, int32_t local_rank, const char *name, char path[PATH_MAX]) {
    snprintf(path, PATH_MAX, "%s/%d/%s", output->folder, output->first_rank + local_rank, name);
}

/* Writes "FOLDER/RANK" without the C library's printing, which may not be called in a guard. Returns its end. */
static char *append_rank(char path[PATH_MAX + 32], size_t folder_bytes, int32_t rank) {
    char digits[12], *at = path + folder_bytes;
    int count = 0;
    do digits[count++] = (char)('0' + rank % 10);
    while ((rank /= 10) > 0);
    *at++ = '/';
    while (count > 0) *at++ = digits[--count];
    *at = 0;
    return at;
}

/* Only what is sherd's own: nothing else is ever in it. */
static void remove_temporary(const shd_output *output) {
    char path[PATH_MAX + 32];
    size_t bytes = strlen(output->folder);
    memcpy(path, output->folder, bytes);
    for (int32_t rank = 0; rank < output->rank_count; rank++) {
        char *end = append_rank(path, bytes, output->first_rank + rank);
        *end = '/';
        memcpy(end + 1, error_name, sizeof error_name);
        unlink(path);
        *end = 0;
        rmdir(path);
    }
    rmdir(output->folder);
}

void shd_output_sweep(const void *user) {
    const shd_output *output = user;
    if (output->is_temporary) remove_temporary(output);
}

static void forget(shd_output *output) {
    shd_tee_stop(output->tee);
    shd_tee_destroy(output->tee);
    output->tee = NULL;
    if (output->is_temporary) remove_temporary(output);
    output->is_temporary = false;
    shd_free(output->ends);
    output->ends = NULL;
    output->folder[0] = 0;
}

static sherd_status make_folder(shd_output *output, int32_t attempt) {
    if (output->log_dir) {
        int bytes = snprintf(output->folder, PATH_MAX, "%s/attempt_%d", output->log_dir, attempt);
        return bytes > 0 && bytes < PATH_MAX ? SHERD_OK
                                             : shd_fail(SHERD_IO, "the path %.60s… is too long", output->log_dir);
    }
    const char *within = output->temporary && *output->temporary ? output->temporary : "/tmp";
    snprintf(output->folder, PATH_MAX, "%s/sherd-errors-XXXXXX", within);
    /* Without it there are no error files; the job can do without. */
    output->is_temporary = mkdtemp(output->folder);
    if (!output->is_temporary) output->folder[0] = 0;
    return SHERD_OK;
}

sherd_status shd_output_begin(shd_output *output, const shd_launch_place *place) {
    forget(output);
    output->rank_count = place->local_count;
    output->first_rank = place->first_rank;
    output->ends = shd_alloc((size_t)place->local_count, sizeof *output->ends);
    if (!output->ends) return shd_fail(SHERD_MEMORY, "no memory for %d ranks", place->local_count);
    SHD_TRY(make_folder(output, place->attempt));
    if (!output->routes.ranks || !shd_routes_take(&output->routes)) return SHERD_OK;
    const shd_tee_config config = {.folder = output->log_dir ? output->folder : NULL,
                                   .routes = &output->routes,
                                   .first_rank = place->first_rank,
                                   .outputs = {STDOUT_FILENO, STDERR_FILENO},
                                   .own_prefix = output->own_prefix};
    return shd_tee_start(&config, &output->tee);
}

/* A full disk is no reason not to start: then a rank that fails says why on its standard error only. */
static sherd_status open_error_file(const shd_output *output, int32_t local_rank, shd_variables *variables) {
    char path[PATH_MAX];
    int cause;
    if (!*output->folder) return SHERD_OK;
    shd_output_path(output, local_rank, error_name, path);
    path[strlen(path) - sizeof error_name] = 0;
    sherd_status status = shd_log_folder_make(path, &cause);
    if (status != SHERD_OK) return cause == ENOSPC || cause == EDQUOT ? SHERD_OK : status;
    shd_output_path(output, local_rank, error_name, path);
    unlink(path); /* of an earlier run: it would be taken for this one's */
    return shd_variables_set(variables, "TORCHELASTIC_ERROR_FILE", path);
}

sherd_status shd_output_open(shd_output *output, int32_t local_rank, shd_variables *variables, int ends[SHD_STREAMS]) {
    SHD_TRY(open_error_file(output, local_rank, variables));
    if (output->tee) return shd_tee_open(output->tee, local_rank, ends);
    ends[SHD_STREAM_OUT] = ends[SHD_STREAM_ERR] = -1;
    return SHERD_OK;
}

void shd_output_started(shd_output *output, int32_t local_rank, pid_t pid) {
    output->ends[local_rank] = (shd_rank_end){.pid = pid, .began_ms = shd_clock_ms()};
}

void shd_output_told(shd_output *output, int signal) {
    for (int32_t rank = 0; rank < output->rank_count; rank++)
        if (output->ends[rank].pid && !output->ends[rank].ended) output->ends[rank].told = signal;
}

void shd_output_reaped(shd_output *output, int32_t local_rank, int exit_code, int signal) {
    shd_rank_end *end = &output->ends[local_rank];
    end->ended = true;
    end->exit_code = exit_code;
    end->signal = signal;
    end->ended_ms = shd_clock_ms();
    if (output->tee) shd_tee_close_rank(output->tee, local_rank);
}

void shd_output_end(shd_output *output) { shd_tee_stop(output->tee); }

void shd_output_fini(shd_output *output) {
    forget(output);
    shd_routes_fini(&output->routes);
}
