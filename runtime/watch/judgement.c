/* The order of the questions: ranks that do different things explain everything that follows; then who is dead; then
 * whom the others wait for; then who is slow. Dumps that the launcher has written when all was over know a rank's records,
 * not how it stood; those that were taken of a job that runs know waits that mean nothing. */
#include "runtime/watch/judgement.h"

#include "runtime/comm/recorder.h"
#include "runtime/watch/dump.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A rank is a straggler when its own work takes so many times what the median rank's does, over at least so many steps. */
static const double straggler_factor = 1.5;
enum { STRAGGLER_STEPS = 2 };
/* A rank of a job that runs is missed when it is waited for longer than so many of the longest steps, at least so long. */
static const double PATIENCE_STEPS = 2, LEAST_PATIENCE_S = 10;

const char *shd_judgement_text(shd_judgement_kind kind) {
    static const char *const texts[] = {[SHD_JUDGED_MISMATCH] = "mismatched collective",
                                        [SHD_JUDGED_DEAD] = "dead rank",
                                        [SHD_JUDGED_MISSING] = "missing rank",
                                        [SHD_JUDGED_STRAGGLER] = "straggler",
                                        [SHD_JUDGED_CONSISTENT] = "all consistent"};
    return texts[kind];
}

static void say(shd_judgement *out, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void say(shd_judgement *out, const char *format, ...) {
    size_t used = strlen(out->text);
    va_list arguments;
    va_start(arguments, format);
    int wanted = vsnprintf(out->text + used, sizeof out->text - used, format, arguments);
    va_end(arguments);
    if (wanted < (int)(sizeof out->text - used)) return;
    /* Not within a character. */
    for (used = sizeof out->text - 1; used > 0 && (unsigned char)out->text[used - 1] >= 0x80; used--)
        out->text[used - 1] = 0;
}

static void name_event(const shd_dump_event *event, char *out, size_t bytes) {
    snprintf(out, bytes, "%s%s%s", event->kind, event->unit[0] ? " " : "", event->unit);
}

/* --- mismatch ----------------------------------------------------------------------------------------------------- */

/* The next event from *at on that is a collective; NULL at the end. */
static const shd_dump_event *next_collective(const shd_rank_dump *rank, int64_t *at) {
    while (*at < rank->event_count && rank->events[*at].collective < 0) ++*at;
    return *at < rank->event_count ? &rank->events[*at] : NULL;
}

static const shd_dump_event *find_collective(const shd_rank_dump *rank, int64_t number) {
    int64_t at = 0;
    for (const shd_dump_event *event; (event = next_collective(rank, &at)); at++)
        if (event->collective == number) return event;
    return NULL;
}

static bool same(const shd_dump_event *a, const shd_dump_event *b) {
    return !strcmp(a->kind, b->kind) && !strcmp(a->unit, b->unit) && a->bytes == b->bytes;
}

/* The first collective in which `a` and `b` differ, in the part that both dumps hold; -1: none. Numbers rise by one from
 * event to event, so both lists are walked together. */
static int64_t find_difference(const shd_rank_dump *a, const shd_rank_dump *b) {
    int64_t i = 0, j = 0;
    const shd_dump_event *x = next_collective(a, &i), *y = next_collective(b, &j);
    while (x && y) {
        if (x->collective == y->collective) {
            if (!same(x, y)) return x->collective;
            i++;
            j++;
        } else if (x->collective < y->collective) {
            i++;
        } else {
            j++;
        }
        x = next_collective(a, &i);
        y = next_collective(b, &j);
    }
    return -1;
}

static const shd_rank_dump *first_there(const shd_dumps *dumps) {
    for (int32_t r = 0; r < dumps->world_size; r++)
        if (dumps->ranks[r].there) return &dumps->ranks[r];
    return NULL;
}

/* "ranks 0, 1 and 3 REDUCE h.2 (4096 bytes)": those that issued the same as `like`, collective `number`. */
static void say_side(const shd_dumps *dumps, const shd_dump_event *like, shd_judgement *out) {
    char name[2 * SHD_DUMPS_NAME_BYTES + 2];
    int32_t total = 0, said = 0;
    for (int32_t r = 0; r < dumps->world_size; r++) {
        const shd_dump_event *event = find_collective(&dumps->ranks[r], like->collective);
        total += event && same(event, like);
    }
    say(out, total == 1 ? "rank " : "ranks ");
    for (int32_t r = 0; r < dumps->world_size; r++) {
        const shd_dump_event *event = find_collective(&dumps->ranks[r], like->collective);
        if (!event || !same(event, like)) continue;
        say(out, "%s%d", said == 0 ? "" : said == total - 1 ? " and " : ", ", r);
        said++;
    }
    name_event(like, name, sizeof name);
    say(out, " issued %s (%lld bytes)", name, (long long)like->bytes);
}

static int32_t count_side(const shd_dumps *dumps, const shd_dump_event *like) {
    int32_t count = 0;
    for (int32_t r = 0; r < dumps->world_size; r++) {
        const shd_dump_event *event = find_collective(&dumps->ranks[r], like->collective);
        count += event && same(event, like);
    }
    return count;
}

static bool find_mismatch(const shd_dumps *dumps, shd_judgement *out) {
    const shd_rank_dump *first = first_there(dumps);
    int64_t number = -1;
    for (int32_t r = 0; r < dumps->world_size; r++) {
        int64_t other = dumps->ranks[r].there ? find_difference(first, &dumps->ranks[r]) : -1;
        if (other >= 0 && (number < 0 || other < number)) number = other;
    }
    if (number < 0) return false;
    const shd_dump_event *mine = find_collective(first, number), *theirs = mine;
    int32_t culprit = first->rank;
    for (int32_t r = 0; r < dumps->world_size && same(mine, theirs); r++) {
        const shd_dump_event *event = find_collective(&dumps->ranks[r], number);
        if (event && !same(mine, event)) {
            theirs = event;
            culprit = r;
        }
    }
    if (count_side(dumps, theirs) > count_side(dumps, mine)) {
        const shd_dump_event *swap = mine;
        mine = theirs;
        theirs = swap;
        culprit = first->rank;
    }
    out->kind = SHD_JUDGED_MISMATCH;
    out->rank = culprit;
    out->step = theirs->step;
    out->collective = number;
    name_event(theirs, out->what, sizeof out->what);
    say(out, "The ranks do not issue the same collectives. In collective %lld, ", (long long)number);
    say_side(dumps, theirs, out);
    say(out, " where ");
    say_side(dumps, mine, out);
    say(out, ". Everything after it is a consequence: look for what makes these ranks run another program, model or "
             "number of steps.");
    return true;
}

/* --- dead and missing --------------------------------------------------------------------------------------------- */

static bool is_known(const shd_rank_dump *rank) { return rank->there && rank->written_by != SHD_DUMP_LAUNCHER; }

static bool waits(const shd_rank_dump *rank) {
    return rank->there &&
           (!strcmp(rank->where_kind, "wait") || !strcmp(rank->activity, shd_activity_text(SHD_ACTIVITY_MEETING)));
}

static double since_s(const shd_rank_dump *rank) { return (double)(rank->now_ns - rank->since_ns) / 1e9; }

static bool find_dead(const shd_dumps *dumps, shd_judgement *out) {
    for (int32_t r = 0; r < dumps->world_size; r++) {
        const shd_rank_dump *rank = &dumps->ranks[r];
        if (!is_known(rank) || strcmp(rank->life, "dead") != 0) continue;
        out->kind = SHD_JUDGED_DEAD;
        out->rank = r;
        out->step = rank->step;
        snprintf(out->what, sizeof out->what, "%s", rank->where);
        say(out, "Rank %d (pid %d on %s) is dead: it ended %s, without a word to the others. ", r, rank->pid,
            rank->host, rank->where);
        say(out, "Its own messages say why if anything does; a rank that was killed leaves none: look for the "
                 "out-of-memory killer (dmesg) and for whoever sent it a signal.");
        return true;
    }
    return false;
}

/* Whether a rank has been where it is for longer than `long_s` allows; below 0: whatever its time. */
static bool is_long(const shd_rank_dump *rank, double long_s) { return long_s < 0 || since_s(rank) > long_s; }

/* How surely a rank is the one that is missed; 0: it is not. Any healthy rank is in the kernel for a disk at some
 * instant, while no rank is stopped for an instant only. */
static int weigh(const shd_rank_dump *rank, double long_s) {
    if (!rank->there) return 3;
    if (is_known(rank) && !strcmp(rank->life, "stopped")) return 5;
    if (is_known(rank) && !strcmp(rank->life, "disk") && is_long(rank, long_s)) return 4;
    if (waits(rank)) return 0;
    return strcmp(rank->where_kind, "work") ? 1 : 2;
}

static void say_state(const shd_rank_dump *rank, shd_judgement *out) {
    int32_t r = rank->rank;
    if (!rank->there) {
        say(out, "Rank %d left no dump and never came to where it could be read", r);
        return;
    }
    say(out, "Rank %d (pid %d on %s) did not arrive: ", r, rank->pid, rank->host);
    if (is_known(rank) && !strcmp(rank->life, "stopped"))
        say(out, "it is stopped, by SIGSTOP, Ctrl-Z or a debugger, ");
    else if (is_known(rank) && !strcmp(rank->life, "disk"))
        say(out, "it hangs in the kernel, on a disk or file server that does not answer, ");
    else if (is_known(rank) && !strcmp(rank->life, "runs"))
        say(out, "it computes, slowly or without an end, ");
    else if (is_known(rank) && !strcmp(rank->life, "sleeps"))
        say(out, "it sleeps in a system call, ");
    say(out, "%s, since %.3g s", rank->where, since_s(rank));
}

static void say_waiting(const shd_dumps *dumps, int32_t culprit, shd_judgement *out) {
    int32_t total = 0, said = 0;
    for (int32_t r = 0; r < dumps->world_size; r++) total += r != culprit && waits(&dumps->ranks[r]);
    for (int32_t r = 0; r < dumps->world_size && said < 8; r++) {
        const shd_rank_dump *rank = &dumps->ranks[r];
        if (r == culprit || !waits(rank)) continue;
        say(out, "%srank %d is %s since %.3g s", said ? "; " : " Meanwhile ", r, rank->where, since_s(rank));
        said++;
    }
    if (total > said) say(out, "; and %d more wait", total - said);
    if (said) say(out, ".");
}

/* The last collective that a rank has issued; -1: none. */
static int64_t last_collective(const shd_rank_dump *rank) {
    for (int64_t i = rank->event_count; i-- > 0;)
        if (rank->events[i].collective >= 0) return rank->events[i].collective;
    return -1;
}

/* When all wait, the one that has come least far; -1 when all have come as far. */
static int32_t find_behind(const shd_dumps *dumps) {
    int32_t behind = -1;
    int64_t least = INT64_MAX, most = -1;
    for (int32_t r = 0; r < dumps->world_size; r++) {
        int64_t last = last_collective(&dumps->ranks[r]);
        if (!dumps->ranks[r].there) continue;
        if (last < least) behind = r;
        if (last < least) least = last;
        if (last > most) most = last;
    }
    return least < most ? behind : -1;
}

/* The longest of the steps that a dump holds whole, from the first record of one to that of the next; 0: it holds none. */
static double longest_step_s(const shd_rank_dump *rank) {
    int64_t begin_ns = -1, longest_ns = 0;
    for (int64_t i = 1; i < rank->event_count; i++) {
        const shd_dump_event *event = &rank->events[i];
        if (event->step == event[-1].step) continue;
        if (begin_ns >= 0 && event->queued_ns - begin_ns > longest_ns) longest_ns = event->queued_ns - begin_ns;
        begin_ns = event->queued_ns;
    }
    return (double)longest_ns / 1e9;
}

/* How long a rank has to have waited for that to mean something. In a job that is given up all waits do; in one that runs
 * there is always somebody who waits for an instant. */
static double patience_s(const shd_dumps *dumps) {
    double longest_s = 0;
    bool lives = false;
    for (int32_t r = 0; r < dumps->world_size; r++) {
        const shd_rank_dump *rank = &dumps->ranks[r];
        if (!rank->there) continue;
        lives |= rank->written_by == SHD_DUMP_VISITOR;
        double step_s = longest_step_s(rank);
        if (step_s > longest_s) longest_s = step_s;
    }
    if (!lives) return -1;
    return PATIENCE_STEPS * longest_s > LEAST_PATIENCE_S ? PATIENCE_STEPS * longest_s : LEAST_PATIENCE_S;
}

static bool find_missing(const shd_dumps *dumps, shd_judgement *out) {
    int32_t culprit = -1, waiting = 0;
    int most = 0;
    double long_s = patience_s(dumps);
    for (int32_t r = 0; r < dumps->world_size; r++) {
        int weight = weigh(&dumps->ranks[r], long_s);
        waiting += waits(&dumps->ranks[r]) && is_long(&dumps->ranks[r], long_s);
        if (weight > most) culprit = r;
        if (weight > most) most = weight;
    }
    if (waiting == 0 && most < 4) return false; /* nobody misses anybody */
    if (culprit < 0) culprit = find_behind(dumps);
    if (culprit < 0) return false;
    const shd_rank_dump *rank = &dumps->ranks[culprit];
    out->kind = SHD_JUDGED_MISSING;
    out->rank = culprit;
    out->step = rank->there ? rank->step : -1;
    snprintf(out->what, sizeof out->what, "%s", rank->where);
    say_state(rank, out);
    if (most == 0)
        say(out, ", behind all others: its last collective was number %lld", (long long)last_collective(rank));
    say(out, ".");
    say_waiting(dumps, culprit, out);
    return true;
}

/* --- straggler ---------------------------------------------------------------------------------------------------- */

/* The steps that every dump holds whole: (first, last], from the step after the oldest record to that before the newest. */
static bool find_steps(const shd_dumps *dumps, int64_t *first, int64_t *last) {
    *first = INT64_MIN;
    *last = INT64_MAX;
    for (int32_t r = 0; r < dumps->world_size; r++) {
        const shd_rank_dump *rank = &dumps->ranks[r];
        if (!rank->there || rank->event_count == 0) continue;
        int64_t oldest = rank->events[0].step + 1, newest = rank->events[rank->event_count - 1].step - 1;
        if (oldest > *first) *first = oldest;
        if (newest < *last) *last = newest;
    }
    return *first >= 0 && *last < INT64_MAX && *last - *first + 1 >= STRAGGLER_STEPS;
}

/* What a rank does by itself: its compute queue but for where it waits for others, and reading data. */
static double own_ms(const shd_rank_dump *rank, int64_t first, int64_t last) {
    static const char *const own[] = {"FORWARD", "RECOMPUTE", "BACKWARD", "ROUND", "NORM", "DIRECT", "UPDATE", "DATA"};
    double sum = 0;
    for (int64_t i = 0; i < rank->event_count; i++) {
        const shd_dump_event *event = &rank->events[i];
        if (event->step < first || event->step > last || !event->started_ns || !event->ended_ns) continue;
        for (size_t k = 0; k < sizeof own / sizeof *own; k++)
            if (!strcmp(event->kind, own[k])) sum += (double)(event->ended_ns - event->started_ns) / 1e6;
    }
    return sum;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static bool find_straggler(const shd_dumps *dumps, shd_judgement *out) {
    int64_t first, last;
    double times[SHD_DUMPS_MAX_RANKS];
    int32_t count = 0, slowest = -1;
    double most = -1;
    if (!find_steps(dumps, &first, &last)) return false;
    for (int32_t r = 0; r < dumps->world_size; r++) {
        if (!dumps->ranks[r].there) continue;
        times[count] = own_ms(&dumps->ranks[r], first, last);
        if (times[count] > most) slowest = r;
        if (times[count] > most) most = times[count];
        count++;
    }
    if (count < 2) return false;
    qsort(times, (size_t)count, sizeof *times, ascending);
    double median = times[(count - 1) / 2];
    if (most <= straggler_factor * median || median <= 0) return false;
    out->kind = SHD_JUDGED_STRAGGLER;
    out->rank = slowest;
    out->step = last;
    out->slower = most / median;
    double steps = (double)(last - first + 1);
    say(out,
        "No rank is missing, but rank %d (pid %d on %s) is slow: its own work took %.3g ms a step, %.3g times the "
        "median rank's %.3g ms, over steps %lld to %lld. The others wait for it in every step.",
        slowest, dumps->ranks[slowest].pid, dumps->ranks[slowest].host, most / steps, out->slower, median / steps,
        (long long)first + 1, (long long)last + 1);
    return true;
}

void shd_judgement_make(const shd_dumps *dumps, shd_judgement *out) {
    *out = (shd_judgement){.kind = SHD_JUDGED_CONSISTENT, .rank = -1, .step = -1, .collective = -1};
    if (find_mismatch(dumps, out) || find_dead(dumps, out) || find_missing(dumps, out) || find_straggler(dumps, out))
        return;
    say(out, "The dumps of %d of %d ranks agree: the same collectives in the same order, nobody behind, nobody slow.",
        dumps->there, dumps->world_size);
}
