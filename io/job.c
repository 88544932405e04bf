/* Loading a job: file, settings, defaults, paths, checks, in this order. */
#include "io/job.h"

#include "io/job_keys.h"
#include "runtime/base/arith.h"
#include "runtime/base/memory.h"
#include "runtime/base/status.h"

#include <stdio.h>
#include <string.h>

static sherd_status out_of_memory(const char *path) { return shd_fail(SHERD_MEMORY, "%s: out of memory", path); }

/* --- the file ----------------------------------------------------------------------------------------------------- */

static sherd_status check_key_node(const char *section, const shd_yaml_node *node) {
    if (node->kind == SHD_YAML_SCALAR) return SHERD_OK;
    return shd_yaml_fail(&node->place, *section ? section : NULL, "a key that is a list or section; keys are names");
}

static sherd_status unknown_key(const char *section, const shd_yaml_place *place, const char *name) {
    char path[SHD_JOB_TEXT_BYTES], suggestion[SHD_JOB_TEXT_BYTES];
    snprintf(path, sizeof path, "%s%s%.100s", section, *section ? "." : "", name);
    shd_job_suggest(section, name, suggestion);
    return shd_yaml_fail(place, path, "unknown key; %s", suggestion);
}

static sherd_status set_key(shd_job *job, int32_t index, const shd_yaml_node *value, bool from_setting) {
    int32_t count;
    const shd_job_key *key = &shd_job_keys(&count)[index];
    SHD_TRY(shd_job_store(job, key, value, (char *)job + key->offset));
    job->origins[index] = (shd_job_origin){.place = value->place, .from_setting = from_setting};
    return SHERD_OK;
}

/* `place` is the key's. */
static sherd_status set_file_key(shd_job *job, int32_t index, const shd_yaml_place *place, const shd_yaml_node *value) {
    int32_t count;
    const shd_job_key *key = &shd_job_keys(&count)[index];
    const shd_yaml_place *before = &job->origins[index].place;
    if (before->source)
        return shd_yaml_fail(place, key->path, "repeated, first on line %d; keep one of them", before->line);
    return set_key(job, index, value, false);
}

/* `section` "" is the whole file. `section_places` receives where each section starts. */
static sherd_status bind_section(shd_job *job, const char *section, const shd_yaml_node *map,
                                 shd_yaml_place *section_places) {
    if (map->kind != SHD_YAML_MAP)
        return shd_yaml_fail(&map->place, section,
                             "a section of keys is needed here; write 'key: value' lines below it, or remove it");
    int32_t section_count;
    const shd_job_section *sections = shd_job_sections(&section_count);
    for (const shd_yaml_node *key = map->first_child; key; key = key->next->next) {
        SHD_TRY(check_key_node(section, key));
        int32_t index = shd_job_find_key(section, key->text);
        int32_t inner = shd_job_find_inner(section, key->text);
        if (index >= 0) {
            SHD_TRY(set_file_key(job, index, &key->place, key->next));
        } else if (inner >= 0) {
            if (section_places[inner].source)
                return shd_yaml_fail(&key->place, sections[inner].name,
                                     "repeated, first on line %d; merge the two sections", section_places[inner].line);
            section_places[inner] = key->place;
            SHD_TRY(bind_section(job, sections[inner].name, key->next, section_places));
        } else {
            return unknown_key(section, &key->place, key->text);
        }
    }
    return SHERD_OK;
}

static sherd_status bind_file(shd_job *job, const shd_yaml_node *root, shd_yaml_place *section_places) {
    if (root->kind != SHD_YAML_MAP)
        return shd_yaml_fail(&root->place, NULL, "a job is a list of 'key: value' lines; it starts with 'name: …'");
    return bind_section(job, "", root, section_places);
}

/* --- settings ----------------------------------------------------------------------------------------------------- */

/* `path` is changed. */
static sherd_status unknown_setting(const shd_yaml_place *place, char path[SHD_JOB_TEXT_BYTES]) {
    if (shd_job_find_section(path) >= 0)
        return shd_yaml_fail(place, path, "a section; set its keys one by one, as %s.KEY=value", path);
    /* The longest section that it begins with. */
    for (size_t length = strlen(path); length-- > 0;) {
        if (path[length] != '.') continue;
        path[length] = 0;
        if (shd_job_find_section(path) >= 0) return unknown_key(path, place, path + length + 1);
        path[length] = '.';
    }
    path[strcspn(path, ".")] = 0;
    return unknown_key("", place, path);
}

static sherd_status bind_setting(shd_job *job, const shd_job_setting *setting) {
    char shown[SHD_JOB_TEXT_BYTES], path[SHD_JOB_TEXT_BYTES];
    snprintf(shown, sizeof shown, "--set %.400s", setting->text);
    const char *source = shd_keep_text(job->keep, setting->source ? setting->source : shown,
                                       strlen(setting->source ? setting->source : shown));
    if (!source) return out_of_memory(job->path);
    shd_yaml_place place = {.source = source};
    const char *equals = strchr(setting->text, '=');
    if (!equals) return shd_yaml_fail(&place, NULL, "no '='; write key.path=value");
    snprintf(path, sizeof path, "%.*s", (int)shd_min(equals - setting->text, 200), setting->text);
    int32_t index = shd_job_find_path(path);
    if (index < 0) return unknown_setting(&place, path);
    const shd_yaml_node *value;
    SHD_TRY(shd_yaml_parse(source, false, equals + 1, strlen(equals + 1), job->keep, &value));
    return set_key(job, index, value, true);
}

