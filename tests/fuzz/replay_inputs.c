/* Runs a harness on files, where there is no libFuzzer: the seeds and everything that was ever found, in every build and
 * under every sanitizer.
 *
 * usage: PROGRAM FILE|FOLDER… */
#include "tests/fuzz/fuzz.h"

#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int replay_file(const char *path) {
    FILE *file = fopen(path, "rb");
    if (!file) {
        perror(path);
        return -1;
    }
    fseek(file, 0, SEEK_END);
    size_t bytes = (size_t)ftell(file);
    rewind(file);
    /* Exactly as long as the file, so that the address sanitizer sees what reads beyond it. */
    uint8_t *data = malloc(bytes ? bytes : 1);
    bool whole = data && fread(data, 1, bytes, file) == bytes;
    fclose(file);
    printf("%s\n", path);
    fflush(stdout); /* the last one printed is the one that stopped */
    if (whole) LLVMFuzzerTestOneInput(data, bytes);
    free(data);
    return whole ? 1 : -1;
}

/* How many files were fed; -1 when one cannot be read. */
static int replay(const char *path) {
    DIR *listing = opendir(path);
    if (!listing) return replay_file(path);
    int count = 0;
    for (struct dirent *entry; (entry = readdir(listing)) != NULL;) {
        char inner[4096];
        if (entry->d_name[0] == '.') continue;
        snprintf(inner, sizeof inner, "%s/%s", path, entry->d_name);
        int more = replay(inner);
        count = more < 0 || count < 0 ? -1 : count + more;
    }
    closedir(listing);
    return count;
}

int main(int argc, char **argv) {
    LLVMFuzzerInitialize(&argc, &argv);
    int count = 0;
    for (int i = 1; i < argc; i++) {
        int more = replay(argv[i]);
        if (more < 0) return 1;
        count += more;
    }
    printf("%d inputs, %lld whole readings\n", count, (long long)fuzz_accepted_count());
    if (fuzz_accepted_count() == 0) printf("nothing was read to its end: do the seeds still fit the format?\n");
    return fuzz_accepted_count() == 0;
}
