/* Stacks that a host thread switches between. */
#ifndef SHD_TESTS_SOFT_FIBER_H
#define SHD_TESTS_SOFT_FIBER_H

#include <stddef.h>

typedef struct soft_fiber {
    void *context;        /* of a fiber that does not run */
    unsigned char *stack; /* its lowest page is out of reach */
} soft_fiber;

/* Makes it begin with entry(), which never returns, when it is first switched to. Its stack is made, or used again. */
void soft_fiber_prepare(soft_fiber *fiber, void (*entry)(void));
/* Returns when somebody switches back to `from`. */
void soft_fiber_switch(soft_fiber *from, soft_fiber *to);

#endif
