#include "runtime/train/provenance.h"

#include "io/data_manifest.h"
#include "io/file.h"
#include "io/folder.h"
#include "io/json.h"
#include "runtime/base/memory.h"
#include "runtime/base/status.h"
#include "runtime/train/build_info.h"
#include "runtime/train/machine.h"
#include "runtime/train/revision.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sherd/version.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* --- sherd and how it was called ---------------------------------------------------------------------------------- */

static json_t *sherd_json(void) {
    json_t *json = json_object();
    json_object_set_new(json, "version", json_string(SHERD_VERSION));
    if (*SHD_BUILD_REVISION) json_object_set_new(json, "revision", json_string(SHD_BUILD_REVISION));
    json_object_set_new(json, "compiler", json_string(SHD_BUILD_COMPILER " " SHD_BUILD_COMPILER_VERSION));
    json_object_set_new(json, "build_type", json_string(SHD_BUILD_TYPE));
    json_object_set_new(json, "optimization", json_string(SHD_BUILD_OPTIMIZATION));
    json_object_set_new(json, "sanitize", json_string(SHD_BUILD_SANITIZE));
    json_object_set_new(json, "assertions", json_boolean(SHD_BUILD_ASSERTIONS));
    json_object_set_new(json, "cpu_family", json_string(SHD_BUILD_CPU_FAMILY));
    return json;
}

/* The words that this process was started with, but for what a launcher has put in for its ranks. */
static json_t *command_json(void) {
    char text[1 << 16];
    json_t *list = json_array();
    int file = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
    ssize_t got = file >= 0 ? read(file, text, sizeof text - 1) : 0;
    if (file >= 0) close(file);
    if (got < 0) got = 0;
    text[got] = 0;
    for (const char *word = text; word < text + got; word += strlen(word) + 1)
        if (strncmp(word, "--as-rank=", 10) != 0) json_array_append_new(list, shd_json_from_text(word));
    return list;
}

static json_t *time_json(void) {
    char text[32];
    time_t now = time(NULL);
    struct tm parts;
    gmtime_r(&now, &parts);
    strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
    return json_string(text);
}

/* --- the job ------------------------------------------------------------------------------------------------------ */

static json_t *mesh_json(const shd_provenance *about) {
    const shd_policy *policy = &about->plan->policy;
    json_t *json = json_object();
    json_object_set_new(json, "ranks", json_integer(policy->world_size));
    json_object_set_new(json, "replicas", json_integer(policy->replicas > 0 ? policy->replicas : 1));
    json_object_set_new(json, "shard_group", json_integer(shd_policy_split(policy)));
    json_object_set_new(json, "stage", json_integer(policy->stage));
    json_object_set_new(json, "threads_a_rank", json_integer(about->threads));
    return json;
}

static json_t *plan_json(const shd_plan *plan) {
    json_t *json = json_object(), *memory = json_object();
    json_object_set_new(json, "parameters", json_integer(plan->parameter_count));
    json_object_set_new(json, "trained_parameters", json_integer(plan->trainable_count));
    json_object_set_new(json, "allocated_bytes", json_integer(plan->allocated_bytes));
    json_object_set_new(json, "model_state_bytes", json_integer(plan->model_state_bytes));
    for (int32_t c = 0; c < SHD_CATEGORIES; c++)
        json_object_set_new(memory, shd_category_text((shd_category)c), json_integer(plan->category_bytes[c]));
    json_object_set_new(json, "memory_bytes", memory);
    return json;
}

/* Every host with its ranks, in the order of their first ones. */
static json_t *hosts_json(const shd_recorder *recorder) {
    json_t *hosts = json_object();
    shd_recorder_head head;
    for (int32_t rank = 0; rank < shd_recorder_world(recorder); rank++) {
        if (!shd_recorder_look(recorder, rank, &head)) continue;
        json_t *ranks = json_object_get(hosts, head.host);
        if (!ranks && json_object_set_new(hosts, head.host, json_array()) == 0)
            ranks = json_object_get(hosts, head.host);
        json_array_append_new(ranks, json_integer(rank));
    }
    return hosts;
}

static sherd_status add_job(json_t *to, const shd_provenance *about) {
    char *text;
    const shd_manifest_limits limits = SHD_MANIFEST_LIMITS;
    json_t *data;
    SHD_TRY(shd_job_resolved_json(about->job, &text));
    json_object_set_new(to, "job", json_loads(text, 0, NULL));
    shd_job_text_free(text);
    SHD_TRY(shd_data_manifest(about->job, &limits, &data));
    json_object_set_new(to, "data", data);
    return SHERD_OK;
}

static sherd_status fill(json_t *to, const shd_provenance *about) {
    char folder[PATH_MAX];
    json_object_set_new(to, "format", json_integer(1));
    json_object_set_new(to, "time", time_json());
    json_object_set_new(to, "command", command_json());
    if (getcwd(folder, sizeof folder)) json_object_set_new(to, "working_directory", shd_json_from_text(folder));
    json_object_set_new(to, "first_step", json_integer(about->first_step));
    if (about->resumed_from) json_object_set_new(to, "resumed_from", shd_json_from_text(about->resumed_from));
    json_object_set_new(to, "sherd", sherd_json());
    json_object_set_new(to, "libraries", shd_machine_libraries_json());
    json_object_set_new(to, "hosts", hosts_json(about->recorder));
    json_object_set_new(to, "kernel", shd_machine_kernel_json());
    json_object_set_new(to, "cpu", shd_machine_cpu_json());
    json_object_set_new(to, "memory", shd_machine_memory_json());
    json_object_set_new(to, "mesh", mesh_json(about));
    json_object_set_new(to, "plan", plan_json(about->plan));
    return add_job(to, about);
}

/* --- the file ----------------------------------------------------------------------------------------------------- */

/* Gives the file of an earlier start the first free number. */
static sherd_status set_aside(const char *path) {
    char aside[SHD_PATH_BYTES];
    if (access(path, F_OK) != 0) return SHERD_OK;
    int number = 0;
    do SHD_TRY(shd_path_make(aside, "%s.%d", path, ++number));
    while (access(aside, F_OK) == 0);
    return shd_path_rename(path, aside);
}

static sherd_status write_file(const char *path, const char *text) {
    int file;
    SHD_TRY(shd_file_create(path, &file));
    sherd_status status = shd_file_write(file, path, text, (int64_t)strlen(text));
    if (status == SHERD_OK) status = shd_file_write(file, path, "\n", 1);
    shd_file_close(file);
    if (status != SHERD_OK) unlink(path);
    return status;
}

static sherd_status put(const char *dir, const char *text) {
    char path[SHD_PATH_BYTES], fresh[SHD_PATH_BYTES];
    SHD_TRY(shd_path_make(path, "%s/provenance.json", dir));
    SHD_TRY(shd_path_make(fresh, "%s.fresh", path));
    SHD_TRY(shd_folder_make(dir));
    SHD_TRY(write_file(fresh, text));
    SHD_TRY(set_aside(path));
    return shd_path_rename(fresh, path);
}

sherd_status shd_provenance_write(const shd_provenance *about) {
    json_t *all = json_object();
    if (!all) return shd_fail(SHERD_MEMORY, "no memory for provenance.json");
    char *text = NULL;
    sherd_status status = fill(all, about);
    if (status == SHERD_OK) status = shd_json_print(all, 2, &text);
    json_decref(all);
    if (status == SHERD_OK) status = put(about->job->log.dir, text);
    shd_free(text);
    return status;
}
