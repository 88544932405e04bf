/* What the flight recorder costs: nanoseconds an event, where an event is added, started and ended, with and without the
 * one look at the clock that recording adds to what the executor measures anyway. Medians over repetitions. */
#include "runtime/base/clock.h"
#include "runtime/comm/recorder.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { TURNS = 51, EVENTS = 20000 };

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double event_ns(shd_recorder *recorder, bool clocked) {
    double times[TURNS];
    for (int turn = 0; turn < TURNS; turn++) {
        int64_t start_ns = shd_clock_ns();
        for (int i = 0; i < EVENTS; i++) {
            const shd_record record = {.queued_ns = clocked ? shd_clock_ns() : 1,
                                       .step = turn,
                                       .collective = i,
                                       .unit = i % 13,
                                       .kind = SHD_RECORD_INSTRUCTION};
            int64_t number = shd_recorder_add(recorder, &record);
            shd_recorder_start(recorder, number, start_ns);
            shd_recorder_end(recorder, number, start_ns);
        }
        times[turn] = (double)(shd_clock_ns() - start_ns) / EVENTS;
    }
    qsort(times, TURNS, sizeof *times, ascending);
    return times[TURNS / 2];
}

int main(void) {
    int fd;
    shd_recorder *recorder = NULL;
    if (shd_recorder_file(1, &fd) || shd_recorder_open(fd, 0, &recorder)) return 1;
    close(fd);
    printf("recording an event        %5.1f ns\n", event_ns(recorder, false));
    printf("the same, with its clock  %5.1f ns\n", event_ns(recorder, true));
    shd_recorder_close(recorder);
    return 0;
}
