/* Prints every refused job of bad_jobs.h with the message it gets, as a Markdown table. */
#include "tests/io/bad_jobs.h"

#include "tests/io/make_job.h"

#include <stdio.h>
#include <stdlib.h>

/* Line ends and control characters as C writes them, and no column borders. */
static void print_cell(const char *text) {
    for (; *text; text++) {
        unsigned char byte = (unsigned char)*text;
        if (byte == '\n')
            printf("⏎ ");
        else if (byte < 0x20 || byte == 0x7f)
            printf("\\x%02x", byte);
        else if (byte == '|')
            printf("\\|");
        else
            putchar(byte);
    }
}

int main(void) {
    enter_fresh_folder();
    printf("| what | written | message |\n| --- | --- | --- |\n");
    for (int i = 0; i < BAD_JOB_COUNT; i++) {
        const bad_job *row = &bad_jobs[i];
        char *text = make_bad_job(row);
        shd_job *job = NULL;
        bool accepted = load_job(text, row->set, &job) == SHERD_OK;
        printf("| %s | `", row->what);
        print_cell(row->whole ? row->whole : row->with ? row->with : row->add ? row->add : row->set[0]);
        printf("` | ");
        print_cell(accepted ? "ACCEPTED" : sherd_last_error());
        printf(" |\n");
        shd_job_destroy(job);
        free(text);
    }
    leave_fresh_folder();
    return 0;
}
