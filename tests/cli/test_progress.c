#include "runtime/cli/progress.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A progress line that writes into `text`, as to a file. */
static char *text;
static size_t text_bytes;

static shd_progress open_progress(int64_t steps, int64_t every) {
    shd_progress progress;
    FILE *file = tmpfile();
    shd_progress_init(&progress, file, steps, every);
    return progress;
}
static const char *contents(shd_progress *progress) {
    fflush(progress->out);
    rewind(progress->out);
    free(text);
    text = NULL;
    text_bytes = 0;
    ssize_t got = getdelim(&text, &text_bytes, 0, progress->out);
    fseek(progress->out, 0, SEEK_END);
    return got < 0 ? "" : text;
}
static shd_progress_row row(int64_t step, double loss) {
    return (shd_progress_row){.step = step,
                              .loss = loss,
                              .grad_norm = 1.5,
                              .lr = 3e-4,
                              .tokens_per_s = 1000,
                              .peak_bytes = 5 << 20,
                              .validation_loss = (double)NAN};
}

Test(progress, a_file_gets_a_line_every_so_many_steps_and_the_last) {
    shd_progress progress = open_progress(5, 2);
    shd_progress_start(&progress, 0);
    for (int step = 1; step <= 5; step++) {
        shd_progress_row shown = row(step, 4);
        shd_progress_step(&progress, &shown);
    }
    const char *all = contents(&progress);
    cr_assert_null(strstr(all, "step 1/5"));
    cr_assert(strstr(all, "step 2/5"));
    cr_assert_null(strstr(all, "step 3/5"));
    cr_assert(strstr(all, "step 4/5"));
    cr_assert(strstr(all, "step 5/5"));
    cr_assert_null(strchr(all, '\033'), "a file must not hold control sequences");
    cr_assert_null(strchr(all, '\r'));
    shd_progress_fini(&progress);
}

Test(progress, a_step_with_a_validation_loss_is_shown) {
    shd_progress progress = open_progress(100, 50);
    shd_progress_start(&progress, 0);
    shd_progress_row shown = row(7, 4);
    shown.validated = true;
    shown.validation_loss = 3.25;
    shd_progress_step(&progress, &shown);
    cr_assert(strstr(contents(&progress), "validation 3.2500"));
    shd_progress_finish(&progress, true);
    cr_assert(strstr(contents(&progress), "validation loss 3.2500 after step 7"));
    shd_progress_fini(&progress);
}

Test(progress, a_validation_without_a_counted_target_is_shown_as_such) {
    shd_progress progress = open_progress(100, 50);
    shd_progress_start(&progress, 0);
    shd_progress_row shown = row(7, (double)NAN);
    shown.validated = true;
    shd_progress_step(&progress, &shown);
    cr_assert(strstr(contents(&progress), "validation nan"), "%s", text);
    shd_progress_finish(&progress, true);
    cr_assert(strstr(contents(&progress), ", loss nan, validation loss nan after step 7\n"), "%s", text);
    shd_progress_fini(&progress);
}

/* Steps 1 to 5, back to 3, 4 to 8, back to 3, 4 to 6. */
Test(progress, steps_that_were_taken_back_have_taken_time_like_others) {
    shd_progress progress = open_progress(10, 50);
    shd_progress_start(&progress, 0);
    for (int i = 0; i < 13; i++) {
        shd_progress_row shown = row(i < 5 ? i + 1 : i < 10 ? i - 1 : i - 6, 4);
        shown.skipped = i == 4 || i == 9 || i == 2;
        shd_progress_step(&progress, &shown);
    }
    char line[SHD_PROGRESS_BYTES];
    /* The last row is that of step 6; 13 steps in 26 seconds, so 8 for the last four. */
    shd_progress_format(&progress, progress.start_ms + 26e3, SHD_PROGRESS_BYTES - 1, line);
    cr_assert(strstr(line, "step 6/10") && strstr(line, "left 0:08"), "%s", line);
    shd_progress_finish(&progress, true);
    cr_assert(strstr(contents(&progress), "done: 13 steps in 0:00, 3 of 13 steps skipped, 7 taken back, loss "), "%s",
              text);
    shd_progress_fini(&progress);
}

