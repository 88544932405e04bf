#include "runtime/cli/cause.h"

#include "runtime/cli/options.h"
#include "runtime/cli/verdict.h"
#include "runtime/launch/error_file.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* How much a cause says. */
typedef enum cause_weight { WEIGHT_NONE, WEIGHT_BLAMES_PEER, WEIGHT_PASSED_ON, WEIGHT_OWN } cause_weight;

int shd_causes_create(void) {
    int file = memfd_create("sherd-causes", 0);
    /* Appending, records of several ranks do not overwrite each other. */
    if (file >= 0) fcntl(file, F_SETFL, O_APPEND);
    return file;
}

void shd_causes_clear(int file) {
    /* A file in memory always can. */
    if (file >= 0 && ftruncate(file, 0) < 0) return;
}

bool shd_causes_add(int file, int32_t rank, sherd_status status, const char *text) {
    shd_cause cause = {.rank = rank, .pid = getpid(), .status = status};
    snprintf(cause.text, sizeof cause.text, "%s", text);
    return file >= 0 && fcntl(file, F_GET_SEALS) >= 0 && write(file, &cause, sizeof cause) == (ssize_t)sizeof cause;
}

void shd_cause_leave(const char *text) {
    const char *path = getenv("TORCHELASTIC_ERROR_FILE");
    char cause[SHD_CAUSE_BYTES];
    /* Its own failure would take the place of the last error. */
    snprintf(cause, sizeof cause, "%s", text);
    if (path && *path && shd_error_file_write(path, cause) != SHERD_OK)
        fprintf(stderr, "sherd: warning: %s\n", sherd_last_error());
}

bool shd_cause_blames_peer(const shd_cause *cause) { return shd_status_exit_code(cause->status) == SHD_EXIT_RANK_LOST; }

/* "rank 1: …" from rank 0, or "it could not be saved: rank 1: …", is what the ranks agreed on: the text is rank 1's, who
 * leaves its own name out. Makes it what rank 1 would have said; false where it is none. */
static bool take_passed_on(shd_cause *cause) {
    for (char *at = cause->text; at; at = strstr(at, ": rank ")) {
        int from = -1, skip = 0;
        if (at != cause->text) at += 2;
        if (sscanf(at, "rank %d: %n", &from, &skip) != 1 || skip == 0 || from == cause->rank) continue;
        cause->rank = from;
        cause->pid = 0;
        memmove(at, at + skip, strlen(at + skip) + 1);
        return true;
    }
    return false;
}

bool shd_causes_first(int file, shd_cause *out) {
    cause_weight best = WEIGHT_NONE;
    shd_cause cause;
    for (off_t at = 0; pread(file, &cause, sizeof cause, at) == (ssize_t)sizeof cause; at += (off_t)sizeof cause) {
        cause_weight weight = WEIGHT_OWN;
        cause.text[sizeof cause.text - 1] = 0;
        if (shd_cause_blames_peer(&cause))
            weight = WEIGHT_BLAMES_PEER;
        else if (take_passed_on(&cause))
            weight = WEIGHT_PASSED_ON;
        if (weight <= best) continue;
        best = weight;
        *out = cause;
    }
    return best != WEIGHT_NONE;
}
