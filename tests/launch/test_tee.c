/* Ranks are played by this process, which writes into the ends that they would get. */
#include "runtime/launch/tee.h"

#include "runtime/base/clock.h"
#include "runtime/base/memory.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <poll.h>
#include <sherd/status.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <termios.h>
#include <unistd.h>

static char folder[64];
static int screen[2]; /* a pipe: [1] is the launcher's output */

static void set_up(void) {
    snprintf(folder, sizeof folder, "/tmp/sherd-tee-XXXXXX");
    cr_assert(mkdtemp(folder));
    cr_assert_eq(pipe2(screen, O_CLOEXEC), 0);
}
static void tear_down(void) {
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    if (system(command)) return;
}
TestSuite(tee, .init = set_up, .fini = tear_down, .timeout = 60);

static shd_tee *start(shd_routes *routes, int out, int err) {
    const shd_tee_config config = {.folder = folder, .routes = routes, .outputs = {out, err}, .own_prefix = "sherd: "};
    shd_tee *tee = NULL;
    cr_assert_eq(shd_tee_start(&config, &tee), SHERD_OK, "%s", sherd_last_error());
    return tee;
}

static void say(int fd, const char *text) {
    size_t bytes = strlen(text);
    cr_assert_eq(write(fd, text, bytes), (ssize_t)bytes);
}

static char text[1 << 16];
static size_t text_bytes;

/* What is on the screen once `lines` lines are there, or nothing more comes. */
static const char *shown(int lines) {
    text_bytes = 0;
    for (int seen = 0; seen < lines && text_bytes + 1 < sizeof text;) {
        struct pollfd ready = {.fd = screen[0], .events = POLLIN};
        if (poll(&ready, 1, 5000) < 1 || read(screen[0], text + text_bytes, 1) < 1) break;
        seen += text[text_bytes++] == '\n';
    }
    text[text_bytes] = 0;
    return text;
}

static const char *filed(int rank, const char *name) {
    char path[128];
    snprintf(path, sizeof path, "%s/%d/%s", folder, rank, name);
    FILE *file = fopen(path, "r");
    text_bytes = file ? fread(text, 1, sizeof text - 1, file) : 0;
    if (file) fclose(file);
    text[text_bytes] = 0;
    return file ? text : NULL;
}

Test(tee, lines_are_whole_though_ranks_write_halves_of_them) {
    shd_routes routes;
    cr_assert_eq(shd_routes_init(&routes, 2, NULL, "3", NULL), SHERD_OK);
    shd_tee *tee = start(&routes, screen[1], screen[1]);
    int ends[2][2];
    for (int rank = 0; rank < 2; rank++) cr_assert_eq(shd_tee_open(tee, rank, ends[rank]), SHERD_OK);
    say(ends[0][0], "ha");
    say(ends[1][0], "one\nwh");
    say(ends[0][1], "\033[31mer");
    say(ends[1][0], "ole\n");
    cr_assert_str_eq(shown(2), "[rank1]: one\n[rank1]: whole\n");
    say(ends[0][0], "lf\r\n");
    cr_assert_str_eq(shown(1), "[rank0]: half\n");
    say(ends[0][1], "ror\033[2J\nagain");
    cr_assert_str_eq(shown(1), "[rank0]: \033[31merror\033[0m\n");
    say(ends[1][1], "sherd: rank 1: x\n");
    cr_assert_str_eq(shown(1), "sherd: rank 1: x\n", "a line that says whose it is");
    for (int rank = 0; rank < 2; rank++) {
        shd_tee_started(ends[rank]);
        shd_tee_close_rank(tee, rank);
    }
    cr_assert_str_eq(shown(1), "[rank0]: \033[31magain\033[0m\n", "a line that nobody ends");
    char *last = shd_tee_last_lines(tee, 0, 10);
    cr_assert_str_eq(last, "half\nerror\nagain\n");
    shd_free(last);
    last = shd_tee_last_lines(tee, 1, 2);
    cr_assert_str_eq(last, "whole\nsherd: rank 1: x\n");
    shd_free(last);
    shd_tee_destroy(tee);
    cr_assert_str_eq(filed(0, "stdout.log"), "half\r\n", "files have the bytes as they are");
    cr_assert_str_eq(filed(0, "stderr.log"), "\033[31merror\033[2J\nagain");
    cr_assert_str_eq(filed(1, "stdout.log"), "one\nwhole\n");
    shd_routes_fini(&routes);
    cr_assert_eq(shd_memory_held(SHD_MEMORY_OBJECTS), 0);
}

