#include "runtime/comm/standing.h"

#include "runtime/base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Reads a small file of /proc whole, as text; false when it is not there. */
static bool read_file(const char *path, char *text, size_t bytes) {
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return false;
    ssize_t got = read(file, text, bytes - 1);
    close(file);
    if (got < 0) return false;
    text[got] = 0;
    return true;
}

typedef struct stat_line {
    char state;
    int64_t born;
    uint64_t cpu_ticks;
} stat_line;

/* proc(5): after the name, which is in brackets and may hold anything, state is field 3, utime 14, stime 15, starttime
 * 22. */
static bool read_stat(const char *path, stat_line *out) {
    char text[1024];
    if (!read_file(path, text, sizeof text)) return false;
    char *at = strrchr(text, ')');
    if (!at || at[1] != ' ') return false;
    *out = (stat_line){.state = at[2]};
    at += 3;
    for (int field = 4; *at; field++) {
        uint64_t value = strtoull(at, &at, 10);
        if (field == 14 || field == 15) out->cpu_ticks += value;
        if (field == 22) {
            out->born = (int64_t)value;
            return true;
        }
        if (*at != ' ') return false;
    }
    return false;
}

int64_t shd_standing_born(int32_t pid) {
    char path[64];
    stat_line line;
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    return read_stat(path, &line) ? line.born : 0;
}

static shd_life life_of(char state) {
    switch (state) {
    case 'R': return SHD_LIFE_RUNS;
    case 'S':
    case 'I': return SHD_LIFE_SLEEPS;
    case 'D': return SHD_LIFE_DISK;
    case 'T':
    case 't': return SHD_LIFE_STOPPED;
    case 'Z':
    case 'X':
    case 'x': return SHD_LIFE_GONE;
    default: return SHD_LIFE_UNKNOWN;
    }
}

void shd_standing_look(int32_t pid, int32_t tid, int64_t born, shd_standing *out) {
    char path[64];
    stat_line process, thread;
    *out = (shd_standing){.life = SHD_LIFE_UNKNOWN};
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    if (!read_stat(path, &process)) {
        if (!access("/proc/self/stat", R_OK)) out->life = SHD_LIFE_GONE;
        return;
    }
    if (born && process.born != born) { /* the number is somebody else's now */
        out->life = SHD_LIFE_GONE;
        return;
    }
    snprintf(path, sizeof path, "/proc/%d/task/%d/stat", pid, tid);
    if (!read_stat(path, &thread)) thread = process;
    /* A process ends thread by thread; that it is gone is what its first one says. */
    out->state = life_of(process.state) == SHD_LIFE_GONE ? process.state : thread.state;
    out->life = life_of(out->state);
    out->cpu_ms = (int64_t)(process.cpu_ticks * 1000 / (uint64_t)sysconf(_SC_CLK_TCK));
    snprintf(path, sizeof path, "/proc/%d/task/%d/wchan", pid, tid);
    if (!read_file(path, out->wchan, sizeof out->wchan) || !strcmp(out->wchan, "0")) out->wchan[0] = 0;
}

const char *shd_life_text(shd_life life) {
    switch (life) {
    case SHD_LIFE_UNKNOWN: return "is in a state that is not known";
    case SHD_LIFE_GONE: return "is dead";
    case SHD_LIFE_STOPPED: return "is stopped (SIGSTOP, Ctrl-Z or a debugger)";
    case SHD_LIFE_RUNS: return "runs";
    case SHD_LIFE_SLEEPS: return "sleeps in a system call";
    case SHD_LIFE_DISK: return "hangs in the kernel (a disk or file server that does not answer)";
    }
    return "";
}

const char *shd_life_word(shd_life life) {
    static const char *const words[] = {
        [SHD_LIFE_UNKNOWN] = "unknown", [SHD_LIFE_GONE] = "dead",     [SHD_LIFE_STOPPED] = "stopped",
        [SHD_LIFE_RUNS] = "runs",       [SHD_LIFE_SLEEPS] = "sleeps", [SHD_LIFE_DISK] = "disk"};
    return words[life];
}

/* What a rank is about when nothing of its records is open. */
static void print_activity(const shd_recorder_head *head, char *out, size_t bytes) {
    long long number = (long long)head->activity_step + 1;
    const char *text = shd_activity_text(head->activity);
    switch (head->activity) {
    case SHD_ACTIVITY_STEP: snprintf(out, bytes, "in step %lld", number); return;
    case SHD_ACTIVITY_DATA: snprintf(out, bytes, "%s for step %lld", text, number); return;
    case SHD_ACTIVITY_BOUNDARY:
    case SHD_ACTIVITY_EVALUATION:
    case SHD_ACTIVITY_SAVING: snprintf(out, bytes, number > 0 ? "%s, after step %lld" : "%s", text, number); return;
    default: snprintf(out, bytes, "%s", text);
    }
}

void shd_standing_print_where(const shd_recorder *recorder, int32_t rank, bool timed, char *out, size_t bytes) {
    shd_recorder_head head;
    shd_where where;
    char activity[64], step[72], what[96], awaited[96], since[40] = "";
    out[0] = 0;
    if (!shd_recorder_look(recorder, rank, &head) || !shd_recorder_where(recorder, rank, &where)) return;
    print_activity(&head, activity, sizeof activity);
    if (head.activity == SHD_ACTIVITY_STEP)
        snprintf(step, sizeof step, " of step %lld", (long long)head.activity_step + 1);
    else
        snprintf(step, sizeof step, ", %s", activity);
    if (timed) snprintf(since, sizeof since, ", since %.3g s", (double)(shd_clock_ns() - where.since_ns) / 1e9);
    shd_recorder_print(recorder, rank, &where.record, what, sizeof what);
    if (where.waits_for) shd_recorder_print(recorder, rank, &where.awaited, awaited, sizeof awaited);
    if (where.kind == SHD_AT_NOTHING || where.record.kind == SHD_RECORD_DATA) {
        snprintf(out, bytes, "%s%s", activity, since);
    } else if (where.kind == SHD_AT_WORK) {
        snprintf(out, bytes, "in %s%s%s", what, step, since);
    } else {
        snprintf(out, bytes, "waiting in %s%s%s%s%s", what, step, where.waits_for ? " for " : "",
                 where.waits_for ? awaited : "", since);
    }
}

void shd_standing_print(const shd_recorder *recorder, int32_t rank, double watch_ms, char *out, size_t bytes) {
    shd_recorder_head head;
    shd_standing before, after;
    char where[256], cpu[96] = "", wchan[64] = "";
    out[0] = 0;
    if (!shd_recorder_look(recorder, rank, &head)) return;
    shd_standing_look(head.pid, head.tid, head.born, &before);
    after = before;
    if (before.life == SHD_LIFE_RUNS || before.life == SHD_LIFE_SLEEPS) {
        struct timespec nap = {.tv_nsec = (long)(watch_ms * 1e6)};
        nanosleep(&nap, NULL);
        shd_standing_look(head.pid, head.tid, head.born, &after);
        snprintf(cpu, sizeof cpu, after.cpu_ms > before.cpu_ms ? ", using the processor" : "");
    }
    if (after.wchan[0] && after.life != SHD_LIFE_STOPPED) snprintf(wchan, sizeof wchan, " (%s)", after.wchan);
    shd_standing_print_where(recorder, rank, true, where, sizeof where);
    snprintf(out, bytes, "pid %d %s%s%s, %s", head.pid, shd_life_text(after.life), wchan, cpu, where);
}
