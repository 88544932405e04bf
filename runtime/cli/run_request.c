#include "runtime/cli/run_request.h"

#include "runtime/launch/processors.h"

#include <stdlib.h>
#include <string.h>

static bool take_ranks(shd_run_request *request, const shd_command *command, const char *value) {
    int64_t ranks;
    int32_t devices = shd_processors_count_devices();
    if (!strcmp(value, "gpu") && !devices) {
        shd_usage_error(command, "--nproc-per-node gpu: there is no GPU here");
        return false;
    }
    if (!strcmp(value, "gpu") || (!strcmp(value, "auto") && devices)) {
        request->rank_count = devices;
        return true;
    }
    if (!strcmp(value, "cpu") || !strcmp(value, "auto")) {
        request->rank_count = shd_processors_count();
        return true;
    }
    if (!shd_parse_integer(value, 1, SHD_LAUNCH_MAX_RANKS, &ranks)) {
        shd_usage_error(command, "-n %s: a number of ranks from 1 to %d, auto, gpu or cpu is needed", value,
                        SHD_LAUNCH_MAX_RANKS);
        return false;
    }
    request->rank_count = (int32_t)ranks;
    return true;
}

static bool take_port(shd_run_request *request, const shd_command *command, const char *value) {
    int64_t port;
    if (!shd_parse_integer(value, 0, 65535, &port)) {
        shd_usage_error(command, "--master-port %s: a number from 1 to 65535 is needed, or 0 for a free one", value);
        return false;
    }
    request->master_port = (int)port;
    return true;
}

/* Names become values of variables. */
static bool take_text(const char **text, const shd_command *command, const char *name, const char *value) {
    if (*value) {
        *text = value;
        return true;
    }
    shd_usage_error(command, "--%s needs a value that is not empty", name);
    return false;
}

static bool take_interval(const shd_command *command, const char *value) {
    double seconds;
    if (shd_parse_number(value, 0, 1e6, &seconds)) return true;
    shd_usage_error(command, "--monitor-interval %s: a number of seconds is needed", value);
    return false;
}

/* "[::1]", as torchrun has IPv6 addresses, is ::1. */
static const char *strip_brackets(const char *address, char *room, size_t room_bytes) {
    size_t length = strlen(address);
    if (length < 3 || address[0] != '[' || address[length - 1] != ']' || length > room_bytes) return address;
    memcpy(room, address + 1, length - 2);
    room[length - 2] = 0;
    return room;
}

bool shd_run_request_take(shd_run_request *request, const shd_command *command, int id, const char *value) {
    switch (id) {
    case 'n': return take_ranks(request, command, value);
    case 'm': return take_text(&request->module, command, "module", value);
    case SHD_RUN_STANDALONE: return request->standalone = true;
    case SHD_RUN_NO_PYTHON: return request->no_python = true;
    case SHD_RUN_ID: return take_text(&request->id, command, "rdzv-id", value);
    case SHD_RUN_ROLE: return take_text(&request->role, command, "role", value);
    case SHD_RUN_MASTER_PORT: return take_port(request, command, value);
    case SHD_RUN_MONITOR_INTERVAL: return take_interval(command, value);
    case SHD_RUN_MASTER_ADDRESS:
        request->master_address = strip_brackets(value, request->address_room, sizeof request->address_room);
        return take_text(&request->master_address, command, "master-addr", request->master_address);
    default: return false;
    }
}

bool shd_run_request_check(const shd_run_request *request, const shd_command *command) {
    (void)request, (void)command;
    return true;
}

static bool is_script(const char *program) {
    size_t length = strlen(program);
    return length > 3 && !strcmp(program + length - 3, ".py");
}

char **shd_run_request_program(const shd_run_request *request, char **operands) {
    static char by_default[] = "python3", unbuffered[] = "-u", module[] = "-m";
    size_t count = 0, at = 0;
    while (operands[count]) count++;
    char **program = malloc((count + 5) * sizeof *program);
    if (!program) return NULL;
    if (request->module || (is_script(operands[0]) && !request->no_python)) {
        char *python = getenv("PYTHON_EXEC");
        program[at++] = python && *python ? python : by_default;
        program[at++] = unbuffered;
    }
    if (request->module) {
        program[at++] = module;
        program[at++] = (char *)request->module;
    }
    memcpy(program + at, operands, (count + 1) * sizeof *operands);
    return program;
}

void shd_run_request_fill(const shd_run_request *request, shd_launch *launch) {
    launch->rank_count = request->rank_count;
    launch->role = request->role;
    launch->run_id = request->standalone ? NULL : request->id;
    launch->master_address = request->standalone ? NULL : request->master_address;
    launch->master_port = request->standalone ? 0 : request->master_port;
}
