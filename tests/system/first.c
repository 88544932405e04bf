/* A rank of launches under test: the first thing it does is to look at the clock. Then it says, in one line: its rank, that
 * time in nanoseconds (CLOCK_MONOTONIC), MASTER_PORT, TORCHELASTIC_RESTART_COUNT, how many descriptors it has, how many
 * its launcher has. It ends with the exit code that is its argument, or 0. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

/* -1: cannot be seen. */
static int descriptors_of(int pid) {
    char path[32];
    snprintf(path, sizeof path, "/proc/%d/fd", pid);
    DIR *folder = opendir(path);
    if (!folder) return -1;
    int count = 0;
    for (struct dirent *entry; (entry = readdir(folder));) count += entry->d_name[0] != '.';
    closedir(folder);
    return pid == (int)getpid() ? count - 1 : count; /* without the one we look through */
}

static const char *variable(const char *name) {
    const char *value = getenv(name);
    return value ? value : "-";
}

int main(int argc, char **argv) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    char line[256];
    int bytes =
        snprintf(line, sizeof line, "%s %lld %s %s %d %d\n", variable("RANK"),
                 (long long)now.tv_sec * 1000000000 + now.tv_nsec, variable("MASTER_PORT"),
                 variable("TORCHELASTIC_RESTART_COUNT"), descriptors_of((int)getpid()), descriptors_of((int)getppid()));
    if (write(1, line, (size_t)bytes) != bytes) return 9;
    return argc > 1 ? atoi(argv[1]) : 0;
}
