/* optimizer.groups: a list of sections, each read as strictly as those of the job. */
#include "io/job_keys.h"
#include "runtime/base/status.h"

#include <stdio.h>
#include <string.h>

enum { KEYS_MAX = 8, PATH_BYTES = 160 };

/* The place of each key in the group that is being read; no source: not there. */
typedef struct group_reader {
    shd_job *job;
    char path[PATH_BYTES]; /* "optimizer.groups[1]" */
    const shd_job_key *keys;
    int32_t key_count;
    shd_yaml_place places[KEYS_MAX];
    sherd_optimizer_group *group;
} group_reader;

/* Stores a value under a path that names the group. */
static sherd_status store(group_reader *in, int32_t index, const shd_yaml_node *value) {
    char path[PATH_BYTES + 40];
    shd_job_key key = in->keys[index];
    snprintf(path, sizeof path, "%s.%s", in->path, key.name);
    key.path = path;
    return shd_job_store(in->job, &key, value, (char *)in->group + key.offset);
}

static sherd_status read_key(group_reader *in, const shd_yaml_node *name) {
    char path[PATH_BYTES + 120], suggestion[SHD_JOB_TEXT_BYTES];
    if (name->kind != SHD_YAML_SCALAR)
        return shd_yaml_fail(&name->place, in->path, "a key that is a list or section; keys are names");
    snprintf(path, sizeof path, "%s.%.100s", in->path, name->text);
    int32_t index = 0;
    while (index < in->key_count && strcmp(in->keys[index].name, name->text) != 0) index++;
    if (index == in->key_count) {
        shd_job_suggest_in_group(name->text, suggestion);
        return shd_yaml_fail(&name->place, path, "unknown key; %s", suggestion);
    }
    const shd_yaml_place *before = &in->places[index];
    if (before->source && before->line == 0) return shd_yaml_fail(&name->place, path, "repeated; keep one of them");
    if (before->source)
        return shd_yaml_fail(&name->place, path, "repeated, first on line %d; keep one of them", before->line);
    in->places[index] = name->place;
    return store(in, index, name->next);
}

static sherd_status read_defaults(group_reader *in, const shd_yaml_place *place) {
    for (int32_t i = 0; i < in->key_count; i++) {
        const shd_job_key *key = &in->keys[i];
        const shd_yaml_node *value;
        if (in->places[i].source) continue;
        if (key->required) {
            char path[PATH_BYTES + 40], expected[SHD_JOB_TEXT_BYTES];
            snprintf(path, sizeof path, "%s.%s", in->path, key->name);
            shd_job_expected(key, expected);
            return shd_yaml_fail(place, path, "missing; expected %s", expected);
        }
        SHD_TRY(shd_yaml_parse("default", false, key->fallback, strlen(key->fallback), in->job->keep, &value));
        SHD_TRY(store(in, i, value));
    }
    return SHERD_OK;
}

static sherd_status read_group(group_reader *in, const shd_yaml_node *node) {
    if (node->kind != SHD_YAML_MAP)
        return shd_yaml_fail(&node->place, in->path, "a group is a section of keys; write {match: PATTERN, …}");
    for (const shd_yaml_node *name = node->first_child; name; name = name->next->next) SHD_TRY(read_key(in, name));
    return read_defaults(in, &node->place);
}

sherd_status shd_job_store_groups(shd_job *job, const shd_job_key *key, const shd_yaml_node *node,
                                  shd_job_groups *field) {
    sherd_optimizer_group *groups = shd_keep_take(job->keep, sizeof *groups * ((size_t)node->child_count + 1));
    if (!groups) return shd_fail(SHERD_MEMORY, "%s: out of memory", job->path);
    int32_t count = 0;
    for (const shd_yaml_node *item = node->first_child; item; item = item->next) {
        group_reader in = {.job = job, .group = &groups[count]};
        in.keys = shd_job_group_keys(&in.key_count);
        snprintf(in.path, sizeof in.path, "%s[%d]", key->path, count);
        SHD_TRY(read_group(&in, item));
        count++;
    }
    *field = (shd_job_groups){.items = groups, .count = count};
    return SHERD_OK;
}
