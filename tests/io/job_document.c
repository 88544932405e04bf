/* Writes docs/JOB.md: job-document FILE. */
#include "io/job.h"

#include <stdio.h>

int main(int count, char **arguments) {
    char *text;
    FILE *file = count == 2 ? fopen(arguments[1], "w") : NULL;
    if (!file || shd_job_document(&text) != SHERD_OK) return 1;
    return fputs(text, file) < 0 || fclose(file) != 0;
}
