#include "runtime/train/machine.h"

#include "io/json.h"
#include "runtime/base/cgroup.h"
#include "runtime/base/utf8.h"
#include "runtime/model/model.h"

#include <gnu/libc-version.h>
#include <limits.h>
#include <link.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

enum { LINE_BYTES = 4096 };

/* --- small files of the kernel ------------------------------------------------------------------------------------ */

/* What follows `key` and the characters of `between` in the first line of the file that begins so; false without one. */
static bool find_line(const char *path, const char *key, const char *between, char out[LINE_BYTES]) {
    FILE *file = fopen(path, "re");
    bool found = false;
    char line[LINE_BYTES];
    while (file && !found && fgets(line, sizeof line, file)) {
        if (strncmp(line, key, strlen(key)) != 0) continue;
        const char *value = line + strlen(key) + strspn(line + strlen(key), between);
        snprintf(out, LINE_BYTES, "%.*s", (int)strcspn(value, "\n\""), value);
        found = true;
    }
    if (file) fclose(file);
    return found;
}

/* --- kernel and processor ----------------------------------------------------------------------------------------- */

json_t *shd_machine_kernel_json(void) {
    struct utsname names;
    char distribution[LINE_BYTES];
    json_t *kernel = json_object();
    if (uname(&names) == 0) {
        json_object_set_new(kernel, "system", shd_json_from_text(names.sysname));
        json_object_set_new(kernel, "release", shd_json_from_text(names.release));
        json_object_set_new(kernel, "machine", shd_json_from_text(names.machine));
    }
    if (find_line("/etc/os-release", "PRETTY_NAME=", "\"", distribution))
        json_object_set_new(kernel, "distribution", shd_json_from_text(distribution));
    return kernel;
}

/* Whether `name` is one of the words of `words`. */
static bool has_word(const char *words, const char *name) {
    size_t length = strlen(name);
    for (const char *at = words; (at = strstr(at, name)); at += length)
        if ((at == words || at[-1] == ' ') && (at[length] == ' ' || at[length] == 0)) return true;
    return false;
}

/* Of the processor's features those that decide which kernels run. */
static json_t *features_json(void) {
    static const char *const names[] = {"avx2",        "fma",         "f16c",     "avx512f",
                                        "avx512bw",    "avx512dq",    "avx512vl", "avx512_bf16",
                                        "avx512_fp16", "avx512_vbmi", "amx_tile", "amx_bf16"};
    char flags[LINE_BYTES];
    json_t *list = json_array();
    if (!find_line("/proc/cpuinfo", "flags", "\t: ", flags)) return list;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (has_word(flags, names[i])) json_array_append_new(list, json_string(names[i]));
    return list;
}

json_t *shd_machine_cpu_json(void) {
    char model[LINE_BYTES];
    cpu_set_t allowed;
    char kernels[256];
    json_t *cpu = json_object();
    if (find_line("/proc/cpuinfo", "model name", "\t: ", model))
        json_object_set_new(cpu, "model", shd_json_from_text(model));
    json_object_set_new(cpu, "cores", json_integer(sysconf(_SC_NPROCESSORS_ONLN)));
    if (sched_getaffinity(0, sizeof allowed, &allowed) == 0)
        json_object_set_new(cpu, "usable_cores", json_integer(CPU_COUNT(&allowed)));
    json_object_set_new(cpu, "features", features_json());
    shd_model_kernels(kernels, sizeof kernels);
    json_object_set_new(cpu, "computes_with", shd_json_from_text(kernels));
    return cpu;
}

/* --- memory ------------------------------------------------------------------------------------------------------- */

static json_t *node_json(int node) {
    char path[96], cpus[LINE_BYTES], key[40], total[LINE_BYTES];
    snprintf(path, sizeof path, "/sys/devices/system/node/node%d/cpulist", node);
    if (!find_line(path, "", "", cpus)) return NULL;
    json_t *json = json_object();
    json_object_set_new(json, "node", json_integer(node));
    json_object_set_new(json, "cpus", shd_json_from_text(cpus));
    snprintf(path, sizeof path, "/sys/devices/system/node/node%d/meminfo", node);
    snprintf(key, sizeof key, "Node %d MemTotal:", node);
    if (find_line(path, key, " ", total))
        json_object_set_new(json, "bytes", json_integer(strtoll(total, NULL, 10) << 10));
    return json;
}

json_t *shd_machine_memory_json(void) {
    enum { NODES = 1024 };
    int64_t limit_bytes = shd_cgroup_memory("");
    json_t *memory = json_object(), *nodes = json_array();
    json_int_t page = sysconf(_SC_PAGESIZE);
    json_object_set_new(memory, "total_bytes", json_integer(page * sysconf(_SC_PHYS_PAGES)));
    if (limit_bytes < INT64_MAX) json_object_set_new(memory, "limit_bytes", json_integer(limit_bytes));
    for (int node = 0; node < NODES; node++) {
        json_t *json = node_json(node);
        if (json) json_array_append_new(nodes, json);
    }
    json_object_set_new(memory, "nodes", nodes);
    return memory;
}

/* --- libraries ---------------------------------------------------------------------------------------------------- */

static const char *last_part(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static int add_library(struct dl_phdr_info *about, size_t size, void *user) {
    (void)size;
    char file[PATH_MAX];
    const char *name = about->dlpi_name ? last_part(about->dlpi_name) : "";
    if (strstr(name, ".so") && !strstr(name, "vdso")) /* the kernel's own is no file */
        json_object_set_new(user, name, shd_json_from_text(realpath(about->dlpi_name, file) ? last_part(file) : name));
    return 0;
}

json_t *shd_machine_libraries_json(void) {
    char products[64];
    json_t *libraries = json_object();
    shd_model_library(products, sizeof products);
    dl_iterate_phdr(add_library, libraries);
    json_object_set_new(libraries, "glibc", json_string(gnu_get_libc_version()));
    json_object_set_new(libraries, "products", shd_json_from_text(products));
    return libraries;
}
