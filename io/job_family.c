/* Which keys a family of models has. */
#include "io/job_keys.h"

#include <stdio.h>
#include <string.h>

/* Sets of families, for the schema's table. */
enum {
    GPT2 = 1 << SHD_JOB_GPT2,
    LLAMA = 1 << SHD_JOB_LLAMA,
    MLP = 1 << SHD_JOB_MLP,
};

static const struct {
    const char *path;
    int families;
} limited[] = {
#define LIMITED(section, key, families) {#section "." #key, families},
    SHD_JOB_FAMILY_KEYS(LIMITED)
#undef LIMITED
};
enum { LIMITED_COUNT = sizeof limited / sizeof *limited };

static bool has(int32_t family, const char *key_path) {
    for (int32_t i = 0; i < LIMITED_COUNT; i++)
        if (strcmp(limited[i].path, key_path) == 0) return limited[i].families >> family & 1;
    return true;
}

bool shd_job_has(const shd_job *job, const char *key_path) { return has((int32_t)job->model.family, key_path); }

void shd_job_families_text(const char *key_path, char text[SHD_JOB_TEXT_BYTES]) {
    bool all = true;
    size_t used = 0;
    text[0] = 0;
    for (int32_t family = 0; *shd_job_word("model.family", family); family++) {
        if (has(family, key_path))
            used += (size_t)snprintf(text + used, SHD_JOB_TEXT_BYTES - used, "%s%s", used ? " or " : "",
                                     shd_job_word("model.family", family));
        else
            all = false;
    }
    if (all) text[0] = 0;
}

sherd_status shd_job_check_family(const shd_job *job) {
    for (int32_t i = 0; i < LIMITED_COUNT; i++) {
        const shd_yaml_place *place = &shd_job_origin_of(job, limited[i].path)->place;
        char families[SHD_JOB_TEXT_BYTES];
        if (!place->source || shd_job_has(job, limited[i].path)) continue;
        shd_job_families_text(limited[i].path, families);
        return shd_yaml_fail(place, limited[i].path, "%s does not have it; remove the key, or take family: %s",
                             shd_job_word("model.family", (int32_t)job->model.family), families);
    }
    return SHERD_OK;
}
