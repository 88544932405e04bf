#include "runtime/launch/quota.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The two numbers of a limit, in one file or in two; false: there is none. */
static bool read_pair(const char *folder, bool unified, double *quota, double *period) {
    char path[PATH_MAX + 32];
    snprintf(path, sizeof path, "%s/%s", folder, unified ? "cpu.max" : "cpu.cfs_quota_us");
    FILE *file = fopen(path, "re");
    if (!file) return false;
    int got = unified ? fscanf(file, "%lf %lf", quota, period) : fscanf(file, "%lf", quota);
    fclose(file);
    if (unified || got != 1) return got == 2; /* "max 100000": no limit */
    snprintf(path, sizeof path, "%s/cpu.cfs_period_us", folder);
    if (!(file = fopen(path, "re"))) return false;
    got = fscanf(file, "%lf", period);
    fclose(file);
    return got == 1;
}

/* The tightest limit from the group `path` up to the root of its hierarchy. */
static double find_tightest(const char *mount, const char *path, bool unified) {
    char folder[PATH_MAX];
    double least = 0, quota, period;
    int length = snprintf(folder, sizeof folder, "%s%s", mount, path);
    if (length < 0 || length >= PATH_MAX) return 0;
    for (size_t end = strlen(folder), top = strlen(mount); end >= top; end--) {
        if (end > top && folder[end] && folder[end] != '/') continue;
        folder[end] = 0;
        bool limited = read_pair(folder, unified, &quota, &period) && quota > 0 && period > 0;
        if (limited && (least == 0 || quota / period < least)) least = quota / period;
    }
    return least;
}

/* Whether `list`, "cpu,cpuacct", has the controller of processor time. */
static bool has_cpu(const char *list) {
    for (const char *at = list; at; at = strchr(at, ',')) {
        at += *at == ',';
        if (!strncmp(at, "cpu", 3) && (at[3] == ',' || !at[3])) return true;
    }
    return false;
}

double shd_quota_find(const char *root) {
    char line[PATH_MAX + 64], path[PATH_MAX], mount[PATH_MAX];
    double least = 0;
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    FILE *file = fopen(path, "re");
    /* "0::/path" of version 2, "3:cpu,cpuacct:/path" of version 1. */
    while (file && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        char *list = strchr(line, ':'), *group = list ? strchr(list + 1, ':') : NULL;
        if (!group) continue;
        *group++ = 0;
        bool unified = !*++list;
        if (!unified && !has_cpu(list)) continue;
        snprintf(mount, sizeof mount, unified ? "%s/sys/fs/cgroup" : "%s/sys/fs/cgroup/cpu", root);
        double found = find_tightest(mount, group, unified);
        if (found > 0 && (least == 0 || found < least)) least = found;
    }
    if (file) fclose(file);
    return least;
}
