#include "runtime/launch/roll.h"

#include "runtime/base/memory.h"
#include "runtime/base/status.h"

#include <stdio.h>

static void clear(shd_roll *roll) {
    roll->phase = SHD_ROLL_MEET;
    roll->here = roll->done = 0;
    for (int32_t node = 0; node < roll->node_count; node++) roll->hello[node].node = roll->end[node].node = -1;
}

sherd_status shd_roll_init(shd_roll *roll, int32_t node_count) {
    *roll = (shd_roll){.node_count = node_count};
    if (node_count < 1 || node_count > SHD_ROLL_MAX_NODES)
        return shd_fail(SHERD_ARGUMENT, "%d nodes: a job has 1 to %d", node_count, SHD_ROLL_MAX_NODES);
    roll->hello = shd_alloc((size_t)node_count, sizeof *roll->hello);
    roll->end = shd_alloc((size_t)node_count, sizeof *roll->end);
    roll->heard = shd_alloc((size_t)node_count, sizeof *roll->heard);
    roll->lost = shd_alloc((size_t)node_count, sizeof *roll->lost);
    if (!roll->hello || !roll->end || !roll->heard || !roll->lost) {
        shd_roll_fini(roll);
        return shd_fail(SHERD_MEMORY, "no memory for %d nodes", node_count);
    }
    clear(roll);
    return SHERD_OK;
}

void shd_roll_fini(shd_roll *roll) {
    shd_free(roll->hello);
    shd_free(roll->end);
    shd_free(roll->heard);
    shd_free(roll->lost);
    *roll = (shd_roll){0};
}

static void decide(shd_roll *roll, const shd_message *message) {
    roll->verdict = *message;
    roll->phase = SHD_ROLL_OVER;
}

static void take_hello(shd_roll *roll, const shd_message *message) {
    if (roll->phase != SHD_ROLL_MEET || message->attempt != roll->attempt) return;
    if (roll->hello[message->node].node < 0) roll->here++;
    roll->hello[message->node] = *message;
    if (roll->here == roll->node_count) roll->phase = SHD_ROLL_RUN;
}

static void take_done(shd_roll *roll, const shd_message *message) {
    if (roll->phase != SHD_ROLL_RUN || message->attempt != roll->attempt || roll->end[message->node].node >= 0) return;
    roll->end[message->node] = *message;
    if (++roll->done < roll->node_count) return;
    roll->stopped = false;
    for (int32_t node = 0; node < roll->node_count; node++) roll->stopped |= roll->end[node].stopped;
    decide(roll, message);
}

/* A node that is gone while nodes meet may come again; one that has left will not. */
static void take_loss(shd_roll *roll, const shd_message *message) {
    if (roll->phase == SHD_ROLL_RUN || (roll->phase == SHD_ROLL_MEET && message->kind == SHD_MESSAGE_BYE)) {
        decide(roll, message);
    } else if (roll->phase == SHD_ROLL_MEET && roll->hello[message->node].node >= 0) {
        roll->hello[message->node].node = -1;
        roll->here--;
    }
}

static bool has_node(const shd_roll *roll, const shd_message *message) {
    return message->node >= 0 && message->node < roll->node_count;
}

bool shd_roll_ignores(const shd_roll *roll, const shd_message *message) {
    return has_node(roll, message) && message->launcher > 0 && message->launcher <= roll->lost[message->node];
}

void shd_roll_apply(shd_roll *roll, const shd_message *message) {
    if (!has_node(roll, message) || shd_roll_ignores(roll, message)) return;
    if (message->kind == SHD_MESSAGE_LOST)
        roll->lost[message->node] = roll->heard[message->node];
    else
        roll->heard[message->node] = message->launcher;
    switch (message->kind) {
    case SHD_MESSAGE_HELLO: take_hello(roll, message); break;
    case SHD_MESSAGE_DONE: take_done(roll, message); break;
    case SHD_MESSAGE_LOST:
    case SHD_MESSAGE_BYE: take_loss(roll, message); break;
    case SHD_MESSAGE_FAILED:
        if (roll->phase == SHD_ROLL_RUN && message->attempt == roll->attempt) decide(roll, message);
        break;
    case SHD_MESSAGE_STOP:
        if (!roll->stop_signal) roll->stop_signal = message->signal;
        break;
    case SHD_MESSAGES: break;
    }
}

void shd_roll_next(shd_roll *roll) {
    roll->attempt++;
    clear(roll);
}

bool shd_roll_failed(const shd_roll *roll) {
    return roll->phase == SHD_ROLL_OVER && roll->verdict.kind != SHD_MESSAGE_DONE;
}

int32_t shd_roll_first_rank(const shd_roll *roll, int32_t node) {
    int32_t rank = 0;
    for (int32_t before = 0; before < node; before++) rank += roll->hello[before].count;
    return rank;
}

void shd_roll_missing(const shd_roll *roll, char *text, int bytes) {
    enum { NAMED = 8 };
    int length = 0, named = 0, missing = roll->node_count - roll->here;
    *text = 0;
    for (int32_t node = 0; node < roll->node_count && named < NAMED && length < bytes; node++) {
        if (roll->hello[node].node >= 0) continue;
        length += snprintf(text + length, (size_t)(bytes - length), named ? ", %d" : "%d", node);
        named++;
    }
    if (missing > named && length < bytes)
        snprintf(text + length, (size_t)(bytes - length), " and %d more", missing - named);
}
