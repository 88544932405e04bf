/* Checks of a machine, whatever the job: what is there, tried rather than believed where that takes no more than a
 * tenth of a second. */
#include "runtime/base/cgroup.h"
#include "runtime/base/clock.h"
#include "runtime/base/memory.h"
#include "runtime/base/spare.h"
#include "runtime/base/status.h"
#include "runtime/model/model.h"
#include "runtime/train/checks/check_table.h"

#include <errno.h>
#include <fcntl.h>
#include <gnu/libc-version.h>
#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <sched.h>
#include <sherd/version.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>
#include <yaml.h>
#include <zstd.h>

enum { TEXT_BYTES = 4096, TRIED_BYTES = 64 << 20 };

/* The beginning of a file of the kernel's, "" when there is none; without the newline at its end. */
static void read_text(const char *path, char text[TEXT_BYTES]) {
    int file = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = file < 0 ? 0 : read(file, text, TEXT_BYTES - 1);
    if (file >= 0) close(file);
    text[got > 0 ? got : 0] = 0;
    size_t length = strlen(text);
    if (length > 0 && text[length - 1] == '\n') text[length - 1] = 0;
}

/* What follows "KEY…: " in the kernel's lists, up to the end of the line; "" when it is not there. */
static void find_line(const char *text, const char *key, char out[128]) {
    const char *line = strstr(text, key), *colon = line ? strchr(line, ':') : NULL;
    size_t length = colon ? strcspn(colon + 1, "\n") : 0;
    snprintf(out, 128, "%.*s", (int)(length > 0 ? length - 1 : 0), colon ? colon + 2 : "");
}

/* --- system and processor ----------------------------------------------------------------------------------------- */

sherd_status shd_check_system(shd_checkup *checkup, shd_finding *out) {
    (void)checkup;
    struct utsname system;
    char host[256] = "";
    uname(&system);
    gethostname(host, sizeof host - 1);
    shd_finding_say(out, "%s: %s %s on %s, glibc %s; sherd %s", host, system.sysname, system.release, system.machine,
                    gnu_get_libc_version(), SHERD_VERSION);
    return SHERD_OK;
}

sherd_status shd_check_cpu(shd_checkup *checkup, shd_finding *out) {
    (void)checkup;
    char text[TEXT_BYTES], model[128];
    cpu_set_t allowed;
    long there = sysconf(_SC_NPROCESSORS_ONLN);
    long usable = sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? CPU_COUNT(&allowed) : there;
    double quota = shd_cgroup_cores(""), load = 0;
    shd_model_speed speed;
    read_text("/proc/cpuinfo", text);
    find_line(text, "model name", model);
    SHD_TRY(shd_model_measure(&speed));
    if (getloadavg(&load, 1) != 1) load = -1;
    shd_finding_say(out,
                    "%s, %ld of %ld cores may be used, load %.2f; a thread does %.0f GFLOP/s in fp32, %.0f in bf16",
                    model[0] ? model : "unknown processor", usable, there, load, speed.fp32_gflops, speed.bf16_gflops);
    shd_finding_note(out, "cores", (double)usable);
    shd_finding_note(out, "cores_online", (double)there);
    shd_finding_note(out, "load", load);
    shd_finding_note(out, "fp32_gflops", speed.fp32_gflops);
    shd_finding_note(out, "bf16_gflops", speed.bf16_gflops);
    if (quota <= 0 || quota >= (double)usable) return SHERD_OK;
    shd_finding_note(out, "quota_cores", quota);
    shd_finding_add(out, "; the control group grants the time of %.3g cores", quota);
    shd_finding_warn(out, "threads beyond that stand still part of the time: set run.threads x run.ranks to %.0f",
                     quota >= 1 ? quota : 1);
    return SHERD_OK;
}

/* --- memory ------------------------------------------------------------------------------------------------------- */

/* Bytes in huge pages of the mapping that begins at `start`; -1: the kernel does not say. `key` as in
 * /proc/self/smaps. */
static int64_t count_huge(const void *start, const char *key) {
    char line[256], begin[32];
    bool inside = false;
    int64_t found = -1;
    size_t length = strlen(key);
    FILE *maps = fopen("/proc/self/smaps", "re");
    snprintf(begin, sizeof begin, "%llx-", (unsigned long long)(uintptr_t)start);
    while (maps && found < 0 && fgets(line, sizeof line, maps)) {
        if (strncmp(line, begin, strlen(begin)) == 0)
            inside = true;
        else if (inside && strncmp(line, key, length) == 0)
            found = strtoll(line + length, NULL, 10) * 1024;
    }
    if (maps) fclose(maps);
    return found;
}