/* --- defaults ----------------------------------------------------------------------------------------------------- */

static sherd_status missing_key(const shd_job *job, const shd_job_key *key, const shd_yaml_place *section_places) {
    shd_yaml_place place = {.source = job->path, .line = 1, .column = 1};
    int32_t section = shd_job_find_section(key->section);
    if (section >= 0 && section_places[section].source) place = section_places[section];
    char expected[SHD_JOB_TEXT_BYTES];
    shd_job_expected(key, expected);
    return shd_yaml_fail(&place, key->path, "missing; expected %s", expected);
}

static sherd_status set_defaults(shd_job *job, const shd_yaml_place *section_places) {
    int32_t count;
    const shd_job_key *keys = shd_job_keys(&count);
    for (int32_t i = 0; i < count; i++) {
        if (job->origins[i].place.source) continue;
        if (keys[i].required && !shd_job_has(job, keys[i].path)) continue;
        if (keys[i].required) return missing_key(job, &keys[i], section_places);
        if (!keys[i].fallback) continue;
        const shd_yaml_node *value;
        SHD_TRY(shd_yaml_parse("default", false, keys[i].fallback, strlen(keys[i].fallback), job->keep, &value));
        SHD_TRY(shd_job_store(job, &keys[i], value, (char *)job + keys[i].offset));
    }
    return SHERD_OK;
}

/* --- the whole ---------------------------------------------------------------------------------------------------- */

/* Where a job comes from: the file at `path`, or `text`, which `path` then only names. */
typedef struct job_input {
    const char *path, *text;
    size_t text_bytes;
    const shd_job_setting *settings;
    int32_t setting_count;
} job_input;

static sherd_status load(shd_job *job, const job_input *in) {
    int32_t key_count, section_count;
    (void)shd_job_keys(&key_count);
    (void)shd_job_sections(&section_count);
    job->keep = shd_keep_create();
    if (!job->keep) return out_of_memory(in->path);
    job->path = shd_keep_text(job->keep, in->path, strlen(in->path));
    job->origins = shd_keep_take(job->keep, sizeof *job->origins * (size_t)key_count);
    shd_yaml_place *section_places = shd_keep_take(job->keep, sizeof *section_places * (size_t)section_count);
    if (!job->path || !job->origins || !section_places) return out_of_memory(in->path);
    const shd_yaml_node *root;
    if (!in->text)
        SHD_TRY(shd_yaml_read(job->path, job->keep, &job->text, &job->text_bytes));
    else if (!(job->text = shd_keep_text(job->keep, in->text, in->text_bytes)))
        return out_of_memory(in->path);
    else
        job->text_bytes = in->text_bytes;
    SHD_TRY(shd_yaml_parse(job->path, true, job->text, job->text_bytes, job->keep, &root));
    SHD_TRY(bind_file(job, root, section_places));
    for (int32_t i = 0; i < in->setting_count; i++) SHD_TRY(bind_setting(job, &in->settings[i]));
    SHD_TRY(set_defaults(job, section_places));
    SHD_TRY(shd_job_complete(job));
    return shd_job_check(job);
}

static sherd_status create(const job_input *in, shd_job **out) {
    shd_job *job = shd_alloc(1, sizeof *job);
    if (!job) return out_of_memory(in->path);
    sherd_status status = load(job, in);
    if (status != SHERD_OK) {
        shd_job_destroy(job);
        return status;
    }
    *out = job;
    return SHERD_OK;
}

sherd_status shd_job_load(const char *path, const shd_job_setting *settings, int32_t setting_count, shd_job **out) {
    const job_input in = {.path = path, .settings = settings, .setting_count = setting_count};
    return create(&in, out);
}

sherd_status shd_job_load_text(const char *path, const char *text, size_t text_bytes, const shd_job_setting *settings,
                               int32_t setting_count, shd_job **out) {
    const job_input in = {
        .path = path, .text = text, .text_bytes = text_bytes, .settings = settings, .setting_count = setting_count};
    return create(&in, out);
}

sherd_status shd_job_from_json(const char *source, const char *text, shd_job **out) {
    return shd_job_load_text(source, text, strlen(text), NULL, 0, out);
}

sherd_status shd_job_fail_within(const shd_job *job, sherd_status status) {
    char path[SHD_JOB_TEXT_BYTES];
    const char *cause = sherd_last_error();
    size_t length = strspn(cause, "abcdefghijklmnopqrstuvwxyz_.");
    snprintf(path, sizeof path, "%.*s", (int)shd_min((int64_t)length, 200), cause);
    int32_t index = shd_job_find_path(path);
    if (index < 0) return shd_fail_within(status, "%s", job->path);
    const shd_yaml_place *place = &job->origins[index].place;
    if (place->line > 0) return shd_fail_within(status, "%s:%d:%d", place->source, place->line, place->column);
    return shd_fail_within(status, "%s", place->source ? place->source : job->path);
}

void shd_job_destroy(shd_job *job) {
    if (!job) return;
    shd_keep_destroy(job->keep);
    shd_free(job);
}
