#include "tests/io/make_job.h"

#include "tests/io/bad_jobs.h"
#include "tests/support/scratch.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Outside of Criterion's reach too (bad-jobs uses it): what cannot go on stops. */
static void stop(const char *what) {
    perror(what);
    exit(1);
}

static char folder[SCRATCH_BYTES];

void enter_fresh_folder(void) {
    if (!scratch_folder(folder) || chdir(folder) != 0) stop("a folder for the test");
}

static int remove_one(const char *path, const struct stat *about, int kind, struct FTW *place) {
    (void)about, (void)kind, (void)place;
    return remove(path);
}

void leave_fresh_folder(void) {
    if (chdir("/") != 0 || nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS) != 0) stop(folder);
}

void write_file(const char *path, const void *bytes, size_t length) {
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(bytes, 1, length, file) != length || fclose(file) != 0) stop(path);
}

void write_text(const char *path, const char *text) { write_file(path, text, strlen(text)); }

char *read_file(const char *path, size_t *length) {
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END) != 0) stop(path);
    *length = (size_t)ftell(file);
    rewind(file);
    char *bytes = calloc(*length + 1, 1);
    if (!bytes || fread(bytes, 1, *length, file) != *length) stop(path);
    fclose(file);
    return bytes;
}

char *make_bad_job(const bad_job *row) {
    size_t bytes = sizeof good_job + (row->with ? strlen(row->with) : 0) + (row->add ? strlen(row->add) : 0) +
                   (row->whole ? strlen(row->whole) : 0);
    char *job = calloc(bytes, 1);
    if (!job) stop("memory");
    const char *place = row->swap ? strstr(good_job, row->swap) : NULL;
    if (row->swap && !place) {
        fprintf(stderr, "%s: '%s' is not in the good job\n", row->what, row->swap);
        exit(1);
    }
    if (row->whole)
        strcpy(job, row->whole);
    else if (place)
        sprintf(job, "%.*s%s%s", (int)(place - good_job), good_job, row->with, place + strlen(row->swap));
    else
        sprintf(job, "%s%s", good_job, row->add ? row->add : "");
    return job;
}

sherd_status load_job(const char *text, const char *const settings[3], shd_job **out) {
    shd_job_setting list[3];
    int32_t count = 0;
    while (count < 3 && settings && settings[count]) {
        list[count] = (shd_job_setting){.text = settings[count]};
        count++;
    }
    write_text("job.yaml", text);
    return shd_job_load("job.yaml", list, count, out);
}
