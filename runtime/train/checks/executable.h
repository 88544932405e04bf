/* Which program a process runs, so that ranks of a job can tell that they run the same. */
#ifndef SHD_TRAIN_CHECKS_EXECUTABLE_H
#define SHD_TRAIN_CHECKS_EXECUTABLE_H

#include <sherd/session.h>
#include <stdint.h>

/* A hash of the file, read whole; 0: it cannot be read. */
uint64_t shd_executable_hash(void);
/* A hash of the identity that the linker gave it, at once; where it gave none, that of the file. */
uint64_t shd_executable_build(void);
/* Makes sure that all ranks run the same build: whoever started them may have started others, which promise no common
 * bits. Collective, as shd_session_compare. Fails: MISMATCH on all ranks alike; what ends a session. */
sherd_status shd_executable_compare(sherd_session *session);

#endif
