/* The arguments of every command that starts ranks: how they are stopped, and how often they are started again. */
#ifndef SHD_CLI_LAUNCH_ARGUMENTS_H
#define SHD_CLI_LAUNCH_ARGUMENTS_H

#include "runtime/cli/options.h"
#include "runtime/launch/affinity.h"
#include "runtime/launch/launch.h"

enum {
    SHD_OPTION_RESTARTS = 1100,
    SHD_OPTION_RESTART_DELAY,
    SHD_OPTION_AFFINITY,
    SHD_OPTION_STOP_TIMEOUT,
    SHD_OPTION_STOP_TIMEOUT_OLD
};
enum { SHD_LAUNCH_MOST_RESTARTS = 1000000 };

/* Rows for a command's table of options. Names are torchrun's, but for the last, which is sherd's older one. */
#define SHD_LAUNCH_OPTIONS                                                                                             \
    {SHD_OPTION_RESTARTS, "max-restarts", "K",                                                                         \
     "Start all ranks again when one has failed, K times at most (default 0)."},                                       \
        {SHD_OPTION_RESTART_DELAY, "restart-delay", "SECONDS",                                                         \
         "How long to wait before the first restart (default 1); before the next ones twice as long\n"                 \
         "each time, a minute at most."},                                                                              \
        {SHD_OPTION_AFFINITY, "affinity", "HOW",                                                                       \
         "Where ranks run: auto, bound to the memory nodes of their share of the cores where there are\n"              \
         "several nodes; cores, bound to their share; none (default auto). Ranks of run get cores by the\n"            \
         "GPU that has their local rank for a number, where there are several nodes."},                                \
        {SHD_OPTION_STOP_TIMEOUT, "shutdown-timeout", "SECONDS",                                                       \
         "How long ranks may take to end after TERM, INT, HUP or QUIT, until killed (default 30)."},                   \
    {                                                                                                                  \
        SHD_OPTION_STOP_TIMEOUT_OLD, "stop-timeout", "SECONDS", "The same."                                            \
    }

typedef struct shd_launch_arguments {
    double stop_timeout_s, restart_delay_s;
    bool stop_timeout_given;
    int32_t max_restarts;
    shd_affinity_choice affinity; /* for shd_placement_make */
} shd_launch_arguments;
#define SHD_LAUNCH_ARGUMENTS_INIT                                                                                      \
    { .stop_timeout_s = 30, .restart_delay_s = 1, .affinity = SHD_AFFINITY_AUTO }

/* Whether `id` is one of SHD_LAUNCH_OPTIONS. */
bool shd_launch_arguments_has(int id);
/* Takes it. False, with what is wrong said, for a value that is none. */
bool shd_launch_arguments_take(shd_launch_arguments *given, const shd_command *command, int id, const char *value);
/* A launch with them. */
shd_launch shd_launch_arguments_make(const shd_launch_arguments *given);

#endif
