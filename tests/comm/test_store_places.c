/* Where a rendezvous store listens, what it holds of the process, and where its secret comes from. */
#include "tests/comm/store_rig.h"

#include "runtime/base/clock.h"
#include "runtime/base/memory.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

/* --- who listens where -------------------------------------------------------------------------------------------- */

static sherd_status serve_at(const char *host, int32_t port, shd_store_server **server) {
    const shd_store_server_config config = {
        .host = host, .port = port, .job = RIG_JOB, .secret = rig_secret(RIG_SECRET)};
    return shd_store_server_start(&config, server);
}

/* Whether one can be joined there and used, within `patience_s`. */
static sherd_status try_at(const char *host, int32_t port, double patience_s) {
    shd_store_config config = rig_config(port);
    shd_store *store;
    config.host = host;
    config.connect_timeout_s = patience_s;
    sherd_status status = shd_store_connect(&config, &store);
    if (status != SHERD_OK) return status;
    status = shd_store_set(store, "k", "v", 1);
    shd_store_close(store);
    return status;
}

static sherd_status meet_at(const char *host, int32_t port) { return try_at(host, port, 10); }

Test(store, a_busy_port_is_an_error_at_once_that_names_it) {
    shd_store_server *server, *second;
    char port[16];
    cr_assert_eq(serve_at("127.0.0.1", 0, &server), SHERD_OK);
    snprintf(port, sizeof port, "%d", shd_store_server_port(server));
    double start_ms = shd_clock_ms();
    cr_assert_eq(serve_at("127.0.0.1", shd_store_server_port(server), &second), SHERD_COMM);
    cr_assert_lt(shd_clock_ms() - start_ms, 1000);
    cr_assert(strstr(sherd_last_error(), port) && strstr(sherd_last_error(), "busy"), "%s", sherd_last_error());
    cr_assert_eq(serve_at("127.0.0.1", 65536, &second), SHERD_ARGUMENT);
    cr_assert_eq(serve_at("192.0.2.1", 0, &second), SHERD_IO, "an address of nobody");
    cr_assert(strstr(sherd_last_error(), "192.0.2.1"), "%s", sherd_last_error());
    shd_store_server_stop(server);
}

Test(store, a_port_can_be_used_again_at_once) {
    shd_store_server *server, *second;
    cr_assert_eq(serve_at(NULL, 0, &server), SHERD_OK);
    int32_t port = shd_store_server_port(server);
    shd_store *store = rig_join(port);
    shd_store_server_stop(server);
    cr_assert_eq(serve_at(NULL, port, &second), SHERD_OK, "%s", sherd_last_error());
    cr_assert_eq(meet_at(NULL, port), SHERD_OK);
    shd_store_close(store);
    shd_store_server_stop(second);
}

Test(store, twenty_servers_get_twenty_ports) {
    shd_store_server *servers[20];
    for (int i = 0; i < 20; i++) cr_assert_eq(serve_at("localhost", 0, &servers[i]), SHERD_OK);
    for (int i = 0; i < 20; i++)
        for (int j = 0; j < i; j++) cr_assert_neq(shd_store_server_port(servers[i]), shd_store_server_port(servers[j]));
    for (int i = 0; i < 20; i++) cr_assert_eq(meet_at("localhost", shd_store_server_port(servers[i])), SHERD_OK);
    for (int i = 0; i < 20; i++) shd_store_server_stop(servers[i]);
}

Test(store, nothing_listens_beyond_the_given_address) {
    shd_store_server *server;
    cr_assert_eq(serve_at("127.0.0.2", 0, &server), SHERD_OK);
    int32_t port = shd_store_server_port(server);
    cr_assert_eq(strncmp(shd_store_server_address(server), "127.0.0.2:", 10), 0);
    cr_assert_eq(meet_at("127.0.0.2", port), SHERD_OK);
    cr_assert_eq(rig_connect(port), -1, "127.0.0.1");
    cr_assert_eq(try_at("127.0.0.3", port, 0.5), SHERD_TIMEOUT);
    shd_store_server_stop(server);
    cr_assert_eq(serve_at("*", 0, &server), SHERD_OK);
    cr_assert_eq(meet_at("127.0.0.3", shd_store_server_port(server)), SHERD_OK);
    shd_store_server_stop(server);
}