Test(tee, goes_where_the_routes_say) {
    shd_routes routes;
    cr_assert_eq(shd_routes_init(&routes, 3, "0:1", "1:2", "0,1"), SHERD_OK);
    shd_tee *tee = start(&routes, screen[1], screen[1]);
    int ends[3][2];
    for (int rank = 0; rank < 3; rank++) cr_assert_eq(shd_tee_open(tee, rank, ends[rank]), SHERD_OK);
    cr_assert_eq(ends[0][1], -1, "inherited");
    cr_assert_eq(ends[1][0], -1);
    say(ends[0][0], "filed\n");
    say(ends[1][1], "teed\n");
    say(ends[2][0], "nowhere\n");
    for (int rank = 0; rank < 3; rank++) {
        shd_tee_started(ends[rank]);
        shd_tee_close_rank(tee, rank);
    }
    char *last = shd_tee_last_lines(tee, 2, 1);
    cr_assert_str_eq(last, "nowhere\n", "what is shown nowhere is known all the same");
    shd_free(last);
    cr_assert_null(shd_tee_last_lines(tee, 2, 0));
    shd_tee_destroy(tee);
    close(screen[1]);
    cr_assert_str_eq(shown(9), "[rank1]: teed\n");
    cr_assert_str_eq(filed(0, "stdout.log"), "filed\n");
    cr_assert_str_eq(filed(1, "stderr.log"), "teed\n");
    cr_assert_null(filed(2, "stdout.log"));
    cr_assert_null(filed(1, "stdout.log"));
    shd_routes_fini(&routes);
}

/* Twelve megabytes in lines of 100 bytes, as fast as the pipe takes them. */
static int64_t flood(int fd) {
    static char lines[100 * 100];
    for (int i = 0; i < 100; i++) {
        memset(lines + 100 * i, 'a' + i % 26, 99);
        lines[100 * i + 99] = '\n';
    }
    int64_t written = 0;
    for (int i = 0; i < 1200; i++) {
        ssize_t got = write(fd, lines, sizeof lines);
        if (got < 0) return -1;
        written += got;
    }
    return written;
}

static int64_t size_of(int rank, const char *name) {
    char path[128];
    struct stat info;
    snprintf(path, sizeof path, "%s/%d/%s", folder, rank, name);
    return stat(path, &info) ? -1 : info.st_size;
}

Test(tee, a_terminal_that_takes_nothing_holds_nobody_up_and_files_have_all) {
    shd_routes routes;
    cr_assert_eq(shd_routes_init(&routes, 1, NULL, "1", NULL), SHERD_OK);
    int flags = fcntl(screen[1], F_GETFL);
    shd_tee *tee = start(&routes, screen[1], -1);
    cr_assert_eq(fcntl(screen[1], F_GETFL), flags, "others write to it too: it must not become non-blocking for them");
    int ends[2];
    cr_assert_eq(shd_tee_open(tee, 0, ends), SHERD_OK);
    int64_t written = flood(ends[0]);
    shd_tee_started(ends);
    shd_tee_close_rank(tee, 0);
    shd_free(shd_tee_last_lines(tee, 0, 1));
    cr_assert_eq(size_of(0, "stdout.log"), written);
    cr_assert_lt(shd_memory_held(SHD_MEMORY_OBJECTS), 20 << 20);
    double start_ms = shd_clock_ms();
    shd_tee_destroy(tee);
    cr_assert_lt(shd_clock_ms() - start_ms, 6000);
    shd_routes_fini(&routes);
    close(screen[1]);
    const char *seen = shown(100000);
    for (const char *line = seen; *line; line = strchr(line, '\n') + 1) {
        if (!strchr(line, '\n')) break;
        cr_assert_eq(strcspn(line, "\n"), 99 + strlen("[rank0]: "), "a line is torn: %.120s", line);
    }
}

