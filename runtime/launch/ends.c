#include "runtime/launch/ends.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

shd_end_kind shd_end_kind_of(const shd_rank_end *end, int peer_failed_code) {
    if (!end->ended) return SHD_END_NONE;
    if (end->signal == SIGKILL && end->told == SIGKILL) return SHD_END_KILLED;
    if (end->told &&
        (end->signal == end->told || end->exit_code == 128 + end->told || !(end->exit_code || end->signal)))
        return SHD_END_TOLD;
    if (end->signal) return SHD_END_SIGNAL;
    if (end->exit_code && end->exit_code == peer_failed_code) return SHD_END_LOST_PEER;
    if (end->told) return SHD_END_TOLD_CODE;
    return end->exit_code ? SHD_END_FAILED : SHD_END_DONE;
}

static void name_signal(int signal, char text[24]) {
    const char *name = sigabbrev_np(signal);
    if (name)
        snprintf(text, 24, "%.20s", name);
    else
        snprintf(text, 24, "signal %d", signal);
}

void shd_end_text(const shd_rank_end *end, shd_end_kind kind, char text[64]) {
    char name[24];
    name_signal(end->told, name);
    switch (kind) {
    case SHD_END_NONE: snprintf(text, 64, "not started"); break;
    case SHD_END_DONE: snprintf(text, 64, "done, exit code 0"); break;
    case SHD_END_FAILED: snprintf(text, 64, "exit code %d", end->exit_code); break;
    case SHD_END_LOST_PEER: snprintf(text, 64, "lost another rank (%d)", end->exit_code); break;
    case SHD_END_SIGNAL:
        name_signal(end->signal, name);
        snprintf(text, 64, "killed by %s", name);
        break;
    case SHD_END_TOLD: snprintf(text, 64, "ended by %s", name); break;
    case SHD_END_TOLD_CODE: snprintf(text, 64, "exit code %d after %s", end->exit_code, name); break;
    case SHD_END_KILLED: snprintf(text, 64, "had to be killed"); break;
    }
}

void shd_ranks_text(const int32_t *ranks, int32_t count, char *text, size_t bytes) {
    size_t used = 0;
    text[0] = 0;
    for (int32_t i = 0; i < count;) {
        int32_t last = i;
        while (last + 1 < count && ranks[last + 1] == ranks[last] + 1) last++;
        char piece[32];
        int length =
            snprintf(piece, sizeof piece, last > i ? "%s%d-%d" : "%s%d", i > 0 ? "," : "", ranks[i], ranks[last]);
        /* Room stays for the sign that some are missing. */
        if (used + (size_t)length + sizeof ",…" > bytes) {
            snprintf(text + used, bytes - used, i > 0 ? ",…" : "…");
            return;
        }
        memcpy(text + used, piece, (size_t)length + 1);
        used += (size_t)length;
        i = last + 1;
    }
}
