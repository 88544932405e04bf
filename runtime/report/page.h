/* The page: one HTML file that needs nothing else, from anywhere. */
#ifndef SHD_REPORT_PAGE_H
#define SHD_REPORT_PAGE_H

#include "io/text.h"
#include "runtime/report/chart.h"
#include "runtime/report/run_record.h"

/* The whole page. `made_s`: when, since 1970. Owns: release *html with shd_free. Fails: MEMORY. */
sherd_status shd_page_make(const shd_run_record *record, double made_s, char **html);

/* Its parts, in their order; a part of which nothing is known is left out. They fail with MEMORY; failures to grow are
 * told by shd_text_finish. */

/* Name, how it ended, what ran, and the numbers that matter most. */
void shd_page_summary(shd_text *out, const shd_run_record *record, double made_s);
/* What went wrong: of the job, and of reading its files. */
void shd_page_troubles(shd_text *out, const shd_run_record *record);
/* Every chart that the rows have values for. */
sherd_status shd_page_charts(shd_canvas *canvas, const shd_run_record *record);
/* Events by step, above the charts; and as a table. */
void shd_page_lanes(const shd_canvas *canvas, const shd_run_record *record);
void shd_page_events(shd_text *out, const shd_run_record *record);
void shd_page_alerts(shd_text *out, const shd_run_record *record);
void shd_page_checkpoints(shd_text *out, const shd_run_record *record);
/* The job and where it came from, whatever keys they have. */
void shd_page_job(shd_text *out, const shd_run_record *record);
void shd_page_provenance(shd_text *out, const shd_run_record *record);

/* A JSON value: objects as keys beside values, lists of objects with the same keys as tables. Of very many values the
 * rest is left out, which is said. `nulls`: are shown too. */
void shd_page_tree(shd_text *out, const json_t *value, bool nulls);

/* The style and the script, and its SHA-256 in base64: the page allows this script and no other. Made by embed.py. */
extern const char shd_page_style[], shd_page_script[], shd_page_script_hash[];

#endif
