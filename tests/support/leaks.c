/* Linked into every suite of a build with AddressSanitizer: Criterion loses some 48-byte objects of its own when tests of
 * very different length run in parallel. Leaks of sherd's are reported as before. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void) { return "leak:libcriterion"; }
