#include "io/advance.h"

#include "runtime/base/status.h"

sherd_status shd_advance_tell(const shd_advance *advance, int64_t done_bytes, int64_t all_bytes) {
    if (!advance || !advance->moved || advance->moved(advance->user, done_bytes, all_bytes)) return SHERD_OK;
    return shd_fail(SHERD_STATE, "stopped; nothing was written");
}
