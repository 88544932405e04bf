/* The report of a run: a page that shows how it went, from the files in its folder.
 *
 * Reading order: run_record.h (what there is), history.h (how rows become columns), scale.h and trace.h (how columns
 * become lines), chart.h, page.h. */
#ifndef SHD_REPORT_REPORT_H
#define SHD_REPORT_REPORT_H

#include <sherd/status.h>

/* The report of the run whose metrics.jsonl is in `dir`, as HTML that needs nothing else. `made_s`: when it is made,
 * since 1970. A run that goes on may be reported; damaged lines are counted on the page.
 * Owns: release *html with shd_report_release. Fails: DATA (`dir` has no metrics.jsonl), IO, ARGUMENT (a path too long),
 * MEMORY. */
sherd_status shd_report_make(const char *dir, double made_s, char **html);
/* Accepts NULL. */
void shd_report_release(char *html);

#endif