Test(store, it_speaks_ipv6) {
    shd_store_server *server;
    if (serve_at("::1", 0, &server) != SHERD_OK) cr_skip_test("this machine has no IPv6: %s", sherd_last_error());
    int32_t port = shd_store_server_port(server);
    cr_assert_eq(strncmp(shd_store_server_address(server), "[::1]:", 6), 0);
    cr_assert_eq(meet_at("::1", port), SHERD_OK);
    cr_assert_eq(meet_at("[::1]", port), SHERD_OK);
    cr_assert_eq(try_at("127.0.0.1", port, 0.5), SHERD_TIMEOUT, "not beyond it");
    shd_store_server_stop(server);
    cr_assert_eq(serve_at("*", 0, &server), SHERD_OK);
    cr_assert_eq(meet_at("::1", shd_store_server_port(server)), SHERD_OK, "%s", sherd_last_error());
    cr_assert_eq(meet_at("127.0.0.1", shd_store_server_port(server)), SHERD_OK);
    shd_store_server_stop(server);
}

/* --- what it holds ------------------------------------------------------------------------------------------------ */

/* Descriptors from 3 on that exec would hand on; -1 for more than a list holds. */
static int count_inherited(void) {
    int count = 0;
    DIR *listing = opendir("/proc/self/fd");
    for (struct dirent *entry; (entry = readdir(listing));) {
        int fd = atoi(entry->d_name);
        if (entry->d_name[0] != '.' && fd > 2 && !(fcntl(fd, F_GETFD) & FD_CLOEXEC)) count++;
    }
    closedir(listing);
    return count;
}

static int count_open(void) {
    int count = 0;
    DIR *listing = opendir("/proc/self/fd");
    while (readdir(listing)) count++;
    closedir(listing);
    return count;
}

Test(store, no_descriptor_or_memory_is_left_or_inherited) {
    int inherited = count_inherited(), open_before = count_open();
    int64_t held = shd_memory_held(SHD_MEMORY_OBJECTS);
    shd_store_server *server;
    cr_assert_eq(serve_at("localhost", 0, &server), SHERD_OK);
    shd_store *stores[8];
    for (int i = 0; i < 8; i++) {
        shd_store_config config = rig_config(shd_store_server_port(server));
        config.host = "localhost";
        cr_assert_eq(shd_store_connect(&config, &stores[i]), SHERD_OK);
        cr_assert_eq(shd_store_add(stores[i], i % 2 ? "a" : "b", 1, NULL), SHERD_OK);
    }
    cr_assert_gt(count_open(), open_before + 16);
    cr_assert_eq(count_inherited(), inherited);
    for (int i = 0; i < 4; i++) shd_store_close(stores[i]);
    shd_store_server_stop(server);
    for (int i = 4; i < 8; i++) shd_store_close(stores[i]);
    shd_store_close(NULL);
    shd_store_server_stop(NULL);
    cr_assert_eq(count_open(), open_before);
    cr_assert_eq(shd_memory_held(SHD_MEMORY_OBJECTS), held);
}

Test(store, a_child_that_has_not_come_to_its_exec_changes_nothing) {
    shd_store_server *server = rig_serve(NULL);
    int32_t port = shd_store_server_port(server);
    shd_store *stores[8];
    for (int i = 0; i < 8; i++) stores[i] = rig_join(port);
    pid_t child = fork(); /* it holds every end of every connection */
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;) pause();
    }
    for (int i = 0; i < 8; i += 2) shd_store_close(stores[i]);
    shd_store_server_stats stats;
    for (int i = 0; i < 500; i++) {
        shd_store_server_get_stats(server, &stats);
        if (stats.clients == 4) break;
        usleep(10000);
    }
    cr_assert_eq(stats.clients, 4, "the server sees who has gone");
    for (int i = 0; i < 8; i += 2) stores[i] = rig_join(port);
    for (int i = 0; i < 8; i++) cr_assert_eq(shd_store_add(stores[i], "n", 1, NULL), SHERD_OK);
    cr_assert_str_eq(rig_text(stores[0], "n"), "8");
    double cpu_ms = rig_cpu_ms();
    usleep(300000);
    cr_assert_lt(rig_cpu_ms() - cpu_ms, 100, "nothing that is closed wakes it");
    shd_store_server_stop(server);
    for (int i = 0; i < 8; i++) {
        cr_assert_eq(shd_store_add(stores[i], "n", 1, NULL), SHERD_PEER);
        shd_store_close(stores[i]);
    }
    cr_assert_eq(try_at(NULL, port, 0.5), SHERD_TIMEOUT, "nobody listens");
    rig_kill(child);
}