Test(tee, lines_that_a_slow_terminal_misses_are_counted) {
    shd_routes routes;
    cr_assert_eq(shd_routes_init(&routes, 1, NULL, "1", NULL), SHERD_OK);
    shd_tee *tee = start(&routes, screen[1], -1);
    int ends[2];
    cr_assert_eq(shd_tee_open(tee, 0, ends), SHERD_OK);
    flood(ends[0]);
    int64_t lines = 0, left_out = 0, notes = 0;
    char line[256];
    FILE *in = fdopen(dup(screen[0]), "r");
    for (int i = 0; i < 50000; i++) {
        cr_assert(fgets(line, sizeof line, in));
        long long count;
        if (sscanf(line, "sherd: %lld lines of ranks are left out", &count) != 1) {
            lines++;
            continue;
        }
        left_out += count;
        notes++;
    }
    /* There is room again: what comes now is shown, after the note. */
    say(ends[0], "last\n");
    shd_tee_started(ends);
    shd_tee_close_rank(tee, 0);
    close(screen[1]);
    while (strcmp(line, "[rank0]: last\n")) {
        cr_assert(fgets(line, sizeof line, in), "the last line did not come");
        long long count;
        if (sscanf(line, "sherd: %lld lines of ranks are left out", &count) == 1) {
            left_out += count;
            notes++;
        } else {
            lines++;
        }
        if (lines + left_out == 120001) break;
    }
    cr_assert_eq(lines + left_out, 120001, "%lld shown, %lld left out", (long long)lines, (long long)left_out);
    cr_assert_gt(left_out, 0);
    cr_assert_leq(notes, 20);
    fclose(in);
    shd_tee_destroy(tee);
    shd_routes_fini(&routes);
}

Test(tee, a_terminal_that_is_closed_ends_nothing) {
    shd_routes routes;
    cr_assert_eq(shd_routes_init(&routes, 1, NULL, "3", NULL), SHERD_OK);
    shd_tee *tee = start(&routes, screen[1], screen[1]);
    close(screen[0]);
    int ends[2];
    cr_assert_eq(shd_tee_open(tee, 0, ends), SHERD_OK);
    int64_t written = flood(ends[0]);
    say(ends[1], "error\n");
    shd_tee_started(ends);
    shd_tee_close_rank(tee, 0);
    shd_tee_destroy(tee);
    cr_assert_eq(size_of(0, "stdout.log"), written);
    cr_assert_str_eq(filed(0, "stderr.log"), "error\n");
    shd_routes_fini(&routes);
}

Test(tee, a_socket_is_an_output_too) {
    shd_routes routes;
    cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, screen), 0);
    cr_assert_eq(shd_routes_init(&routes, 1, NULL, "1", NULL), SHERD_OK);
    shd_tee *tee = start(&routes, screen[1], -1);
    int ends[2];
    cr_assert_eq(shd_tee_open(tee, 0, ends), SHERD_OK);
    say(ends[0], "hello\n");
    cr_assert_str_eq(shown(1), "[rank0]: hello\n");
    close(screen[0]);
    flood(ends[0]);
    shd_tee_started(ends);
    shd_tee_destroy(tee);
    shd_routes_fini(&routes);
}

