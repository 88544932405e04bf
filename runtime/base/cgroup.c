#include "runtime/base/cgroup.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- the groups of this process ----------------------------------------------------------------------------------- */

/* Looks at one group; `unified`: of version 2. */
typedef void (*look_fn)(void *user, const char *folder, bool unified);

/* At the group `path` and all above it, up to the root of its hierarchy. */
static void look_upwards(const char *mount, const char *path, bool unified, look_fn look, void *user) {
    char folder[PATH_MAX];
    int length = snprintf(folder, sizeof folder, "%s%s", mount, path);
    if (length < 0 || length >= PATH_MAX) return;
    for (size_t end = strlen(folder), top = strlen(mount); end >= top; end--) {
        if (end > top && ((folder[end] && folder[end] != '/') || folder[end - 1] == '/')) continue;
        folder[end] = 0;
        look(user, folder, unified);
    }
}

/* Whether `list`, "cpu,cpuacct", has the controller. */
static bool has_controller(const char *list, const char *controller) {
    size_t length = strlen(controller);
    for (const char *at = list; at; at = strchr(at, ',')) {
        at += *at == ',';
        if (!strncmp(at, controller, length) && (at[length] == ',' || !at[length])) return true;
    }
    return false;
}

/* At every group that this process is in, of the hierarchies that have the controller. */
static void look_at_groups(const char *root, const char *controller, look_fn look, void *user) {
    char line[PATH_MAX + 64], path[PATH_MAX], mount[PATH_MAX];
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    FILE *file = fopen(path, "re");
    /* "0::/path" of version 2, "3:cpu,cpuacct:/path" of version 1. */
    while (file && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        char *list = strchr(line, ':'), *group = list ? strchr(list + 1, ':') : NULL;
        if (!group) continue;
        *group++ = 0;
        bool unified = !*++list;
        if (!unified && !has_controller(list, controller)) continue;
        snprintf(mount, sizeof mount, "%s/sys/fs/cgroup%s%s", root, unified ? "" : "/", unified ? "" : controller);
        look_upwards(mount, group, unified, look, user);
    }
    if (file) fclose(file);
}

/* The first `count` numbers of a group's file; false: it has no such file, or other words ("max": no limit). */
static bool read_numbers(const char *folder, const char *name, int count, double *numbers) {
    char path[PATH_MAX + 32];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "re");
    if (!file) return false;
    int got = count == 1 ? fscanf(file, "%lf", numbers) : fscanf(file, "%lf %lf", numbers, numbers + 1);
    fclose(file);
    return got == count;
}

/* --- processor time ----------------------------------------------------------------------------------------------- */

static void look_at_cores(void *user, const char *folder, bool unified) {
    double *least = user, pair[2];
    bool said = unified ? read_numbers(folder, "cpu.max", 2, pair)
                        : read_numbers(folder, "cpu.cfs_quota_us", 1, pair) &&
                              read_numbers(folder, "cpu.cfs_period_us", 1, pair + 1);
    if (!said || pair[0] <= 0 || pair[1] <= 0) return; /* a quota of -1: no limit */
    if (*least == 0 || pair[0] / pair[1] < *least) *least = pair[0] / pair[1];
}

double shd_cgroup_cores(const char *root) {
    double least = 0;
    look_at_groups(root, "cpu", look_at_cores, &least);
    return least;
}

/* --- memory ------------------------------------------------------------------------------------------------------- */

/* Version 1 says "no limit" as the last page of an address space. */
static const double NO_LIMIT_BYTES = 0x1p62;

typedef struct memory_search {
    bool left; /* what is left is asked for */
    double least;
} memory_search;

/* What of a group's memory the kernel would give up: pages of files, but those of shared memory. */
static double count_cached(const char *folder, bool unified) {
    char path[PATH_MAX + 32], name[64];
    double bytes, sum = 0;
    snprintf(path, sizeof path, "%s/memory.stat", folder);
    FILE *file = fopen(path, "re");
    /* Those of version 1 with `total_` have the groups below in them, as those of version 2. */
    const char *const idle = unified ? "inactive_file" : "total_inactive_file";
    const char *const used = unified ? "active_file" : "total_active_file";
    while (file && fscanf(file, "%63s %lf", name, &bytes) == 2)
        if (!strcmp(name, idle) || !strcmp(name, used)) sum += bytes;
    if (file) fclose(file);
    return sum;
}