Test(store, its_thread_takes_no_signals) {
    shd_store_server *server = rig_serve(NULL);
    shd_store_close(rig_join(shd_store_server_port(server))); /* the thread has begun: until then libc blocks them */
    DIR *listing = opendir("/proc/self/task");
    int found = 0;
    for (struct dirent *entry; (entry = readdir(listing));) {
        char path[300], line[256], name[64] = "";
        unsigned long long blocked = 0;
        snprintf(path, sizeof path, "/proc/self/task/%s/status", entry->d_name);
        FILE *file = fopen(path, "r");
        if (!file) continue;
        while (fgets(line, sizeof line, file)) {
            (void)sscanf(line, "Name: %60s", name);
            (void)sscanf(line, "SigBlk: %llx", &blocked);
        }
        fclose(file);
        if (strcmp(name, "sherd-store") != 0) continue;
        found++;
        for (int s = 1; s < 32; s++)
            cr_assert((blocked >> (s - 1) & 1) || s == SIGKILL || s == SIGSTOP, "signal %d", s);
    }
    closedir(listing);
    cr_assert_eq(found, 1);
    shd_store_server_stop(server);
}

Test(store, one_client_too_many_waits_for_another_to_go) {
    shd_store_server *server = rig_serve(&(shd_store_server_config){.max_clients = 2});
    int32_t port = shd_store_server_port(server);
    shd_store *one = rig_join(port), *two = rig_join(port);
    cr_assert_eq(try_at(NULL, port, 0.5), SHERD_TIMEOUT);
    cr_assert(strstr(sherd_last_error(), "no room"), "%s", sherd_last_error());
    cr_assert_eq(shd_store_set(one, "k", "v", 1), SHERD_OK);
    shd_store_close(two);
    cr_assert_eq(meet_at(NULL, port), SHERD_OK, "%s", sherd_last_error());
    shd_store_close(one);
    shd_store_server_stop(server);
}

/* --- secrets ------------------------------------------------------------------------------------------------------ */

static shd_store_secret write_and_read(const char *path, const void *text, size_t bytes, mode_t mode,
                                       sherd_status expected) {
    shd_store_secret secret = {0};
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    cr_assert_eq(write(file, text, bytes), (ssize_t)bytes);
    cr_assert_eq(fchmod(file, mode), 0);
    close(file);
    cr_assert_eq(shd_store_secret_from_file(path, &secret), expected, "%s", sherd_last_error());
    return secret;
}

Test(store, a_secret_is_a_text_of_enough_bytes) {
    shd_store_secret plain = rig_secret("0123456789abcdef"), spaced = rig_secret(" \t0123456789abcdef\r\n"),
                     other = rig_secret("0123456789abcdeg");
    cr_assert_eq(memcmp(&plain, &spaced, sizeof plain), 0);
    cr_assert_neq(memcmp(&plain, &other, sizeof plain), 0);
    cr_assert_eq(shd_store_secret_from_text("0123456789abcde", &other), SHERD_CONFIG);
    cr_assert_eq(shd_store_secret_from_text("  0123456789abc \n", &other), SHERD_CONFIG);
    char one[SHD_STORE_SECRET_TEXT_BYTES], two[SHD_STORE_SECRET_TEXT_BYTES];
    cr_assert_eq(shd_store_secret_make(one), SHERD_OK);
    cr_assert_eq(shd_store_secret_make(two), SHERD_OK);
    cr_assert_eq(strspn(one, "0123456789abcdef"), 64);
    cr_assert_str_neq(one, two);
}

Test(store, a_secret_in_a_file_is_nobody_elses) {
    char path[] = "/tmp/sherd-secret-XXXXXX";
    close(mkstemp(path));
    rig_log_start();
    shd_store_secret plain = rig_secret("0123456789abcdef");
    shd_store_secret filed = write_and_read(path, "0123456789abcdef\n", 17, 0600, SHERD_OK);
    cr_assert_eq(memcmp(&plain, &filed, sizeof plain), 0);
    cr_assert_eq(rig_log_count("may read"), 0);
    write_and_read(path, "0123456789abcdef\n", 17, 0644, SHERD_OK);
    cr_assert_eq(rig_log_count("may read"), 1);
    write_and_read(path, "0123456789abcdef\n", 17, 0602, SHERD_CONFIG);
    write_and_read(path, "short\n", 6, 0600, SHERD_CONFIG);
    cr_assert(strstr(sherd_last_error(), path), "%s", sherd_last_error());
    char *big = malloc(4097);
    memset(big, 'x', 4097);
    write_and_read(path, big, 4096, 0600, SHERD_OK);
    write_and_read(path, big, 4097, 0600, SHERD_CONFIG);
    free(big);
    unlink(path);
    cr_assert_eq(shd_store_secret_from_file(path, &filed), SHERD_IO);
    cr_assert_eq(mkfifo(path, 0600), 0);
    cr_assert_eq(shd_store_secret_from_file(path, &filed), SHERD_CONFIG, "a pipe is not waited for");
    unlink(path);
    cr_assert_eq(shd_store_secret_from_file("/", &filed), SHERD_CONFIG);
}
