#include "runtime/cli/run_request.h"

#include "runtime/launch/processors.h"
#include "runtime/launch/variables.h"

#include <sherd/status.h>
#include <stdio.h>
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

static bool take_number(const shd_command *command, const char *name, const char *value, int64_t low, int64_t high,
                        int *out) {
    int64_t number;
    if (!shd_parse_integer(value, low, high, &number)) {
        shd_usage_error(command, "--%s %s: a whole number from %lld to %lld is needed", name, value, (long long)low,
                        (long long)high);
        return false;
    }
    *out = (int)number;
    return true;
}

/* "4", or torchrun's "4:4"; a number of nodes that changes is another matter. */
static bool take_nodes(shd_run_request *request, const shd_command *command, const char *value) {
    char least[16];
    const char *colon = strchr(value, ':');
    if (!colon) return take_number(command, "nnodes", value, 1, SHD_ROLL_MAX_NODES, &request->node_count);
    size_t length = (size_t)(colon - value);
    snprintf(least, sizeof least, "%.*s", (int)(length < sizeof least ? length : sizeof least - 1), value);
    if (strcmp(least, colon + 1) != 0) {
        shd_usage_error(command, "--nnodes %s: jobs whose number of nodes changes are not supported; give one number",
                        value);
        return false;
    }
    return take_number(command, "nnodes", least, 1, SHD_ROLL_MAX_NODES, &request->node_count);
}

