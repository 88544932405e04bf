/* Work of the toy model's brackets on the software device: enqueued, with all memory that it touches declared. */
#ifndef SHD_TESTS_SESSION_TOY_LATER_H
#define SHD_TESTS_SESSION_TOY_LATER_H

#include "support/toy.h"

#include <stdatomic.h>

/* A toy_run_fn. `line`: an atomic_int that gets the line of the first expectation that fails when work runs. It and the
 * oracle must stay until the session is destroyed. */
int toy_enqueue(const toy_work *work, void *line);

#endif
