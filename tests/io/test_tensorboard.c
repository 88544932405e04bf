/* That the bytes are right another program tells: tests/system/test_seeing.py reads them with a reader of its own. */
#include "io/tensorboard.h"
#include "runtime/base/memory.h"
#include "tests/io/make_job.h"

#include <criterion/criterion.h>
#include <glob.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

TestSuite(tensorboard, .init = enter_fresh_folder, .fini = leave_fresh_folder);

static const shd_metrics_row row = {.step = 3, .loss = 1.5, .items = "tokens", .tokens = 8, .compute_ms = 2};

static size_t files_there(void) {
    glob_t found;
    size_t count = glob("board/events.out.tfevents.*", 0, NULL, &found) == 0 ? found.gl_pathc : 0;
    globfree(&found);
    return count;
}

Test(tensorboard, writes_without_allocating_and_gives_all_back) {
    shd_tensorboard *board = NULL;
    cr_assert_eq(shd_tensorboard_open("board", 0, &board), SHERD_OK, "%s", sherd_last_error());
    int64_t calls = shd_memory_calls();
    for (int i = 0; i < 10; i++) cr_assert_eq(shd_tensorboard_write(board, &row), SHERD_OK);
    cr_assert_eq(shd_memory_calls(), calls);
    shd_tensorboard_close(board);
    shd_tensorboard_close(NULL);
    cr_assert_eq(shd_memory_held(SHD_MEMORY_OBJECTS), 0);
}

Test(tensorboard, makes_a_file_for_every_run_also_within_a_second) {
    for (size_t i = 1; i <= 3; i++) {
        shd_tensorboard *board = NULL;
        cr_assert_eq(shd_tensorboard_open("board", 0, &board), SHERD_OK);
        shd_tensorboard_close(board);
        cr_assert_eq(files_there(), i);
    }
}

Test(tensorboard, says_which_file_it_cannot_write) {
    shd_tensorboard *board = NULL;
    write_text("board", "");
    cr_assert_eq(shd_tensorboard_open("board", 0, &board), SHERD_IO);
    cr_assert_not_null(strstr(sherd_last_error(), "board"));
    cr_assert_eq(shd_tensorboard_open("good", 0, &board), SHERD_OK);
    signal(SIGXFSZ, SIG_IGN);
    const struct rlimit limit = {100, RLIM_INFINITY};
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    sherd_status status = shd_tensorboard_write(board, &row);
    const struct rlimit none = {RLIM_INFINITY, RLIM_INFINITY};
    setrlimit(RLIMIT_FSIZE, &none);
    cr_assert_eq(status, SHERD_IO);
    cr_assert_not_null(strstr(sherd_last_error(), "good/events.out.tfevents."), "%s", sherd_last_error());
    shd_tensorboard_close(board);
}
