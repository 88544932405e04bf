/* data.train and data.validation: a path or glob, a list of them, or {inputs, targets}, each one source; or a list of
 * {path, weight} (a mixture of sources). */
#include "io/job_keys.h"
#include "runtime/base/status.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

enum { PATH_BYTES = 64 };

static sherd_status out_of_memory(const shd_job *job) { return shd_fail(SHERD_MEMORY, "%s: out of memory", job->path); }

/* A path, or a list of at least one; `name` says what they belong to. */
static sherd_status store_paths(shd_job *job, const char *name, const shd_yaml_node *node, const char ***paths,
                                int32_t *path_count, bool *listed) {
    const shd_job_key path_key = {.path = name, .kind = SHD_KIND_PATH};
    *listed = node->kind == SHD_YAML_LIST;
    int32_t count = *listed ? node->child_count : 1;
    if (count == 0) return shd_yaml_fail(&node->place, name, "an empty list; name the files");
    *paths = shd_keep_take(job->keep, sizeof **paths * (size_t)count);
    if (!*paths) return out_of_memory(job);
    const shd_yaml_node *item = *listed ? node->first_child : node;
    for (int32_t i = 0; i < count; i++, item = item->next)
        SHD_TRY(shd_job_store(job, &path_key, item, (void *)&(*paths)[i]));
    *path_count = count;
    return SHERD_OK;
}

static sherd_status store_inputs(shd_job *job, const char *name, const shd_yaml_node *node, shd_job_data_source *out) {
    return store_paths(job, name, node, &out->paths, &out->path_count, &out->listed);
}

/* The parts of a source: NULL where one is not written. */
enum part { PATH, INPUTS, TARGETS, WEIGHT, PARTS };
static const char *const part_names[PARTS] = {"path", "inputs", "targets", "weight"};

/* `weighted`: the source is one of a list. */
static sherd_status find_parts(const char *name, const shd_yaml_node *map, bool weighted,
                               const shd_yaml_node *parts[PARTS]) {
    for (const shd_yaml_node *key = map->first_child; key; key = key->next->next) {
        bool scalar = key->kind == SHD_YAML_SCALAR;
        int part = weighted ? PATH : INPUTS, end = weighted ? PARTS : WEIGHT;
        while (part < end && !(scalar && strcmp(key->text, part_names[part]) == 0)) part++;
        if (part == end)
            return shd_yaml_fail(&key->place, name, "unknown key '%.100s'; a source has %s", scalar ? key->text : "…",
                                 weighted ? "path, or inputs and targets, and weight" : "inputs and targets");
        if (parts[part]) return shd_yaml_fail(&key->place, name, "'%s' is repeated; keep one of them", key->text);
        parts[part] = key->next;
    }
    if (parts[PATH] && (parts[INPUTS] || parts[TARGETS]))
        return shd_yaml_fail(&map->place, name, "both path and inputs or targets; a source has one file or two");
    if (!parts[PATH] && !parts[INPUTS] != !parts[TARGETS])
        return shd_yaml_fail(&map->place, name, "%s without %s; write {inputs: …, targets: …}",
                             parts[INPUTS] ? "inputs" : "targets", parts[INPUTS] ? "targets" : "inputs");
    if (!parts[PATH] && !parts[INPUTS])
        return shd_yaml_fail(&map->place, name, "a source without a path; write %s",
                             weighted ? "{path: …, weight: …}" : "{inputs: …, targets: …}");
    return SHERD_OK;
}

