/* Small JSON files, written whole or not at all. */
#ifndef SHD_LAUNCH_JSON_FILE_H
#define SHD_LAUNCH_JSON_FILE_H

#include <jansson.h>
#include <sherd/status.h>
#include <stddef.h>

/* Writes `root`, over what is there, and takes it (NULL: building it found no memory). Fails: MEMORY, IO. */
sherd_status shd_json_file_write(const char *path, json_t *root);
/* `text` as a JSON string, NULL as null; what is no UTF-8 in it is '?'. NULL: no memory. */
json_t *shd_json_file_text(const char *text);

#endif
