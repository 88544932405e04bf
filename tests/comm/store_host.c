/* A rendezvous store for programs that are not C: prints its address, serves until its input ends, then prints what
 * came.
 *
 * usage: store-host HOST PORT JOB SECRET-FILE */
#include "runtime/comm/store.h"

#include <sherd/log.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void print_line(void *user, sherd_log_level level, const char *line) {
    (void)user, (void)level;
    fprintf(stderr, "%s\n", line);
}

int main(int argc, char **argv) {
    if (argc != 5) return 2;
    shd_store_server_config config = {.host = argv[1], .port = atoi(argv[2]), .job = argv[3]};
    shd_store_server *server;
    char byte;
    sherd_log_set(print_line, NULL, SHERD_LOG_INFO);
    if (shd_store_secret_from_file(argv[4], &config.secret) != SHERD_OK ||
        shd_store_server_start(&config, &server) != SHERD_OK) {
        fprintf(stderr, "%s\n", sherd_last_error());
        return 1;
    }
    printf("%s\n", shd_store_server_address(server));
    fflush(stdout);
    while (read(0, &byte, 1) > 0) {}
    shd_store_server_stats stats;
    shd_store_server_get_stats(server, &stats);
    printf("%lld joined, %lld refused, %d keys\n", (long long)stats.joined, (long long)stats.refused, stats.keys);
    shd_store_server_stop(server);
    return 0;
}
