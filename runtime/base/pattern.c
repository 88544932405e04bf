#include "runtime/base/pattern.h"

#include "runtime/base/status.h"

#include <fnmatch.h>
#include <stdio.h>

bool shd_pattern_matches(const char *pattern, const char *name) { return fnmatch(pattern, name, 0) == 0; }

sherd_status shd_pattern_fail(const char *key, const char *pattern, const sherd_tensor *tensors, int32_t count) {
    enum { SHOWN = 6 };
    char names[512] = "";
    size_t used = 0;
    for (int32_t i = 0; i < count && i < SHOWN && used < sizeof names; i++)
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", i ? ", " : "", tensors[i].name);
    if (count > SHOWN && used < sizeof names)
        snprintf(names + used, sizeof names - used, ", … %s (%d in all)", tensors[count - 1].name, count);
    return shd_fail(SHERD_CONFIG, "%s: \"%s\" matches no tensor; there are %s", key, pattern, names);
}
