/* Devices of a machine: none is fine, as long as nobody expects one. */
#include "runtime/base/status.h"
#include "runtime/device/device.h"
#include "runtime/train/checks/check_table.h"

#include <glob.h>
#include <string.h>

static bool has_file(const char *pattern) {
    glob_t found = {0};
    bool some = glob(pattern, 0, NULL, &found) == 0;
    globfree(&found);
    return some;
}

static void say_one(shd_finding *out, const shd_device_facts *facts, int32_t count) {
    if (count > 1) shd_finding_add(out, "%d x ", (int)count);
    shd_finding_add(out, "%s (%s, compute capability %d.%d%s)", facts->name,
                    shd_bytes_say((double)facts->total_bytes).text, (int)facts->major, (int)facts->minor,
                    facts->is_usable ? "" : ", which is too old");
}

/* One after the other, equal ones together. *usable: how many can be opened. */
static sherd_status say_devices(const shd_device_ops *backend, int32_t count, shd_finding *out, int32_t *usable) {
    shd_device_facts first = {0}, next;
    int32_t equal = 0;
    for (int32_t i = 0; i < count; i++) {
        SHD_TRY(backend->describe(i, &next));
        *usable += next.is_usable;
        if (i == 0) shd_finding_say(out, "%s, driver for %s, built with %s: ", backend->name, next.driver, next.api);
        bool same = i > 0 && strcmp(first.name, next.name) == 0 && first.total_bytes == next.total_bytes;
        if (i > 0 && !same) {
            say_one(out, &first, equal);
            shd_finding_add(out, ", ");
        }
        equal = same ? equal + 1 : 1;
        first = next;
    }
    say_one(out, &first, equal);
    return SHERD_OK;
}

/* What keeps training from using a GPU that is there is worth a warning; that there is none is not. */
sherd_status shd_check_devices(shd_checkup *checkup, shd_finding *out) {
    (void)checkup;
    const shd_device_ops *backend = shd_device_backend();
    bool is_seen = has_file("/dev/nvidia[0-9]*") || has_file("/dev/dri/renderD*");
    int32_t count = 0, usable = 0;
    char libraries[SHD_FINDING_BYTES];
    shd_finding_note(out, "gpu_seen", is_seen);
    if (!backend) {
        shd_finding_say(out, "none: this build has no backend for GPUs%s", is_seen ? ", and there is one" : "");
        if (has_file("/dev/nvidia[0-9]*"))
            shd_finding_warn(out, "build sherd where the GPU's toolkit is, with -Dgpu=enabled: docs/GPU.md");
        return SHERD_OK;
    }
    bool some = backend->count(&count) == SHERD_OK;
    shd_finding_note(out, "devices", count);
    if (!some || count == 0) {
        shd_finding_say(out, "none for %s: %s", backend->name, some ? "it counts none" : sherd_last_error());
        if (has_file("/dev/nvidia[0-9]*")) shd_finding_warn(out, "a GPU is there, and jobs will not find it");
        return SHERD_OK;
    }
    SHD_TRY(say_devices(backend, count, out, &usable));
    shd_finding_note(out, "usable_devices", usable);
    if (backend->libraries(libraries, sizeof libraries) == SHERD_OK)
        shd_finding_add(out, "; %s", libraries);
    else
        shd_finding_warn(out, "no device can be opened: %s", sherd_last_error());
    return SHERD_OK;
}
