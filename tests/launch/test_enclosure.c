/* The control groups of attempts, where this process may make such: real ones, of which none is left. */
#include "runtime/launch/enclosure.h"

#include "runtime/base/cgroup.h"
#include "runtime/base/clock.h"
#include "runtime/launch/launch.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char folder[64];

static void begin(void) {
    snprintf(folder, sizeof folder, "/tmp/sherd-groups-XXXXXX");
    cr_assert(mkdtemp(folder));
    setenv("DIR", folder, 1);
}
static void end(void) {
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    if (system(command)) return;
}
TestSuite(enclosure, .init = begin, .fini = end, .timeout = 60);

/* A group with an id of this test's own. */
static shd_enclosure make(const char *id) {
    shd_enclosure group;
    shd_enclosure_choose(&group, id);
    shd_enclosure_make(&group);
    return group;
}

static bool exists(const char *path) { return access(path, F_OK) == 0; }

/* Whether the process lives; one that is dead and not reaped does not. */
static bool lives(int pid) {
    char path[64], state = 'X';
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *file = fopen(path, "r");
    if (file && fscanf(file, "%*d (%*[^)]) %c", &state) != 1) state = 'X';
    if (file) fclose(file);
    return state != 'X' && state != 'Z';
}

static bool dies_soon(int pid) {
    for (int wait = 0; wait < 1000 && lives(pid); wait++) usleep(5000);
    return !lives(pid);
}

/* What a rank wrote, once it has. */
static const char *wait_written(const char *name) {
    static char text[512];
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    text[0] = 0;
    for (int wait = 0; wait < 1000 && !strchr(text, '\n'); wait++) {
        FILE *file = fopen(path, "r");
        size_t got = file ? fread(text, 1, sizeof text - 1, file) : 0;
        if (file) fclose(file);
        text[got] = 0;
        if (!strchr(text, '\n')) usleep(5000);
    }
    cr_assert(strchr(text, '\n'), "%s was not written", name);
    return text;
}

/* A child in the group, which ignores what can be ignored. */
static pid_t start_in(const shd_enclosure *group) {
    pid_t child = fork();
    if (child) return child;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGTERM, SIG_IGN);
    setsid();
    shd_enclosure_enter(group);
    for (;;) pause();
}

static bool is_in(pid_t process, const char *group) {
    char path[64], line[8192];
    snprintf(path, sizeof path, "/proc/%d/cgroup", process);
    FILE *file = fopen(path, "r");
    bool there = false;
    while (file && fgets(line, sizeof line, file)) there |= !strncmp(line, "0::", 3) && strstr(line, group);
    if (file) fclose(file);
    return there;
}

/* The child is where it should be: its way there is short. */
static bool comes_into(pid_t child, const char *group) {
    for (int wait = 0; wait < 1000 && !is_in(child, group); wait++) usleep(5000);
    return is_in(child, group);
}

/* Where groups can be made, it may still be forbidden to enter them. */
static bool has_groups(void) {
    int state = 1;
    shd_enclosure tried = make("tried");
    pid_t child = tried.folder[0] ? fork() : -1;
    if (child == 0) {
        shd_enclosure_enter(&tried);
        _exit(!is_in(getpid(), "-tried\n"));
    }
    bool entered = child > 0 && waitpid(child, &state, 0) == child && state == 0;
    shd_enclosure_end(&tried);
    return entered;
}

#define NEED_GROUPS()                                                                                                  \
    do {                                                                                                               \
        if (!has_groups()) cr_skip_test("no control group of version 2 in which this user may make and enter others"); \
    } while (0)

/* Groups of the launcher `pid`. */
static int count_groups_of(pid_t pid) {
    char own[PATH_MAX], prefix[32];
    int length = snprintf(prefix, sizeof prefix, "sherd-%d-", pid), count = 0;
    cr_assert(shd_cgroup_find("", own, sizeof own));
    DIR *list = opendir(own);
    for (struct dirent *entry; (entry = readdir(list));) count += !strncmp(entry->d_name, prefix, (size_t)length);
    closedir(list);
    return count;
}

/* Whether this process, and no other, no longer sees any control groups. */
static bool hide_groups(void) {
    return unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
           mount("none", "/sys/fs/cgroup", "tmpfs", 0, NULL) == 0;
}

static bool can_hide_groups(void) {
    int state = 1;
    pid_t child = fork();
    if (child == 0) _exit(!hide_groups());
    return waitpid(child, &state, 0) == child && state == 0;
}

/* `hidden`: it sees no control groups. */
static pid_t start_launcher_where(bool hidden, const char *script) {
    pid_t pid = fork();
    if (pid) return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (hidden && !hide_groups()) _exit(98);
    shd_launch launch = SHD_LAUNCH_INIT;
    shd_launch_report report;
    launch.argv = (char *const[4]){(char *)"sh", (char *)"-c", (char *)script, NULL};
    _exit(shd_launch_run(&launch, &report) == SHERD_OK ? report.exit_code : 99);
}

static pid_t start_launcher(const char *script) { return start_launcher_where(false, script); }

#define START_DAEMON "setsid sh -c 'setsid env -i sleep 300 & echo $! >$DIR/daemon';"

