/* TensorBoard's event files: the numbers of metrics.jsonl as scalars.
 *
 * A file is a row of records: the length of the data (8 bytes, little-endian), its masked CRC-32C, the data, their masked
 * CRC-32C; the data are a protobuf message (tensorboard.proto). Each record is written by one write(2). */
#ifndef SHD_IO_TENSORBOARD_H
#define SHD_IO_TENSORBOARD_H

#include "io/metrics.h"

typedef struct shd_tensorboard shd_tensorboard;

/* Makes `dir` and in it a file of its own, events.out.tfevents.SECONDS.HOST.PID, with room for what a viewer must know:
 * the version, and that a run starts at `first_step`, from which on it forgets what older files say.
 * Owns: close *out with shd_tensorboard_close. Fails: IO, ARGUMENT (a path too long), MEMORY. */
sherd_status shd_tensorboard_open(const char *dir, int64_t first_step, shd_tensorboard **out);
/* Accepts NULL. */
void shd_tensorboard_close(shd_tensorboard *board);

/* Appends the figures of a row, and its memory by use, at row->step, as scalars "group/name". Allocates nothing. Fails:
 * IO; what follows a torn record cannot be read, so nothing more should be written. */
sherd_status shd_tensorboard_write(shd_tensorboard *board, const shd_metrics_row *row);

#endif
