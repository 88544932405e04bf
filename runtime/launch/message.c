#include "runtime/launch/message.h"

#include <stdio.h>
#include <string.h>

static const char *const words[SHD_MESSAGES] = {"HELLO", "FAILED", "DONE", "STOP", "LOST", "BYE"};

static const char *text_of(const char *text) { return *text ? text : "-"; }

void shd_message_print(const shd_message *message, char *line) {
    snprintf(line, SHD_MESSAGE_BYTES, "%s %d %d %d %d %d %d %d %d %d %d %d %d %s %s %s", words[message->kind],
             message->node, message->launcher, message->attempt, message->count, message->node_count,
             message->max_restarts, message->port, message->pid, message->rank, message->exit_code, message->signal,
             message->stopped, text_of(message->host), text_of(message->run_id), text_of(message->address));
}

static void clear_dash(char *text) {
    if (!strcmp(text, "-")) *text = 0;
}

bool shd_message_read(const char *line, shd_message *message) {
    shd_message read = {0};
    char word[16];
    int stopped;
    if (sscanf(line, "%15s %d %d %d %d %d %d %d %d %d %d %d %d %127s %127s %255s", word, &read.node, &read.launcher,
               &read.attempt, &read.count, &read.node_count, &read.max_restarts, &read.port, &read.pid, &read.rank,
               &read.exit_code, &read.signal, &stopped, read.host, read.run_id, read.address) != 16)
        return false;
    int kind = 0;
    while (kind < SHD_MESSAGES && strcmp(word, words[kind]) != 0) kind++;
    if (kind == SHD_MESSAGES) return false;
    read.kind = (shd_message_kind)kind;
    read.stopped = stopped;
    clear_dash(read.host);
    clear_dash(read.run_id);
    clear_dash(read.address);
    *message = read;
    return true;
}