Test(progress, the_summary_counts_skipped_steps_and_a_single_step) {
    static const char *const says[] = {"done: 1 step in 0:00, 1 of 1 step skipped, loss ",
                                       "done: 2 steps in 0:00, 2 of 2 steps skipped, loss ",
                                       "done: 3 steps in 0:00, 2 of 3 steps skipped, loss "};
    for (int count = 1; count <= 3; count++) {
        shd_progress progress = open_progress(100, 50);
        shd_progress_start(&progress, 10);
        for (int step = 1; step <= count; step++) {
            shd_progress_row shown = row(10 + step, 4);
            shown.skipped = step < 3;
            shd_progress_step(&progress, &shown);
        }
        shd_progress_finish(&progress, true);
        cr_expect(strstr(contents(&progress), says[count - 1]), "%s", text);
        shd_progress_fini(&progress);
    }
    shd_progress progress = open_progress(100, 50);
    shd_progress_row shown = row(1, 4);
    shd_progress_step(&progress, &shown);
    shd_progress_finish(&progress, true);
    cr_expect(strstr(contents(&progress), "done: 1 step in 0:00, loss "), "%s", text);
    shd_progress_fini(&progress);
}

Test(progress, a_skipped_step_says_so_in_place_of_its_norm) {
    shd_progress progress = open_progress(100, 1);
    shd_progress_start(&progress, 0);
    shd_progress_row shown = row(10, 4);
    shown.skipped = true;
    shown.loss_scale = 32768;
    shd_progress_step(&progress, &shown);
    char line[SHD_PROGRESS_BYTES];
    shd_progress_format(&progress, progress.start_ms + 1000, 199, line);
    cr_assert(strstr(line, "  skipped at scale 32768  lr"), "%s", line);
    shd_progress_fini(&progress);
}

/* In fp16 a skipped step's loss may be no number, the first one's too. */
Test(progress, the_smoothed_loss_is_that_of_finite_losses_and_left_out_while_there_is_none) {
    static const float losses[] = {NAN, INFINITY, 4, NAN, 4};
    for (int count = 1; count <= 5; count++) {
        shd_progress progress = open_progress(100, 1);
        shd_progress_start(&progress, 0);
        for (int step = 1; step <= count; step++) {
            shd_progress_row shown = row(step, (double)losses[step - 1]);
            shd_progress_step(&progress, &shown);
        }
        char line[SHD_PROGRESS_BYTES];
        shd_progress_format(&progress, progress.start_ms + 1000, 199, line);
        shd_progress_finish(&progress, true);
        const char *summary = strstr(contents(&progress), "done: ");
        cr_assert_not_null(summary);
        if (count < 3)
            cr_expect(!strstr(line, "smooth") && !strstr(summary, "smoothed"), "%s, %s", line, summary);
        else
            cr_expect(strstr(line, "  smooth 4.0000  ") && strstr(summary, "(4.0000 smoothed"), "%s, %s", line,
                      summary);
        shd_progress_fini(&progress);
    }
}

Test(progress, the_line_fits_any_width_and_keeps_the_step) {
    shd_progress progress = open_progress(100, 1);
    shd_progress_start(&progress, 0);
    shd_progress_row shown = row(10, 4);
    shd_progress_step(&progress, &shown);
    char line[SHD_PROGRESS_BYTES];
    for (int columns = 0; columns < 200; columns++) {
        shd_progress_format(&progress, progress.start_ms + 1000, columns, line);
        cr_assert_leq((int)strlen(line), columns);
        if (columns >= 11) cr_assert(strstr(line, "step 10/100"), "%d: %s", columns, line);
        if (columns >= 24) cr_assert(strstr(line, "loss 4.0000"), "%d: %s", columns, line);
    }
    cr_assert_str_eq(
        line, "step 10/100  loss 4.0000  smooth 4.0000  grad 1.5  lr 3.00e-04  1000 tok/s  5.0 MiB/rank  left 0:09");
    shd_progress_fini(&progress);
}

Test(progress, smoothing_starts_at_the_first_loss_and_follows_slowly) {
    shd_progress progress = open_progress(1000, 1000);
    shd_progress_start(&progress, 0);
    shd_progress_row shown = row(1, 8);
    shd_progress_step(&progress, &shown);
    double first = progress.smooth_sum / progress.smooth_weight;
    cr_assert_float_eq(first, 8, 1e-12);
    double weighted = 8, weight = 1; /* the same average, as a sum */
    for (int step = 2; step <= 40; step++) {
        double loss = 8 - 0.1 * step;
        shown = row(step, loss);
        shd_progress_step(&progress, &shown);
        weighted = weighted * 0.95 + loss;
        weight = weight * 0.95 + 1;
    }
    cr_assert_float_eq(progress.smooth_sum / progress.smooth_weight, weighted / weight, 1e-9);
    shd_progress_fini(&progress);
}