Test(enclosure, a_daemon_without_environment_does_not_outlive_a_killed_launcher) {
    NEED_GROUPS();
    pid_t launcher = start_launcher(START_DAEMON "sleep 300");
    int daemon = atoi(wait_written("daemon"));
    cr_assert(lives(daemon));
    cr_assert_eq(count_groups_of(launcher), 1);
    kill(launcher, SIGKILL);
    waitpid(launcher, NULL, 0);
    cr_assert(dies_soon(daemon));
    for (int wait = 0; wait < 1000 && count_groups_of(launcher); wait++) usleep(5000);
    cr_assert_eq(count_groups_of(launcher), 0);
}

Test(enclosure, a_daemon_with_its_environment_does_not_outlive_a_killed_launcher_without_groups) {
    NEED_GROUPS();
    if (!can_hide_groups()) cr_skip_test("mounting is not permitted here");
    pid_t launcher = start_launcher_where(true, "setsid sh -c 'setsid sleep 300 & echo $! >$DIR/daemon'; sleep 300");
    int daemon = atoi(wait_written("daemon"));
    cr_assert(lives(daemon));
    cr_assert_eq(count_groups_of(launcher), 0);
    kill(launcher, SIGKILL);
    waitpid(launcher, NULL, 0);
    cr_assert(dies_soon(daemon));
}

Test(enclosure, nothing_is_left_of_a_job_that_ends) {
    NEED_GROUPS();
    int state;
    pid_t launcher = start_launcher(START_DAEMON "exit 3");
    int daemon = atoi(wait_written("daemon"));
    cr_assert_eq(waitpid(launcher, &state, 0), launcher);
    cr_assert_eq(state, 3 << 8);
    cr_assert_not(lives(daemon));
    cr_assert_eq(count_groups_of(launcher), 0);
}

Test(enclosure, ranks_are_in_the_group_of_their_attempt_before_the_program_runs) {
    NEED_GROUPS();
    char group[128];
    pid_t launcher =
        start_launcher("echo $SHERD_LAUNCH_ID >$DIR/id; sed -n 's/^0:://p' /proc/$$/cgroup >$DIR/group; sleep 300");
    snprintf(group, sizeof group, "/sherd-%d-%s", launcher, wait_written("id"));
    cr_assert(strstr(wait_written("group"), group), "%s", wait_written("group"));
    kill(launcher, SIGTERM);
    waitpid(launcher, NULL, 0);
    cr_assert_eq(count_groups_of(launcher), 0);
}

Test(enclosure, an_end_kills_what_is_in_the_group_and_within_it_and_nothing_else) {
    NEED_GROUPS();
    shd_enclosure group = make("group"), other = make("group2"), inner, innermost;
    snprintf(inner.folder, sizeof inner.folder, "%.4000s/inner", group.folder);
    snprintf(innermost.folder, sizeof innermost.folder, "%.4000s/inner/most", group.folder);
    shd_enclosure_make(&inner);
    shd_enclosure_make(&innermost);
    pid_t in_group = start_in(&group), in_innermost = start_in(&innermost), in_other = start_in(&other);
    cr_assert(comes_into(in_group, "-group\n"));
    cr_assert(comes_into(in_innermost, "-group/inner/most\n"));
    cr_assert(comes_into(in_other, "-group2\n"));
    shd_enclosure_end(&group);
    cr_assert_not(exists(group.folder));
    cr_assert(dies_soon(in_group));
    cr_assert(dies_soon(in_innermost));
    cr_assert(lives(in_other));
    shd_enclosure_end(&group); /* once more is no error */
    shd_enclosure_end(&other);
    cr_assert_not(exists(other.folder));
    cr_assert(dies_soon(in_other));
}

/* Takes a group's file away once its only member is dead, as the kernel does with its number. */
static void empty_when_dead(pid_t member, const char *file) {
    if (fork()) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    _exit(dies_soon(member) ? unlink(file) : 1);
}

Test(enclosure, members_are_killed_one_by_one_where_the_kernel_cannot_kill_a_group) {
    shd_enclosure none = {.folder = ""}, group;
    char path[PATH_MAX + 32];
    pid_t member = start_in(&none), other = start_in(&none);
    snprintf(group.folder, sizeof group.folder, "%s/group", folder);
    cr_assert_eq(mkdir(group.folder, 0755), 0);
    snprintf(path, sizeof path, "%s/cgroup.procs", group.folder);
    FILE *file = fopen(path, "w");
    for (int i = 0; i < 300; i++) fprintf(file, "%d\n", 99999999); /* more than a chunk of what nobody is */
    fprintf(file, "0\n%d\n", member);
    fclose(file);
    empty_when_dead(member, path);
    double start_ms = shd_clock_ms();
    shd_enclosure_end(&group);
    cr_assert_lt(shd_clock_ms() - start_ms, 4000);
    cr_assert_not(lives(member));
    cr_assert(lives(other));
    cr_assert_not(exists(group.folder));
    kill(other, SIGKILL);
}

Test(enclosure, where_there_is_none_nothing_happens) {
    shd_enclosure group = {.folder = ""};
    shd_enclosure_make(&group);
    cr_assert_str_eq(group.folder, "");
    shd_enclosure_enter(&group);
    shd_enclosure_end(&group);
    snprintf(group.folder, sizeof group.folder, "%s/absent/group", folder);
    shd_enclosure_make(&group);
    cr_assert_str_eq(group.folder, "");
}