Test(tee, a_full_disk_is_said_once_and_the_rest_goes_on) {
    char path[128], target[128];
    for (int rank = 0; rank < 2; rank++) {
        snprintf(path, sizeof path, "%s/%d", folder, rank);
        mkdir(path, 0700);
        snprintf(path, sizeof path, "%s/%d/stdout.log", folder, rank);
        cr_assert_eq(symlink("/dev/full", path), 0);
    }
    shd_routes routes;
    cr_assert_eq(shd_routes_init(&routes, 2, NULL, "3", NULL), SHERD_OK);
    shd_tee *tee = start(&routes, screen[1], screen[1]);
    int ends[2][2];
    for (int rank = 0; rank < 2; rank++) cr_assert_eq(shd_tee_open(tee, rank, ends[rank]), SHERD_OK);
    say(ends[0][0], "a\n");
    snprintf(target, sizeof target,
             "sherd: log files in %s cannot be written: No space left on device; the job goes on, and so do they once "
             "they can be\n",
             folder);
    const char *both = shown(2);
    cr_assert(strstr(both, target) && strstr(both, "[rank0]: a\n"), "%s", both);
    say(ends[1][0], "b\n");
    cr_assert_str_eq(shown(1), "[rank1]: b\n");
    say(ends[1][1], "c\n");
    cr_assert_str_eq(shown(1), "[rank1]: c\n");
    for (int rank = 0; rank < 2; rank++) shd_tee_started(ends[rank]);
    shd_tee_destroy(tee);
    cr_assert_str_eq(filed(1, "stderr.log"), "c\n");
    shd_routes_fini(&routes);
}

Test(tee, a_folder_that_cannot_be_made_is_refused) {
    char path[128];
    snprintf(path, sizeof path, "%s/0", folder);
    close(open(path, O_CREAT | O_WRONLY, 0600));
    shd_routes routes;
    cr_assert_eq(shd_routes_init(&routes, 1, "3", NULL, NULL), SHERD_OK);
    shd_tee *tee = start(&routes, screen[1], screen[1]);
    int ends[2];
    cr_assert_eq(shd_tee_open(tee, 0, ends), SHERD_IO);
    cr_assert(strstr(sherd_last_error(), path), "%s", sherd_last_error());
    shd_tee_destroy(tee);
    shd_routes_fini(&routes);
}

Test(tee, what_somebody_else_keeps_open_is_not_waited_for) {
    shd_routes routes;
    cr_assert_eq(shd_routes_init(&routes, 1, "3", NULL, NULL), SHERD_OK);
    shd_tee *tee = start(&routes, screen[1], screen[1]);
    int ends[2];
    cr_assert_eq(shd_tee_open(tee, 0, ends), SHERD_OK);
    say(ends[0], "before\n");
    double start_ms = shd_clock_ms();
    shd_tee_close_rank(tee, 0);
    char *last = shd_tee_last_lines(tee, 0, 5);
    cr_assert_str_eq(last, "before\n");
    shd_free(last);
    say(ends[0], "after\n");
    shd_tee_destroy(tee);
    cr_assert_lt(shd_clock_ms() - start_ms, 1000);
    shd_tee_started(ends);
    cr_assert_str_eq(filed(0, "stdout.log"), "before\nafter\n");
    shd_routes_fini(&routes);
}

/* Writes until nothing more is taken for a tenth of a second. */
static void fill(int fd) {
    static char lines[1 << 12];
    struct pollfd room = {.fd = fd, .events = POLLOUT};
    memset(lines, '\n', sizeof lines);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    while (poll(&room, 1, 100) > 0)
        if (write(fd, lines, sizeof lines) < 0) break;
}

static double ms_since(double start_ms) { return shd_clock_ms() - start_ms; }