Test(progress, log_lines_stand_alone) {
    shd_progress progress = open_progress(10, 1);
    progress.live = true; /* as on a terminal */
    shd_progress_start(&progress, 0);
    shd_progress_row shown = row(10, 4);
    shd_progress_step(&progress, &shown);
    shd_progress_say(&progress, progress.out, "sherd: saved");
    const char *all = contents(&progress), *said = strstr(all, "sherd: saved\n");
    cr_assert(said);
    cr_assert_eq(strncmp(said - 4, "\r\033[K", 4), 0, "the line must be gone before a log line is written");
    cr_assert(strstr(said, "step 10/10"), "the line must come back after it");
    shd_progress_fini(&progress);
}

Test(progress, time_left_counts_from_where_the_run_resumed) {
    shd_progress progress = open_progress(100, 1000);
    shd_progress_start(&progress, 50);
    shd_progress_row shown = row(60, 4);
    shd_progress_step(&progress, &shown);
    char line[SHD_PROGRESS_BYTES];
    shd_progress_format(&progress, progress.start_ms + 20000, 200, line); /* 10 steps in 20 s, 40 to go */
    cr_assert(strstr(line, "left 1:20"), "%s", line);
    shd_progress_fini(&progress);
}

Test(progress, time_left_is_not_guessed_from_the_first_steps) {
    shd_progress progress = open_progress(100000, 100000);
    shd_progress_start(&progress, 0);
    shd_progress_row shown = row(1, 4);
    shd_progress_step(&progress, &shown);
    char line[SHD_PROGRESS_BYTES];
    shd_progress_format(&progress, progress.start_ms + 3000, 200, line);
    cr_assert(strstr(line, "left -"), "%s", line);
    shown = row(6, 4);
    shd_progress_step(&progress, &shown);
    shd_progress_format(&progress, progress.start_ms + 3000, 200, line);
    cr_assert(strstr(line, "left 13:53:17"), "%s", line);
    shd_progress_fini(&progress);
}

Test(progress, quantities_are_for_people) {
    char word[16];
    shd_bytes_text(0, word);
    cr_assert_str_eq(word, "0 B");
    shd_bytes_text(1024, word);
    cr_assert_str_eq(word, "1.0 KiB");
    shd_bytes_text(150 * 1048576.0, word);
    cr_assert_str_eq(word, "150 MiB");
    shd_time_text(59.6, word);
    cr_assert_str_eq(word, "1:00");
    shd_time_text(3723, word);
    cr_assert_str_eq(word, "1:02:03");
    shd_time_text((double)NAN, word);
    cr_assert_str_eq(word, "0:00");
}

Test(progress, of_samples_shows_accuracies) {
    shd_progress progress = open_progress(10, 5);
    shd_progress_start(&progress, 0);
    shd_progress_row shown = row(5, 4);
    shown.samples = shown.classified = true;
    shown.accuracy = 0.8125;
    shown.validated = true;
    shown.validation_loss = 0.5;
    shown.validation_accuracy = 0.75;
    shd_progress_step(&progress, &shown);
    const char *all = contents(&progress);
    cr_assert(strstr(all, "accuracy 81.2%  "), "%s", all);
    cr_assert(strstr(all, " 1000 samples/s  "), "%s", all);
    cr_assert(strstr(all, "  validation 0.5000 accuracy 75.0%\n"), "%s", all);
    cr_assert_null(strstr(all, "tok/s"));
    shd_progress_finish(&progress, true);
    cr_assert(strstr(contents(&progress), ", validation loss 0.5000 and accuracy 75.0% after step 5\n"), "%s", text);
    shd_progress_fini(&progress);
}

Test(progress, of_tokens_has_no_accuracy) {
    shd_progress progress = open_progress(10, 5);
    shd_progress_start(&progress, 0);
    shd_progress_row shown = row(5, 4);
    shown.validated = true;
    shown.validation_loss = 0.5;
    shd_progress_step(&progress, &shown);
    shd_progress_finish(&progress, true);
    const char *all = contents(&progress);
    cr_assert(!strstr(all, "accuracy") && strstr(all, " 1000 tok/s  "), "%s", all);
    shd_progress_fini(&progress);
}
