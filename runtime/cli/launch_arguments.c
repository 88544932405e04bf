#include "runtime/cli/launch_arguments.h"

#include "runtime/cli/placement.h"

bool shd_launch_arguments_has(int id) { return id >= SHD_OPTION_RESTARTS && id <= SHD_OPTION_STOP_TIMEOUT_OLD; }

static bool take_seconds(const shd_command *command, const char *name, const char *text, double *out) {
    if (shd_parse_number(text, 0, 1e6, out)) return true;
    shd_usage_error(command, "--%s %s: a number of seconds from 0 to 1000000 is needed", name, text);
    return false;
}

static bool take_restarts(const shd_command *command, const char *text, int32_t *out) {
    int64_t value;
    if (!shd_parse_integer(text, 0, SHD_LAUNCH_MOST_RESTARTS, &value)) {
        shd_usage_error(command, "--max-restarts %s: a whole number from 0 to %d is needed", text,
                        SHD_LAUNCH_MOST_RESTARTS);
        return false;
    }
    *out = (int32_t)value;
    return true;
}

bool shd_launch_arguments_take(shd_launch_arguments *given, const shd_command *command, int id, const char *value) {
    switch (id) {
    case SHD_OPTION_RESTARTS: return take_restarts(command, value, &given->max_restarts);
    case SHD_OPTION_RESTART_DELAY: return take_seconds(command, "restart-delay", value, &given->restart_delay_s);
    case SHD_OPTION_AFFINITY: return shd_placement_take(command, value, &given->affinity);
    case SHD_OPTION_STOP_TIMEOUT:
    case SHD_OPTION_STOP_TIMEOUT_OLD:
        given->stop_timeout_given = true;
        return take_seconds(command, id == SHD_OPTION_STOP_TIMEOUT ? "shutdown-timeout" : "stop-timeout", value,
                            &given->stop_timeout_s);
    default: return false;
    }
}

shd_launch shd_launch_arguments_make(const shd_launch_arguments *given) {
    shd_launch launch = SHD_LAUNCH_INIT;
    launch.stop_grace_s = given->stop_timeout_s;
    launch.max_restarts = given->max_restarts;
    launch.restart_delay_s = given->restart_delay_s;
    return launch;
}
