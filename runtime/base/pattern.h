/* Shell patterns over tensor names, as users write them to freeze tensors and to group them. */
#ifndef SHD_BASE_PATTERN_H
#define SHD_BASE_PATTERN_H

#include <sherd/model.h>
#include <sherd/status.h>
#include <stdbool.h>

/* fnmatch without flags: * and ? match dots and slashes too. */
bool shd_pattern_matches(const char *pattern, const char *name);

/* Fails with CONFIG: `key: "pattern" matches no tensor; there are …` and the first of the `count` names. */
sherd_status shd_pattern_fail(const char *key, const char *pattern, const sherd_tensor *tensors, int32_t count);

#endif
