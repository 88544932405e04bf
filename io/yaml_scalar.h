/* What a scalar means: the core schema of YAML 1.2, made strict.
 *
 * Numbers that YAML dialects read differently (leading zeros, 0x, 0o, underscores, base 60) are ODD and never a
 * value. */
#ifndef SHD_IO_YAML_SCALAR_H
#define SHD_IO_YAML_SCALAR_H

#include "io/yaml_tree.h"

typedef enum shd_scalar_kind {
    SHD_SCALAR_EMPTY, /* nothing was written */
    SHD_SCALAR_NULL,
    SHD_SCALAR_BOOL,
    SHD_SCALAR_INT,  /* decimal digits; may be beyond 64 bits */
    SHD_SCALAR_REAL, /* with a point or an exponent; may be infinite or not a number */
    SHD_SCALAR_ODD,
    SHD_SCALAR_TEXT
} shd_scalar_kind;

typedef struct shd_scalar {
    shd_scalar_kind kind;
    bool boolean;
    bool overflow;   /* an INT beyond 64 bits, a REAL beyond double or so small that it became 0 */
    int64_t integer; /* of an INT */
    double real;     /* of an INT or REAL */
} shd_scalar;

/* `node` is a scalar. */
shd_scalar shd_scalar_read(const shd_yaml_node *node);

/* True for no, off, n, yes, on, y in any case, with what they meant in YAML 1.1. */
bool shd_scalar_is_old_boolean(const char *text, bool *meaning);

#endif