/* {path: …, weight: …} or {inputs: …, targets: …, weight: …} of a list, or {inputs: …, targets: …} by itself. */
static sherd_status store_parts(shd_job *job, const char *name, const shd_yaml_node *map, bool weighted,
                                shd_job_data_source *out) {
    char weight_name[PATH_BYTES + 8], targets_name[PATH_BYTES + 8];
    snprintf(weight_name, sizeof weight_name, "%s.weight", name);
    snprintf(targets_name, sizeof targets_name, "%s.targets", name);
    const shd_job_key weight_key = {.path = weight_name, .kind = SHD_KIND_REAL, .real_low = 1e-6, .real_high = 1e6};
    const shd_yaml_node *parts[PARTS] = {NULL};
    if (map->kind != SHD_YAML_MAP)
        return shd_yaml_fail(&map->place, name, "no source among sources; write {path: …, weight: …}");
    SHD_TRY(find_parts(name, map, weighted, parts));
    SHD_TRY(store_inputs(job, name, parts[PATH] ? parts[PATH] : parts[INPUTS], out));
    if (parts[TARGETS])
        SHD_TRY(store_paths(job, targets_name, parts[TARGETS], &out->target_paths, &out->target_path_count,
                            &out->targets_listed));
    out->weight = 1;
    return parts[WEIGHT] ? shd_job_store(job, &weight_key, parts[WEIGHT], &out->weight) : SHERD_OK;
}

sherd_status shd_job_store_sources(shd_job *job, const shd_job_key *key, const shd_yaml_node *node,
                                   shd_job_sources *field) {
    bool weighted = node->kind == SHD_YAML_LIST && node->child_count > 0 && node->first_child->kind == SHD_YAML_MAP;
    int32_t count = weighted ? node->child_count : 1;
    if (weighted && key->kind == SHD_KIND_SOURCES_OR_NULL)
        return shd_yaml_fail(&node->place, key->path, "a mixture; one source is needed here");
    if (count > SHD_JOB_SOURCES)
        return shd_yaml_fail(&node->place, key->path, "%d sources; at most %d can be mixed", count, SHD_JOB_SOURCES);
    shd_job_data_source *items = shd_keep_take(job->keep, sizeof *items * (size_t)count);
    if (!items) return out_of_memory(job);
    const shd_yaml_node *item = node->first_child;
    for (int32_t i = 0; weighted && i < count; i++, item = item->next) {
        char name[PATH_BYTES];
        snprintf(name, sizeof name, "%s[%d]", key->path, i);
        SHD_TRY(store_parts(job, name, item, true, &items[i]));
    }
    if (node->kind == SHD_YAML_MAP) {
        SHD_TRY(store_parts(job, key->path, node, false, &items[0]));
    } else if (!weighted) {
        items[0].weight = 1;
        SHD_TRY(store_inputs(job, key->path, node, &items[0]));
    }
    *field = (shd_job_sources){.items = items, .count = count, .weighted = weighted};
    return SHERD_OK;
}

/* --- as JSON ------------------------------------------------------------------------------------------------------ */

static json_t *paths_json(const char *const *paths, int32_t count, bool listed) {
    if (!listed) return json_string(paths[0]);
    json_t *list = json_array();
    bool good = list != NULL;
    for (int32_t i = 0; good && i < count; i++) good = json_array_append_new(list, json_string(paths[i])) == 0;
    if (good) return list;
    json_decref(list);
    return NULL;
}

/* {path, weight} or {inputs, targets, weight}, the weight where the source is one of a list. */
static json_t *parts_json(const shd_job_data_source *source, bool weighted) {
    json_t *map = json_object();
    bool two = source->target_paths != NULL;
    bool good = map && json_object_set_new(map, part_names[two ? INPUTS : PATH],
                                           paths_json(source->paths, source->path_count, source->listed)) == 0;
    good = good && (!two || json_object_set_new(map, part_names[TARGETS],
                                                paths_json(source->target_paths, source->target_path_count,
                                                           source->targets_listed)) == 0);
    good = good && (!weighted || json_object_set_new(map, part_names[WEIGHT], json_real(source->weight)) == 0);
    if (good) return map;
    json_decref(map);
    return NULL;
}

json_t *shd_job_sources_json(const shd_job_sources *sources) {
    const shd_job_data_source *first = sources->items;
    if (sources->count == 0) return json_null();
    if (!sources->weighted)
        return first->target_paths ? parts_json(first, false)
                                   : paths_json(first->paths, first->path_count, first->listed);
    json_t *list = json_array();
    bool good = list != NULL;
    for (int32_t i = 0; good && i < sources->count; i++)
        good = json_array_append_new(list, parts_json(&sources->items[i], true)) == 0;
    if (good) return list;
    json_decref(list);
    return NULL;
}
