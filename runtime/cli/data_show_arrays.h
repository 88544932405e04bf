/* `sherd data show` of array files. */
#ifndef SHD_CLI_DATA_SHOW_ARRAYS_H
#define SHD_CLI_DATA_SHOW_ARRAYS_H

#include <stdbool.h>
#include <stdint.h>

/* Prints what the .npy or safetensors file holds, and the first `count` numbers of each array. Returns the exit code. */
int shd_show_arrays(const char *path, int64_t count, bool json);

#endif
