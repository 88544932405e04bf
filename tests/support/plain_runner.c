/* Runs Criterion tests without Criterion's runner, for builds with ThreadSanitizer.
 *
 * Criterion 2.4.1 starts tests through a memory arena at an address that ThreadSanitizer does not allow ("Could not
 * initialize inheritable arena"). Tests are found where Criterion's macros put them, in the section cr_tst; the
 * functions those macros call are defined here and take the place of the library's. One forked process a test, one
 * after another, each with the time-out it asks for. */
#include <criterion/criterion.h>
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { DEFAULT_TIMEOUT_S = 120, SLOWDOWN = 4, ASSERTION_FAILED = 101, SKIPPED = 102 };

extern struct criterion_test *__start_cr_tst[], *__stop_cr_tst[];
/* Suites have a section only where a test declares one. */
extern struct criterion_suite *__start_cr_sts[] __attribute__((weak)), *__stop_cr_sts[] __attribute__((weak));

void criterion_send_assert(struct criterion_assert_stats *stats) {
    if (!stats->passed) fprintf(stderr, "%s:%u: %s\n", stats->file, stats->line, stats->message);
}

void criterion_abort_test(void) { _Exit(ASSERTION_FAILED); }
void criterion_continue_test(void) { _Exit(ASSERTION_FAILED); }
void criterion_skip_test(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    printf("       ");
    vprintf(format, arguments);
    printf("\n");
    va_end(arguments);
    fflush(NULL);
    _Exit(SKIPPED);
}
void cri_asserts_passed_incr(void) {}
void criterion_internal_test_setup(void) {}
void criterion_internal_test_teardown(void) {}
void criterion_internal_test_main(void (*test)(void)) { test(); }

/* Whether the test ended as it should: by itself with 0, or as its declaration says. */
static bool ended_well(const struct criterion_test_extra_data *data, int status) {
    if (WIFSIGNALED(status)) return data->signal == WTERMSIG(status);
    return data->signal == 0 && WEXITSTATUS(status) == data->exit_code;
}

/* What TestSuite() says for the tests of its name; NULL when there is none. */
static const struct criterion_test_extra_data *suite_of(const struct criterion_test *test) {
    for (struct criterion_suite **suite = __start_cr_sts; suite < __stop_cr_sts; suite++)
        if (*suite && (*suite)->data && strcmp((*suite)->name, test->category) == 0) return (*suite)->data;
    return NULL;
}

/* Neither passed nor failed: skipped. */
typedef enum outcome { FAILED, PASSED, LEFT_OUT } outcome;

static outcome run_test(const struct criterion_test *test) {
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        const struct criterion_test_extra_data *suite = suite_of(test);
        double limit_s = test->data->timeout > 0       ? test->data->timeout
                         : suite && suite->timeout > 0 ? suite->timeout
                                                       : DEFAULT_TIMEOUT_S;
        alarm((unsigned)(limit_s * SLOWDOWN) + 1);
        if (suite && suite->init) suite->init();
        if (test->data->init) test->data->init();
        test->test();
        if (test->data->fini) test->data->fini();
        if (suite && suite->fini) suite->fini();
        exit(0);
    }
    int status = 0;
    while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR) {}
    static const char *const words[] = {"FAIL", "PASS", "SKIP"};
    outcome result = child > 0 && ended_well(test->data, status) ? PASSED : FAILED;
    if (WIFEXITED(status) && WEXITSTATUS(status) == SKIPPED) result = LEFT_OUT;
    printf("[%s] %s::%s\n", words[result], test->category, test->name);
    if (result == FAILED) printf("       wait status 0x%x\n", (unsigned)status);
    return result;
}

int main(int argc, char **argv) {
    const char *only = NULL;
    for (int i = 1; i < argc; i++)
        if (strncmp(argv[i], "--filter=", 9) == 0) only = argv[i] + 9;
    int passed = 0, failed = 0;
    for (struct criterion_test **test = __start_cr_tst; test < __stop_cr_tst; test++) {
        if (!*test || (only && !strstr((*test)->name, only))) continue;
        outcome result = run_test(*test);
        passed += result == PASSED;
        failed += result == FAILED;
    }
    printf("%d passed, %d failed\n", passed, failed);
    return failed ? 1 : 0;
}
