/* A checkpoint's parameters in a form that others read. */
#ifndef SHD_IO_CHECKPOINT_EXPORT_H
#define SHD_IO_CHECKPOINT_EXPORT_H

#include "io/advance.h"
#include "io/checkpoint.h"
#include "io/job.h"

typedef struct shd_export {
    const char *to;
    sherd_dtype dtype; /* FP32, BF16 or FP16: of what is written; FP32 is what the checkpoint holds */
    /* The job that saved it: then `to` is a folder, made where it is missing, for Hugging Face's transformers, with
     * model.safetensors under their names and config.json. NULL: a file, under the names of the checkpoint. */
    const shd_job *transformers;
    const shd_advance *advance; /* may be NULL; bytes are those that are written */
} shd_export;

/* Writes all parameters of an open checkpoint into one safetensors file, in the manifest's order. What it replaces is
 * replaced once all has been read, checked and written, config.json after that. Memory does not grow with the model.
 * Fails: ARGUMENT (`to` is a folder or lies in the checkpoint; a family that transformers lacks), DATA (damage; a value
 * that is infinite in FP16), IO, MEMORY. */
sherd_status shd_checkpoint_export_as(const shd_checkpoint *checkpoint, const shd_export *form);
/* The same of the checkpoint at `path`, or the newest in it, into one file in FP32. Fails: likewise; DATA (none is
 * there). */
sherd_status shd_checkpoint_export(const char *path, const char *to);

#endif
