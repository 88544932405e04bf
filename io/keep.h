/* Memory that is released all at once: the texts and tables of one object. */
#ifndef SHD_IO_KEEP_H
#define SHD_IO_KEEP_H

#include <stddef.h>

typedef struct shd_keep shd_keep;

/* NULL when memory is out. */
shd_keep *shd_keep_create(void);
/* Accepts NULL. Releases everything taken from `keep`. */
void shd_keep_destroy(shd_keep *keep);

/* `bytes` zeroed, aligned for any type, living as long as `keep`; NULL when memory is out. */
void *shd_keep_take(shd_keep *keep, size_t bytes);
/* A copy of the first `length` bytes of `text`, terminated. */
char *shd_keep_text(shd_keep *keep, const char *text, size_t length);

#endif
