/* A full disk, played by the limit of a file's size. */
#ifndef TESTS_SUPPORT_FILE_LIMIT_H
#define TESTS_SUPPORT_FILE_LIMIT_H

#include <criterion/criterion.h>
#include <signal.h>
#include <sys/resource.h>

/* No file may be longer; -1: as long as it likes. */
static inline void limit_files(int bytes) {
    struct rlimit limit;
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &limit);
    limit.rlim_cur = bytes < 0 ? limit.rlim_max : (rlim_t)bytes;
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

#endif
