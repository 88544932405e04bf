/* What becomes part of the page: text from files is escaped here and nowhere else, so that nothing in it can be taken for
 * markup or script. */
#ifndef SHD_REPORT_MARKUP_H
#define SHD_REPORT_MARKUP_H

#include "io/text.h"

#include <stddef.h>
#include <stdint.h>

/* A text between tags, or within a quoted attribute. Bytes that are no UTF-8, and characters that cannot be shown, become
 * U+FFFD; line ends and tabs stay. */
void shd_markup_text(shd_text *out, const char *text);
/* The same of the first `bytes` bytes at most, with an ellipsis where something is left out. */
void shd_markup_head(shd_text *out, const char *text, size_t bytes);
/* A quoted JSON string for within a script element, where "</script>" would end it. */
void shd_markup_json(shd_text *out, const char *text);

enum { SHD_NUMBER_BYTES = 32 };

/* A number for people, four digits: "0.0003", "1.532", "12.3k", "4.56M"; "nan", "inf". */
void shd_number_text(double value, char out[SHD_NUMBER_BYTES]);
/* A whole number with separators: "12,345". */
void shd_count_text(int64_t value, char out[SHD_NUMBER_BYTES]);
/* A span of time: "0:42", "1:02:03", "3 d 4:05:06". */
void shd_span_text(double seconds, char out[SHD_NUMBER_BYTES]);
/* Bytes, in the unit that fits: "12.3 MiB". */
void shd_size_text(double bytes, char out[SHD_NUMBER_BYTES]);
/* A moment in UTC, "2026-03-01 12:30:05 UTC", from seconds since 1970; "" for what is none. */
void shd_moment_text(double seconds, char out[SHD_NUMBER_BYTES]);

/* Adds a number with the fewest digits that give its bits again: 0.003, not 0.0030000000000000001. It is finite. */
void shd_markup_exact(shd_text *out, double value);
/* Adds a number as briefly as `digits` significant digits allow, as JSON and SVG take it. It is finite. */
void shd_markup_number(shd_text *out, double value, int digits);

#endif
