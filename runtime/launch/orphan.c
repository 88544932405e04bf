#include "runtime/launch/orphan.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* The kernel lists adopted children under the process's first thread. Where it lists none (no CONFIG_PROC_CHILDREN)
 * there is nothing to end. */
static int list_children(pid_t *children, int max) {
    char path[64];
    snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
    FILE *file = fopen(path, "re");
    if (!file) return 0;
    int count = 0, pid;
    while (count < max && fscanf(file, "%d", &pid) == 1) children[count++] = pid;
    fclose(file);
    return count;
}

static bool is_known(const shd_orphans *orphans, pid_t pid) {
    for (int i = 0; i < orphans->known_count; i++)
        if (orphans->known[i] == pid) return true;
    return false;
}

void shd_orphans_collect(shd_orphans *orphans) {
    orphans->was_subreaper = 0;
    prctl(PR_GET_CHILD_SUBREAPER, &orphans->was_subreaper);
    orphans->known_count = list_children(orphans->known, SHD_ORPHAN_KNOWN_MAX);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
}

void shd_orphans_end(shd_orphans *orphans) {
    bool found = orphans->known_count < SHD_ORPHAN_KNOWN_MAX; /* with more we cannot tell whose they are */
    while (found) {
        pid_t children[SHD_ORPHAN_KNOWN_MAX];
        int count = list_children(children, SHD_ORPHAN_KNOWN_MAX);
        found = false;
        for (int i = 0; i < count; i++) {
            if (is_known(orphans, children[i])) continue;
            found = true;
            kill(children[i], SIGKILL);
            while (waitpid(children[i], NULL, 0) < 0 && errno == EINTR) {}
        }
    }
    prctl(PR_SET_CHILD_SUBREAPER, orphans->was_subreaper);
}