static double take_rate(double ms) { return ms > 0 ? TRIED_BYTES / ms * 1e3 : 0; }

sherd_status shd_check_memory(shd_checkup *checkup, shd_finding *out) {
    (void)checkup;
    char thp[TEXT_BYTES];
    double start_ms = shd_clock_ms();
    void *some = shd_map(TRIED_BYTES);
    double ms = shd_clock_ms() - start_ms;
    if (!some)
        return shd_fail(SHERD_MEMORY, "no memory for %s, %s are free", shd_bytes_say(TRIED_BYTES).text,
                        shd_bytes_say((double)shd_memory_free()).text);
    int64_t huge = count_huge(some, "AnonHugePages:");
    shd_unmap(some, TRIED_BYTES);
    read_text("/sys/kernel/mm/transparent_hugepage/enabled", thp);
    shd_finding_say(out, "%s, %s of them free; %s taken at %s/s, %.0f%% of it in huge pages",
                    shd_bytes_say((double)shd_memory_total()).text, shd_bytes_say((double)shd_memory_free()).text,
                    shd_bytes_say(TRIED_BYTES).text, shd_bytes_say(take_rate(ms)).text,
                    huge > 0 ? 100.0 * (double)huge / TRIED_BYTES : 0);
    shd_finding_note(out, "total_bytes", (double)shd_memory_total());
    shd_finding_note(out, "free_bytes", (double)shd_memory_free());
    shd_finding_note(out, "take_bytes_per_s", take_rate(ms));
    shd_finding_note(out, "huge_bytes", (double)huge);
    if (huge == 0)
        shd_finding_warn(out,
                         "the kernel gave none of the huge pages that were asked for (transparent_hugepage is '%s'): "
                         "optimizer and products are slower without; as root, echo madvise > "
                         "/sys/kernel/mm/transparent_hugepage/enabled",
                         thp);
    return SHERD_OK;
}