static bool take_backend(const shd_command *command, const char *value) {
    if (!strcmp(value, "c10d") || !strcmp(value, "static")) return true;
    shd_usage_error(command,
                    "--rdzv-backend %s: nodes meet in a store of sherd's own, for which c10d and static stand; "
                    "no other is supported",
                    value);
    return false;
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

/* "host", "host:port", "[::1]:port", "::1": an address with more than one colon and no brackets has no port. White space
 * would be torn apart in what nodes tell each other. */
static bool take_endpoint(const shd_command *command, const char *name, const char *value, char host[256], int *port) {
    const char *start = value, *end = value + strlen(value), *colon = strrchr(value, ':');
    if (*value == '[' && strchr(value, ']')) {
        start++;
        end = strchr(value, ']');
        colon = end[1] == ':' ? end + 1 : NULL;
        if (!colon && end[1]) end = start;
    } else if (colon && strchr(value, ':') == colon) {
        end = colon;
    } else {
        colon = NULL;
    }
    size_t length = (size_t)(end - start);
    if (length == 0 || length > 255 || strpbrk(value, " \t\r\n") || (colon && !port)) {
        shd_usage_error(command,
                        port ? "--%s %s: HOST or HOST:PORT is needed, with an IPv6 address as [ADDRESS]:PORT"
                             : "--%s %s: the name or the address of a host is needed",
                        name, value);
        return false;
    }
    memcpy(host, start, length);
    host[length] = 0;
    return !colon || take_number(command, name, colon + 1, 0, 65535, port);
}

/* One of "key=value,key=value". */
static bool take_setting(shd_run_request *request, const shd_command *command, const char *text, size_t length) {
    char setting[128];
    snprintf(setting, sizeof setting, "%.*s", (int)(length < sizeof setting ? length : sizeof setting - 1), text);
    char *equals = strchr(setting, '=');
    if (equals) *equals = 0;
    double *out = NULL;
    int64_t beats;
    if (!strcmp(setting, "join_timeout") || !strcmp(setting, "timeout")) out = &request->join_timeout_s;
    if (!strcmp(setting, "keep_alive_interval")) out = &request->beat_s;
    if (!strcmp(setting, "keep_alive_max_attempt")) out = &request->beats;
    if (!out)
        shd_usage_error(command,
                        "--rdzv-conf: %s is not supported; join_timeout, keep_alive_interval and "
                        "keep_alive_max_attempt are",
                        setting);
    else if (out == &request->beats && (!equals || !shd_parse_integer(equals + 1, 2, 1000000, &beats)))
        shd_usage_error(command,
                        "--rdzv-conf %s: a whole number from 2 to 1000000 is needed: a node that is silent for "
                        "one interval is not lost yet",
                        setting);
    else if (!equals || !shd_parse_number(equals + 1, 0.05, 1e6, out))
        shd_usage_error(command, "--rdzv-conf %s: a number from 0.05 to 1000000 is needed", setting);
    else
        return true;
    return false;
}

static bool take_conf(shd_run_request *request, const shd_command *command, const char *value) {
    while (*value) {
        size_t length = strcspn(value, ",");
        if (!take_setting(request, command, value, length)) return false;
        value += length + (value[length] == ',');
    }
    return true;
}

/* A name of the job, which all nodes hear. */
static bool take_id(shd_run_request *request, const shd_command *command, const char *value) {
    if (!take_text(&request->id, command, "rdzv-id", value)) return false;
    if (strlen(value) < SHD_MESSAGE_WORD_BYTES && !strpbrk(value, " \t\r\n")) return true;
    shd_usage_error(command, "--rdzv-id: at most %d characters, and no white space", SHD_MESSAGE_WORD_BYTES - 1);
    return false;
}

bool shd_run_request_take(shd_run_request *request, const shd_command *command, int id, const char *value) {
    switch (id) {
    case 'n': return take_ranks(request, command, value);
    case 'm': return take_text(&request->module, command, "module", value);
    case SHD_RUN_NODES: return take_nodes(request, command, value);
    case SHD_RUN_NODE_RANK: return take_number(command, "node-rank", value, 0, SHD_ROLL_MAX_NODES - 1, &request->node);
    case SHD_RUN_BACKEND: return take_backend(command, value);
    case SHD_RUN_ENDPOINT:
        return take_endpoint(command, "rdzv-endpoint", value, request->endpoint_host, &request->endpoint_port);
    case SHD_RUN_ID: return take_id(request, command, value);
    case SHD_RUN_CONF: return take_conf(request, command, value);
    case SHD_RUN_SECRET_FILE: return take_text(&request->secret_file, command, "rdzv-secret-file", value);
    case SHD_RUN_MASTER_ADDRESS: return take_endpoint(command, "master-addr", value, request->master_host, NULL);
    case SHD_RUN_MASTER_PORT: return take_number(command, "master-port", value, 0, 65535, &request->master_port);
    case SHD_RUN_LOCAL_ADDRESS: return take_endpoint(command, "local-addr", value, request->local_host, NULL);
    case SHD_RUN_STANDALONE: return request->standalone = true;
    case SHD_RUN_ROLE: return take_text(&request->role, command, "role", value);
    case SHD_RUN_MONITOR_INTERVAL: return take_interval(command, value);
    case SHD_RUN_NO_PYTHON: return request->no_python = true;
    default: return false;
    }
}

bool shd_run_request_check(shd_run_request *request, const shd_command *command) {
    enum { C10D_PORT = 29400, STATIC_PORT = 29500 };
    if (request->standalone) request->node_count = 1;
    if (request->node_count == 1) {
        if (request->node <= 0 || request->standalone) return true;
        shd_usage_error(command, "--node-rank %d: there is one node; --nnodes says how many", request->node);
        return false;
    }
    if (request->node >= request->node_count) {
        shd_usage_error(command, "--node-rank %d of --nnodes %d: nodes are numbered from 0", request->node,
                        request->node_count);
        return false;
    }
    if (!request->endpoint_host[0]) {
        snprintf(request->endpoint_host, sizeof request->endpoint_host, "%s", request->master_host);
        request->endpoint_port = request->master_port ? request->master_port : STATIC_PORT;
        request->master_port = 0; /* the launchers have it: that of the ranks is another */
    }
    if (!request->endpoint_port) request->endpoint_port = C10D_PORT;
    if (!request->endpoint_host[0]) {
        shd_usage_error(command,
                        "--nnodes %d: --rdzv-endpoint HOST:PORT, or --master-addr and --master-port, must say "
                        "where the nodes meet",
                        request->node_count);
        return false;
    }
    if (request->secret_file || getenv(SHD_VARIABLES_SECRET)) return true;
    shd_usage_error(command,
                    "--nnodes %d: nodes know each other by a secret, the same on all of them: give "
                    "--rdzv-secret-file FILE, or set %s; 'openssl rand -hex 32' makes one",
                    request->node_count, SHD_VARIABLES_SECRET);
    return false;
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

static bool fill_nodes(shd_run_request *request) {
    shd_nodes_config *nodes = &request->nodes;
    *nodes = (shd_nodes_config)SHD_NODES_CONFIG_INIT;
    nodes->node_count = request->node_count;
    nodes->node = request->node;
    nodes->host = request->endpoint_host;
    nodes->port = request->endpoint_port;
    nodes->job = request->id ? request->id : "";
    if (request->master_host[0]) nodes->local_address = request->master_host;
    if (request->local_host[0]) nodes->local_address = request->local_host;
    nodes->join_timeout_s = request->join_timeout_s;
    nodes->beat_s = request->beat_s;
    nodes->lost_after_s = request->beat_s * request->beats;
    sherd_status status = request->secret_file
                              ? shd_store_secret_from_file(request->secret_file, &nodes->secret)
                              : shd_store_secret_from_text(getenv(SHD_VARIABLES_SECRET), &nodes->secret);
    if (status != SHERD_OK) shd_say_error("%s", sherd_last_error());
    return status == SHERD_OK;
}

bool shd_run_request_fill(shd_run_request *request, shd_launch *launch) {
    launch->rank_count = request->rank_count;
    launch->role = request->role;
    launch->run_id = request->standalone ? NULL : request->id;
    launch->master_address = request->standalone || !request->master_host[0] ? NULL : request->master_host;
    launch->master_port = request->standalone ? 0 : request->master_port;
    if (request->node_count == 1) return true;
    launch->nodes = &request->nodes;
    return fill_nodes(request);
}
