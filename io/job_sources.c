/* data.train: a path or glob, a list of them (one source), or a list of {path, weight} (a mixture of sources). */
#include "io/job_keys.h"
#include "runtime/base/status.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

enum { PATH_BYTES = 64 };

static sherd_status out_of_memory(const shd_job *job) { return shd_fail(SHERD_MEMORY, "%s: out of memory", job->path); }

/* A path, or a list of at least one; `name` says what they belong to. */
static sherd_status store_paths(shd_job *job, const char *name, const shd_yaml_node *node, shd_job_data_source *out) {
    const shd_job_key path_key = {.path = name, .kind = SHD_KIND_PATH};
    out->listed = node->kind == SHD_YAML_LIST;
    int32_t count = out->listed ? node->child_count : 1;
    if (count == 0) return shd_yaml_fail(&node->place, name, "an empty list; name the files to train on");
    out->paths = shd_keep_take(job->keep, sizeof *out->paths * (size_t)count);
    if (!out->paths) return out_of_memory(job);
    const shd_yaml_node *item = out->listed ? node->first_child : node;
    for (int32_t i = 0; i < count; i++, item = item->next)
        SHD_TRY(shd_job_store(job, &path_key, item, (void *)&out->paths[i]));
    out->path_count = count;
    return SHERD_OK;
}

/* {path: …, weight: …}, number `index`. */
static sherd_status store_weighted(shd_job *job, const shd_job_key *key, const shd_yaml_node *map, int32_t index,
                                   shd_job_data_source *out) {
    char name[PATH_BYTES], weight_name[PATH_BYTES + 8];
    snprintf(name, sizeof name, "%s[%d]", key->path, index);
    snprintf(weight_name, sizeof weight_name, "%s.weight", name);
    const shd_job_key weight_key = {.path = weight_name, .kind = SHD_KIND_REAL, .real_low = 1e-6, .real_high = 1e6};
    const shd_yaml_node *path = NULL, *weight = NULL;
    if (map->kind != SHD_YAML_MAP)
        return shd_yaml_fail(&map->place, name, "no source among sources; write {path: …, weight: …}");
    for (const shd_yaml_node *part = map->first_child; part; part = part->next->next) {
        bool scalar = part->kind == SHD_YAML_SCALAR;
        const shd_yaml_node **slot = scalar && strcmp(part->text, "path") == 0     ? &path
                                     : scalar && strcmp(part->text, "weight") == 0 ? &weight
                                                                                   : NULL;
        if (!slot)
            return shd_yaml_fail(&part->place, name, "unknown key '%.100s'; a source has path, weight",
                                 scalar ? part->text : "…");
        if (*slot) return shd_yaml_fail(&part->place, name, "'%s' is repeated; keep one of them", part->text);
        *slot = part->next;
    }
    if (!path) return shd_yaml_fail(&map->place, name, "a source without a path; write {path: …, weight: …}");
    SHD_TRY(store_paths(job, name, path, out));
    out->weight = 1;
    return weight ? shd_job_store(job, &weight_key, weight, &out->weight) : SHERD_OK;
}

sherd_status shd_job_store_sources(shd_job *job, const shd_job_key *key, const shd_yaml_node *node,
                                   shd_job_sources *field) {
    bool weighted = node->kind == SHD_YAML_LIST && node->child_count > 0 && node->first_child->kind == SHD_YAML_MAP;
    int32_t count = weighted ? node->child_count : 1;
    if (count > SHD_JOB_SOURCES)
        return shd_yaml_fail(&node->place, key->path, "%d sources; at most %d can be mixed", count, SHD_JOB_SOURCES);
    shd_job_data_source *items = shd_keep_take(job->keep, sizeof *items * (size_t)count);
    if (!items) return out_of_memory(job);
    const shd_yaml_node *item = node->first_child;
    for (int32_t i = 0; weighted && i < count; i++, item = item->next)
        SHD_TRY(store_weighted(job, key, item, i, &items[i]));
    if (!weighted) {
        items[0].weight = 1;
        SHD_TRY(store_paths(job, key->path, node, &items[0]));
    }
    *field = (shd_job_sources){.items = items, .count = count, .weighted = weighted};
    return SHERD_OK;
}

/* --- as JSON ------------------------------------------------------------------------------------------------------ */

static json_t *paths_json(const shd_job_data_source *source) {
    if (!source->listed) return json_string(source->paths[0]);
    json_t *list = json_array();
    bool good = list != NULL;
    for (int32_t i = 0; good && i < source->path_count; i++)
        good = json_array_append_new(list, json_string(source->paths[i])) == 0;
    if (good) return list;
    json_decref(list);
    return NULL;
}

static json_t *weighted_json(const shd_job_data_source *source) {
    json_t *map = json_object();
    if (map && json_object_set_new(map, "path", paths_json(source)) == 0 &&
        json_object_set_new(map, "weight", json_real(source->weight)) == 0)
        return map;
    json_decref(map);
    return NULL;
}

json_t *shd_job_sources_json(const shd_job_sources *sources) {
    if (!sources->weighted) return paths_json(&sources->items[0]);
    json_t *list = json_array();
    bool good = list != NULL;
    for (int32_t i = 0; good && i < sources->count; i++)
        good = json_array_append_new(list, weighted_json(&sources->items[i])) == 0;
    if (good) return list;
    json_decref(list);
    return NULL;
}
