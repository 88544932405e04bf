/* Why ranks failed, told to their launcher before they tell their peers' launcher anything by ending: records in a file
 * without a name, which all of them inherit. So the first cause is known however the ranks end afterwards. */
#ifndef SHD_CLI_CAUSE_H
#define SHD_CLI_CAUSE_H

#include <sherd/status.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { SHD_CAUSE_BYTES = 1000 };

typedef struct shd_cause {
    int32_t rank;
    pid_t pid; /* 0: the rank has not spoken for itself */
    sherd_status status;
    char text[SHD_CAUSE_BYTES];
} shd_cause;

/* Makes the file; its descriptor is inherited by what this process starts. -1 when it cannot be made. */
int shd_causes_create(void);
/* Forgets all: before ranks are started again. */
void shd_causes_clear(int file);
/* Adds the cause of this process. False when `file` is no such file. */
bool shd_causes_add(int file, int32_t rank, sherd_status status, const char *text);
/* Leaves `text` in the error file that the launcher of this process has named, be it ours or torchrun's, if any has. */
void shd_cause_leave(const char *text);
/* The cause to show: the first that a rank found in itself, else the first that was passed on from another, else the
 * first by which a rank says that it lost others. False when there is none. */
bool shd_causes_first(int file, shd_cause *out);
/* Whether it says "another rank was lost", not "I failed". */
bool shd_cause_blames_peer(const shd_cause *cause);

#endif
