/* The arguments of every command that works on a job: JOB.yaml [-n RANKS] [--set KEY=VALUE]… */
#ifndef SHD_CLI_JOB_ARGUMENTS_H
#define SHD_CLI_JOB_ARGUMENTS_H

#include "io/job.h"
#include "runtime/cli/options.h"

enum { SHD_OPTION_SET = 1000, SHD_JOB_MAX_SETTINGS = 128, SHD_JOB_OWN_SETTINGS = 2 };

/* Rows for a command's table of options. */
#define SHD_JOB_OPTIONS                                                                                                \
    {'n', "ranks", "RANKS", "Number of ranks; the same as --set run.ranks=RANKS."}, {                                  \
        SHD_OPTION_SET, "set", "KEY=VALUE",                                                                            \
            "Set a key of the job (--set train.steps=10); may be repeated, later ones win."                            \
    }

/* What was given, in its order. Owns: texts are borrowed from argv, but for those of -n. Begin with zeros. */
typedef struct shd_job_arguments {
    const char *path;  /* the job file; NULL: none was given */
    const char *ranks; /* what stood after the last -n; NULL: none was given */
    shd_job_setting settings[SHD_JOB_MAX_SETTINGS + SHD_JOB_OWN_SETTINGS];
    int32_t setting_count;
    char ranks_source[40], ranks_text[40];
    char world_text[40]; /* as ranks_text, of shd_job_arguments_set_world */
} shd_job_arguments;

/* Takes an option of SHD_JOB_OPTIONS, or the operand. False, with what is wrong said, for a second operand or a value
 * that is none. */
bool shd_job_arguments_take(shd_job_arguments *given, const shd_command *command, int id, const char *value);

/* Sets checkpoint.resume to auto: a run that was begun goes on. */
void shd_job_arguments_go_on(shd_job_arguments *given);
/* Sets run.ranks, as `source`, which is kept, tells. */
void shd_job_arguments_set_world(shd_job_arguments *given, const char *source, int32_t ranks);

/* The text of `job` in a file in memory, which is inherited by what this process starts; -1: it cannot be made. */
int shd_job_text_file(const shd_job *job);
/* Loads the job. Returns SHD_EXIT_DONE, or another exit code after saying what is wrong. Owns: destroy *out with
 * shd_job_destroy. */
int shd_job_arguments_load(const shd_job_arguments *given, const shd_command *command, shd_job **out);
/* The same from a file of shd_job_text_file: the job file may have changed since. */
int shd_job_arguments_load_text(const shd_job_arguments *given, int file, shd_job **out);

#endif