/* A disk that hangs is played by a FIFO that nobody reads. */
Test(tee, a_disk_that_hangs_holds_up_nobody_but_ranks_that_write) {
    char path[128];
    snprintf(path, sizeof path, "%s/0", folder);
    mkdir(path, 0700);
    snprintf(path, sizeof path, "%s/0/stdout.log", folder);
    cr_assert_eq(mkfifo(path, 0600), 0);
    int disk = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
    shd_routes routes;
    cr_assert_eq(shd_routes_init(&routes, 2, NULL, "3", NULL), SHERD_OK);
    shd_tee *tee = start(&routes, screen[1], screen[1]);
    shd_routes_fini(&routes);
    int ends[2][2];
    for (int rank = 0; rank < 2; rank++) cr_assert_eq(shd_tee_open(tee, rank, ends[rank]), SHERD_OK);
    say(ends[0][0], "before\n");
    cr_assert_str_eq(shown(1), "[rank0]: before\n");
    fill(ends[0][0]);
    double start_ms = shd_clock_ms();
    for (int rank = 0; rank < 2; rank++) {
        shd_tee_started(ends[rank]);
        shd_tee_close_rank(tee, rank);
    }
    cr_assert_lt(ms_since(start_ms), 2000, "whoever reaps ranks waits for the disk: %g ms", ms_since(start_ms));
    start_ms = shd_clock_ms();
    shd_free(shd_tee_last_lines(tee, 0, 1));
    cr_assert_lt(ms_since(start_ms), 3000);
    start_ms = shd_clock_ms();
    shd_tee_stop(tee);
    cr_assert_lt(ms_since(start_ms), 8000);
    shd_tee_destroy(tee);
    /* It goes on: then the thread that was left to itself frees what it has. */
    for (int i = 0; i < 2000 && shd_memory_held(SHD_MEMORY_OBJECTS); i++) {
        while (read(disk, text, sizeof text) > 0) {}
        usleep(5000);
    }
    cr_assert_eq(shd_memory_held(SHD_MEMORY_OBJECTS), 0);
    close(disk);
}

/* Root could open any terminal. */
static void be_nobody_special(void) {
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct none[2] = {{0}, {0}};
    cr_assert_eq(syscall(SYS_capset, &header, none), 0);
}

/* An exclusive terminal cannot be opened once more, like one of another user. */
Test(tee, a_terminal_of_somebody_else_that_nobody_reads_holds_nobody_up) {
    be_nobody_special();
    int master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    cr_assert(master >= 0 && grantpt(master) == 0 && unlockpt(master) == 0);
    int slave = open(ptsname(master), O_RDWR | O_NOCTTY | O_CLOEXEC);
    struct termios mode; /* as shells have it: with CR before each LF, for which there must be room, too */
    cr_assert(slave >= 0 && tcgetattr(slave, &mode) == 0);
    cr_assert_eq(mode.c_oflag & (OPOST | ONLCR), OPOST | ONLCR);
    cr_assert_eq(ioctl(slave, TIOCEXCL), 0);
    shd_routes routes;
    cr_assert_eq(shd_routes_init(&routes, 1, NULL, "1", NULL), SHERD_OK);
    shd_tee *tee = start(&routes, slave, -1);
    int ends[2];
    cr_assert_eq(shd_tee_open(tee, 0, ends), SHERD_OK);
    say(ends[0], "seen\n");
    for (text_bytes = 0; text_bytes < 100 && (text_bytes == 0 || text[text_bytes - 1] != '\n'); text_bytes++) {
        struct pollfd ready = {.fd = master, .events = POLLIN};
        cr_assert_eq(poll(&ready, 1, 5000), 1);
        cr_assert_eq(read(master, text + text_bytes, 1), 1);
    }
    text[text_bytes] = 0;
    cr_assert_str_eq(text, "[rank0]: seen\r\n");
    int64_t written = flood(ends[0]);
    shd_tee_started(ends);
    double start_ms = shd_clock_ms();
    shd_tee_close_rank(tee, 0);
    shd_free(shd_tee_last_lines(tee, 0, 1));
    cr_assert_lt(ms_since(start_ms), 1900, "the thread waits for the terminal");
    cr_assert_eq(size_of(0, "stdout.log"), written + (int64_t)strlen("seen\n"));
    shd_tee_destroy(tee);
    cr_assert_lt(ms_since(start_ms), 5000);
    shd_routes_fini(&routes);
    close(slave);
    close(master);
    cr_assert_eq(shd_memory_held(SHD_MEMORY_OBJECTS), 0);
}
