/* Files for tests, in a folder of their own that is the working directory from then on. */
#ifndef TESTS_IO_MAKE_JOB_H
#define TESTS_IO_MAKE_JOB_H

#include "io/job.h"

#include <stddef.h>

/* Makes a fresh folder and enters it. Criterion runs every test in a process of its own. */
void enter_fresh_folder(void);
/* Removes it with all that is in it. */
void leave_fresh_folder(void);
void write_file(const char *path, const void *bytes, size_t length);
void write_text(const char *path, const char *text);
/* The file's bytes, terminated; from malloc. */
char *read_file(const char *path, size_t *length);

struct bad_job;
/* The job of a row of bad_jobs.h; from malloc. */
char *make_bad_job(const struct bad_job *row);

/* Loads `text` as job.yaml with up to 3 settings. */
sherd_status load_job(const char *text, const char *const settings[3], shd_job **out);

#endif
