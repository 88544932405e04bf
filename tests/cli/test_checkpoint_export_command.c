#include "runtime/cli/commands.h"
#include "tests/io/checkpoints.h"
#include "tests/support/find_tensor.h"

#include <criterion/criterion.h>
#include <criterion/redirect.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static int export(int argc, ...) {
    char *argv[6];
    va_list words;
    va_start(words, argc);
    for (int i = 0; i < argc; i++) argv[i] = va_arg(words, char *);
    va_end(words);
    return shd_command_checkpoint_export.run(&shd_command_checkpoint_export, argc, argv);
}

Test(checkpoint_export, writes_the_newest_checkpoint_and_prints_the_file, .init = cr_redirect_stdout) {
    char *folder = make_folder(), *to = path_in(folder, "out.safetensors"), said[300];
    small_job old = {.parent = path_in(folder, "c"), .step = 20, .world_size = 3, .seed = 1}, last = old;
    last.step = 40, last.seed = 2;
    cr_assert(save_job(&old) == SHERD_OK && save_job(&last) == SHERD_OK);
    cr_assert_eq(export(3, old.parent, "--to", to), SHD_EXIT_DONE);
    shd_safetensors *file = NULL;
    cr_assert_eq(shd_safetensors_open(to, &file), SHERD_OK, "%s", sherd_last_error());
    float values[2];
    cr_assert_eq(shd_safetensors_read(file, find_tensor(file, "wte.weight"), 3, 2, values), SHERD_OK);
    cr_assert(values[0] == job_value(&last, 0, 0, 3) && values[1] == job_value(&last, 0, 0, 4));
    shd_safetensors_close(file);
    snprintf(said, sizeof said, "%s\n", to);
    fflush(stdout);
    cr_assert_stdout_eq_str(said);
    remove_folder(folder);
}

Test(checkpoint_export, says_what_is_wrong, .init = cr_redirect_stderr) {
    char *folder = make_folder(), *to = path_in(folder, "out.safetensors");
    small_job job = {.parent = folder, .step = 20, .world_size = 2, .seed = 1};
    cr_assert_eq(export(0), SHD_EXIT_USAGE);
    cr_assert_eq(export(1, folder), SHD_EXIT_USAGE);
    cr_assert_eq(export(4, folder, folder, "--to", to), SHD_EXIT_USAGE);
    cr_assert_eq(export(3, folder, to, "more"), SHD_EXIT_USAGE);
    cr_assert_eq(export(4, folder, to, "--dtype", "int8"), SHD_EXIT_USAGE);
    cr_assert_eq(export(4, folder, to, "--format", "gguf"), SHD_EXIT_USAGE);
    cr_assert_eq(export(3, folder, "--to", to), SHD_EXIT_DATA);
    cr_assert_eq(save_job(&job), SHERD_OK);
    cr_assert_eq(export(3, folder, "--to", folder), SHD_EXIT_USAGE);
    cr_assert_eq(export(3, folder, "--to", path_in(folder, "no/x")), SHD_EXIT_FAILED);
    write_whole(path_in(job_path(&job), "rank-00001.bin"), "x", 1);
    cr_assert_eq(export(3, folder, "--to", to), SHD_EXIT_DATA);
    remove_folder(folder);
}
