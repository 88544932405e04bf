/* An allocator that fails when told to. Linked into a test, failing_memory.c takes the place of
 * runtime/base/memory.c. */
#ifndef TESTS_SUPPORT_FAILING_MEMORY_H
#define TESTS_SUPPORT_FAILING_MEMORY_H

#include "runtime/base/memory.h"

/* From now on `calls` allocations succeed and all later ones fail. */
void failing_memory_after(int64_t calls);
/* Objects that have not been given back. */
int64_t failing_memory_live(void);

#endif
