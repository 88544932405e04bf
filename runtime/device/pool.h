/* A pool of threads that sleep when there is nothing to do. The caller of shd_pool_run is worker 0 and works too.
 *
 * Who runs a task is not fixed, so a task's result must depend on its index alone. */
#ifndef SHD_DEVICE_POOL_H
#define SHD_DEVICE_POOL_H

#include <sherd/status.h>
#include <stdint.h>

typedef struct shd_pool shd_pool;

/* `worker` in [0, thread_count) names the thread, for scratch memory of its own. */
typedef void (*shd_task_fn)(void *argument, int64_t index, int32_t worker);

/* Starts thread_count - 1 threads. Fails: ARGUMENT, MEMORY. */
sherd_status shd_pool_create(int32_t thread_count, shd_pool **out);
/* Accepts NULL. */
void shd_pool_destroy(shd_pool *pool);
int32_t shd_pool_threads(const shd_pool *pool);

/* Runs task(argument, i, worker) for i in [0, task_count) and returns when all are done. Not reentrant; one caller at a
 * time. */
void shd_pool_run(shd_pool *pool, shd_task_fn task, void *argument, int64_t task_count);

#endif
