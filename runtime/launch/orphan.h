/* Processes that the launcher has inherited: what ranks started, moved to sessions of its own, and left behind. */
#ifndef SHD_LAUNCH_ORPHAN_H
#define SHD_LAUNCH_ORPHAN_H

#include <sys/types.h>

enum { SHD_ORPHAN_KNOWN_MAX = 256 };

/* The children that the process had before: they are nobody's orphans. */
typedef struct shd_orphans {
    pid_t known[SHD_ORPHAN_KNOWN_MAX];
    int known_count;
    int was_subreaper;
} shd_orphans;

/* From now on orphaned descendants become children of this process. */
void shd_orphans_collect(shd_orphans *orphans);
/* Kills and reaps all that have come since, and those that they leave in turn; then the process is as it was before. */
void shd_orphans_end(shd_orphans *orphans);

#endif
