/* How fast a folder's disk is, measured as checkpoints are written and read, past the page cache where that is
 * possible; and what its file system can do. */
#ifndef SHD_TRAIN_CHECKS_DISK_PROBE_H
#define SHD_TRAIN_CHECKS_DISK_PROBE_H

#include <sherd/status.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct shd_disk_rates {
    int64_t bytes; /* written, and read again */
    double write_bytes_per_s, read_bytes_per_s;
    bool direct; /* past the page cache; else reading was mostly from it, and writing block by block to the disk */
    bool named;  /* the file system has no files without a name: ours had one for an instant */
} shd_disk_rates;

/* Writes at most `most_bytes`, in blocks of 4 MiB, into a file in `folder` that has no name, so that nothing of it is
 * left however the process ends; makes it durable; reads it back, and compares. Ends each of the two about `most_ms`
 * after its begin, sooner when the bytes are done; one block is always measured.
 * Fails: IO (no file, no room, other bytes than were written), MEMORY. */
sherd_status shd_disk_probe(const char *folder, int64_t most_bytes, double most_ms, shd_disk_rates *out);

typedef struct shd_disk_abilities {
    bool locks;  /* files, by flock: claims of folders rest on it */
    bool syncs;  /* folders: names of checkpoints outlive a power failure */
    bool direct; /* past the page cache (O_DIRECT) */
} shd_disk_abilities;

/* What the folder's file system can do, tried on such a file. Fails: IO (no file; a folder that fails to be synced, as
 * every save then would, while one that knows no syncing is left as it is). */
sherd_status shd_disk_abilities_find(const char *folder, shd_disk_abilities *out);

#endif