static void look_at_memory(void *user, const char *folder, bool unified) {
    memory_search *search = user;
    double limit, held = 0;
    if (!read_numbers(folder, unified ? "memory.max" : "memory.limit_in_bytes", 1, &limit)) return;
    if (limit < 0 || limit >= NO_LIMIT_BYTES) return;
    if (search->left && read_numbers(folder, unified ? "memory.current" : "memory.usage_in_bytes", 1, &held)) {
        held -= count_cached(folder, unified);
        if (held > 0) limit = limit > held ? limit - held : 0;
    }
    if (limit < search->least) search->least = limit;
}

static int64_t find_memory(const char *root, bool left) {
    memory_search search = {.left = left, .least = NO_LIMIT_BYTES};
    look_at_groups(root, "memory", look_at_memory, &search);
    return search.least < NO_LIMIT_BYTES ? (int64_t)search.least : INT64_MAX;
}

int64_t shd_cgroup_memory(const char *root) { return find_memory(root, false); }
int64_t shd_cgroup_memory_left(const char *root) { return find_memory(root, true); }

/* --- the own group ------------------------------------------------------------------------------------------------ */

/* Undoes the kernel's escapes in a word of mountinfo: "\\040" is a blank. */
static void unescape(char *word) {
    char *out = word;
    for (const char *at = word; *at; at++) {
        bool escaped = at[0] == '\\' && at[1] && at[2] && at[3];
        *out++ = escaped ? (char)((at[1] - '0') * 64 + (at[2] - '0') * 8 + (at[3] - '0')) : at[0];
        if (escaped) at += 3;
    }
    *out = 0;
}

/* The path of this process's group of version 2 in its hierarchy. */
static bool read_own(const char *root, char path[PATH_MAX]) {
    char line[PATH_MAX + 64];
    snprintf(line, sizeof line, "%s/proc/self/cgroup", root);
    FILE *file = fopen(line, "re");
    bool found = false;
    while (file && !found && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        found = !strncmp(line, "0::/", 4) && strlen(line + 3) < PATH_MAX;
        if (found) strcpy(path, line + 3);
    }
    if (file) fclose(file);
    return found;
}

/* Of a line of mountinfo, "41 31 0:38 TOP MOUNT OPTIONS… - TYPE SOURCE OPTIONS": what of a hierarchy of version 2 is
 * mounted where. */
static bool parse_mount(const char *line, char top[PATH_MAX], char mount[PATH_MAX]) {
    const char *type = strstr(line, " - ");
    if (!type || strncmp(type, " - cgroup2 ", 11)) return false;
    if (sscanf(line, "%*s %*s %*s %4095s %4095s", top, mount) != 2) return false;
    unescape(top);
    unescape(mount);
    if (!strcmp(top, "/")) top[0] = 0;
    return true;
}

bool shd_cgroup_find(const char *root, char *folder, size_t bytes) {
    char line[3 * PATH_MAX], own[PATH_MAX], top[PATH_MAX], mount[PATH_MAX];
    if (!read_own(root, own)) return false;
    snprintf(line, sizeof line, "%s/proc/self/mountinfo", root);
    FILE *file = fopen(line, "re");
    bool found = false;
    while (file && !found && fgets(line, sizeof line, file)) {
        if (!parse_mount(line, top, mount)) continue;
        /* A mount may show a part of the hierarchy only; "/.." is above what a namespace sees. */
        size_t length = strlen(top);
        bool within = !strncmp(own, top, length) && (!own[length] || own[length] == '/');
        if (!within || !strncmp(own + length, "/../", 4)) continue;
        int written = snprintf(folder, bytes, "%s%s%s", root, mount, own + length);
        found = written > 0 && (size_t)written < bytes;
    }
    if (file) fclose(file);
    return found;
}
