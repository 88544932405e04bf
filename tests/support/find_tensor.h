/* The tensor of a safetensors file with a name, for tests. */
#ifndef TESTS_SUPPORT_FIND_TENSOR_H
#define TESTS_SUPPORT_FIND_TENSOR_H

#include "io/safetensors.h"

#include <string.h>

/* NULL when there is none. */
static inline const shd_safetensors_entry *find_tensor(const shd_safetensors *file, const char *name) {
    for (int32_t i = 0; i < shd_safetensors_count(file); i++)
        if (strcmp(shd_safetensors_at(file, i)->name, name) == 0) return shd_safetensors_at(file, i);
    return NULL;
}

#endif