/* Ranks share memory in files without names, which no mount limits; /dev/shm is not used. */
sherd_status shd_check_shared_memory(shd_checkup *checkup, shd_finding *out) {
    (void)checkup;
    struct statvfs mounted;
    int file = memfd_create("sherd-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (file < 0) return shd_fail(SHERD_MEMORY, "cannot make shared memory: %s", strerror(errno));
    double start_ms = shd_clock_ms();
    bool sized = ftruncate(file, TRIED_BYTES) == 0 && fallocate(file, 0, 0, TRIED_BYTES) == 0;
    char *some = sized ? mmap(NULL, TRIED_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) : MAP_FAILED;
    bool sealed = some != MAP_FAILED && fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0;
    int cause = errno;
    close(file);
    if (!sealed) {
        if (some != MAP_FAILED) munmap(some, TRIED_BYTES);
        if (cause == EFBIG)
            shd_finding_advise(out, "raise the limit of file sizes, which holds here too (ulimit -f unlimited)");
        return shd_fail(SHERD_MEMORY, "no shared memory of %s: %s", shd_bytes_say(TRIED_BYTES).text, strerror(cause));
    }
    (void)madvise(some, TRIED_BYTES, MADV_HUGEPAGE);
    memset(some, 1, TRIED_BYTES);
    double ms = shd_clock_ms() - start_ms;
    int64_t huge = count_huge(some, "ShmemPmdMapped:");
    munmap(some, TRIED_BYTES);
    shd_finding_say(out, "%s between processes taken at %s/s, %.0f%% of it in huge pages",
                    shd_bytes_say(TRIED_BYTES).text, shd_bytes_say(take_rate(ms)).text,
                    huge > 0 ? 100.0 * (double)huge / TRIED_BYTES : 0);
    shd_finding_note(out, "take_bytes_per_s", take_rate(ms));
    shd_finding_note(out, "huge_bytes", (double)huge);
    if (statvfs("/dev/shm", &mounted) != 0) return SHERD_OK;
    double bytes = (double)mounted.f_blocks * (double)mounted.f_frsize;
    shd_finding_add(out, "; /dev/shm, which is not used, has %s", shd_bytes_say(bytes).text);
    shd_finding_note(out, "dev_shm_bytes", bytes);
    return SHERD_OK;
}

/* --- limits, clock ----------------------------------------------------------------------------------------------- */

/* "open files 1024", or "open files unlimited"; `unit` 0: a count, else bytes. */
static void say_limit(shd_finding *out, const char *name, const char *note, int resource, bool bytes) {
    struct rlimit limit;
    if (getrlimit(resource, &limit) != 0) return;
    const char *comma = out->text[0] ? ", " : "";
    if (limit.rlim_cur == RLIM_INFINITY)
        shd_finding_add(out, "%s%s unlimited", comma, name);
    else if (bytes)
        shd_finding_add(out, "%s%s %s", comma, name, shd_bytes_say((double)limit.rlim_cur).text);
    else
        shd_finding_add(out, "%s%s %llu", comma, name, (unsigned long long)limit.rlim_cur);
    if (limit.rlim_cur != RLIM_INFINITY) shd_finding_note(out, note, (double)limit.rlim_cur);
}

/* Whether a launcher can make a control group for what its ranks start; it does without. */
static void say_control_groups(shd_finding *out) {
    char folder[PATH_MAX], list[PATH_MAX + 32];
    bool can = shd_cgroup_find("", folder, sizeof folder) && access(folder, W_OK | X_OK) == 0;
    if (can) snprintf(list, sizeof list, "%s/cgroup.procs", folder);
    can = can && access(list, W_OK) == 0;
    shd_finding_add(out, "%s%s", out->text[0] ? ", " : "",
                    can ? "jobs have control groups" : "no control groups for jobs");
    shd_finding_note(out, "control_groups", can);
}

/* Of these only what is too low for a job matters, and that its own checks find. */
sherd_status shd_check_limits(shd_checkup *checkup, shd_finding *out) {
    (void)checkup;
    shd_finding_say(out, "%s", "");
    say_limit(out, "open files", "open_files", RLIMIT_NOFILE, false);
    say_limit(out, "processes", "processes", RLIMIT_NPROC, false);
    say_limit(out, "address space", "address_space_bytes", RLIMIT_AS, true);
    say_limit(out, "file size", "file_size_bytes", RLIMIT_FSIZE, true);
    say_limit(out, "locked memory", "locked_memory_bytes", RLIMIT_MEMLOCK, true);
    say_control_groups(out);
    return SHERD_OK;
}

/* 2024-01-01: this build is younger. */
enum { EARLIEST_S = 1704067200 };

sherd_status shd_check_clock(shd_checkup *checkup, shd_finding *out) {
    (void)checkup;
    enum { READINGS = 2000 };
    struct timespec now;
    struct tm parts;
    char text[64];
    double first_ms = shd_clock_ms(), last_ms = first_ms, least_ms = INFINITY;
    for (int i = 0; i < READINGS; i++) {
        double ms = shd_clock_ms();
        if (ms < last_ms) return shd_fail(SHERD_IO, "the monotonic clock went back by %g ms", last_ms - ms);
        if (ms > last_ms) least_ms = fmin(least_ms, ms - last_ms);
        last_ms = ms;
    }
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &parts);
    strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S UTC", &parts);
    double call_ns = (last_ms - first_ms) / READINGS * 1e6;
    shd_finding_say(out, "%s; never back in %d readings of %.0f ns, steps of %.0f ns", text, READINGS, call_ns,
                    least_ms * 1e6);
    shd_finding_note(out, "unix_s", (double)now.tv_sec);
    shd_finding_note(out, "read_ns", call_ns);
    shd_finding_note(out, "step_ns", least_ms * 1e6);
    if (now.tv_sec < EARLIEST_S)
        return shd_fail(SHERD_IO, "the clock says %s, which is over: files and events would have wrong times", text);
    return SHERD_OK;
}

/* --- what is built in --------------------------------------------------------------------------------------------- */

sherd_status shd_check_backends(shd_checkup *checkup, shd_finding *out) {
    (void)checkup;
    char kernels[256];
    shd_model_kernels(kernels, sizeof kernels);
    shd_finding_say(out,
                    "device cpu (%s); between ranks on it shm, which is for one host, with one rank self; none over "
                    "a network is built in",
                    kernels);
    return SHERD_OK;
}

sherd_status shd_check_libraries(shd_checkup *checkup, shd_finding *out) {
    (void)checkup;
    int major, minor, patch;
    char products[256];
    unsigned hash = XXH_versionNumber();
    yaml_get_version(&major, &minor, &patch);
    shd_model_library(products, sizeof products);
    shd_finding_say(out, "%s, zstd %s, xxhash %u.%u.%u, jansson %s, libyaml %d.%d.%d; compiled by " __VERSION__,
                    products, ZSTD_versionString(), hash / 10000, hash / 100 % 100, hash % 100, JANSSON_VERSION, major,
                    minor, patch);
    return SHERD_OK;
}
