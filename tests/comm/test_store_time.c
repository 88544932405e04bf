/* When calls on a rendezvous store end: at their deadline, when its server goes, and when nobody wants to wait any
 * more. */
#include "tests/comm/store_rig.h"

#include "runtime/base/clock.h"

#include <criterion/criterion.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* --- time --------------------------------------------------------------------------------------------------------- */

Test(store, a_get_ends_at_its_deadline_and_does_not_spin) {
    shd_store_server *server = rig_serve(NULL);
    shd_store *store = rig_join(shd_store_server_port(server));
    char *value;
    size_t bytes;
    double best_ms = 1e9, cpu_ms = rig_cpu_ms();
    for (int i = 0; i < 5; i++) {
        double start_ms = shd_clock_ms();
        cr_assert_eq(shd_store_get(store, "never", 0.3, &value, &bytes), SHERD_TIMEOUT);
        double took_ms = shd_clock_ms() - start_ms;
        cr_assert(took_ms >= 299, "%g ms", took_ms);
        if (took_ms < best_ms) best_ms = took_ms;
    }
    cr_assert_lt(best_ms, 340);
    cr_assert_lt(rig_cpu_ms() - cpu_ms, 150, "of 1500 ms");
    double start_ms = shd_clock_ms();
    cr_assert_eq(shd_store_get(store, "never", 0, &value, &bytes), SHERD_TIMEOUT);
    cr_assert_lt(shd_clock_ms() - start_ms, 2000, "looking does not wait");
    cr_assert_eq(shd_store_get(store, "never", -1, &value, &bytes), SHERD_ARGUMENT);
    cr_assert_eq(shd_store_get(store, "never", 0.0 / 0.0, &value, &bytes), SHERD_ARGUMENT);
    shd_store_close(store);
    shd_store_server_stop(server);
}

Test(store, connecting_ends_at_its_deadline_and_does_not_spin) {
    shd_store_server *server = rig_serve(NULL);
    shd_store_config config = rig_config(shd_store_server_port(server));
    shd_store_server_stop(server); /* now nobody listens there */
    config.connect_timeout_s = 0.8;
    shd_store *store = NULL;
    double start_ms = shd_clock_ms(), cpu_ms = rig_cpu_ms();
    cr_assert_eq(shd_store_connect(&config, &store), SHERD_TIMEOUT);
    double took_ms = shd_clock_ms() - start_ms;
    cr_assert_null(store);
    cr_assert(took_ms > 790 && took_ms < 3000, "%g ms", took_ms);
    cr_assert_lt(rig_cpu_ms() - cpu_ms, 150);
    cr_assert(strstr(sherd_last_error(), "Connection refused"), "%s", sherd_last_error());
    config.host = "";
    cr_assert_eq(shd_store_connect(&config, &store), SHERD_TIMEOUT);
    cr_assert(strstr(sherd_last_error(), "its name"), "%s", sherd_last_error());
    config.host = NULL;
    config.port = 0;
    cr_assert_eq(shd_store_connect(&config, &store), SHERD_ARGUMENT);
}

static void *serve_later(void *argument) {
    const shd_store_server_config *config = argument;
    shd_store_server *server = NULL;
    usleep(400000);
    return shd_store_server_start(config, &server) == SHERD_OK ? server : NULL;
}

Test(store, a_server_may_start_after_its_clients) {
    shd_store_server *server = rig_serve(NULL);
    shd_store_server_config config = {
        .job = RIG_JOB, .secret = rig_secret(RIG_SECRET), .port = shd_store_server_port(server)};
    shd_store_server_stop(server);
    pthread_t thread;
    cr_assert_eq(pthread_create(&thread, NULL, serve_later, &config), 0);
    shd_store *store = rig_join(config.port);
    void *made;
    pthread_join(thread, &made);
    cr_assert_eq(shd_store_set(store, "k", "v", 1), SHERD_OK);
    shd_store_close(store);
    shd_store_server_stop(made);
}

static bool after_300_ms(void *user) { return shd_clock_ms() > *(double *)user; }

Test(store, waiting_can_be_given_up) {
    shd_store_server *server = rig_serve(NULL);
    double until_ms = 1e300;
    shd_store_config config = rig_config(shd_store_server_port(server));
    config.give_up = after_300_ms;
    config.user = &until_ms;
    shd_store *store, *other;
    char *value;
    size_t bytes;
    cr_assert_eq(shd_store_connect(&config, &store), SHERD_OK);
    until_ms = shd_clock_ms() + 300;
    cr_assert_eq(shd_store_get(store, "never", 60, &value, &bytes), SHERD_STATE);
    cr_assert_lt(shd_clock_ms() - until_ms, 2000);
    until_ms = 1e300;
    cr_assert_eq(shd_store_set(store, "k", "v", 1), SHERD_OK, "%s", sherd_last_error());
    cr_assert_str_eq(rig_text(store, "k"), "v");
    shd_store_server_stop(server);
    until_ms = shd_clock_ms() + 300;
    cr_assert_eq(shd_store_connect(&config, &other), SHERD_STATE);
    cr_assert_lt(shd_clock_ms() - until_ms, 2000);
    shd_store_close(store);
}

/* --- servers that go, or pause ------------------------------------------------------------------------------------ */

static void *kill_later(void *argument) {
    usleep(300000);
    kill(*(pid_t *)argument, SIGKILL);
    return NULL;
}

Test(store, the_death_of_a_server_is_seen_at_once) {
    int32_t port;
    pid_t server = rig_serve_apart(&port);
    shd_store *store = rig_join(port);
    pthread_t thread;
    char *value;
    size_t bytes;
    cr_assert_eq(shd_store_check(store), SHERD_OK);
    cr_assert_eq(pthread_create(&thread, NULL, kill_later, &server), 0);
    double start_ms = shd_clock_ms();
    cr_assert_eq(shd_store_get(store, "never", 60, &value, &bytes), SHERD_PEER, "%s", sherd_last_error());
    cr_assert_lt(shd_clock_ms() - start_ms, 5000);
    pthread_join(thread, NULL);
    cr_assert_eq(shd_store_set(store, "k", "v", 1), SHERD_PEER);
    cr_assert_eq(shd_store_check(store), SHERD_PEER);
    shd_store_close(store);
    rig_kill(server);
}

Test(store, a_loop_that_waits_for_other_things_sees_it_too) {
    shd_store_server *server = rig_serve(NULL);
    shd_store *store = rig_join(shd_store_server_port(server));
    struct pollfd polled = {.fd = shd_store_descriptor(store), .events = POLLIN};
    cr_assert_eq(poll(&polled, 1, 0), 0);
    cr_assert_eq(shd_store_check(store), SHERD_OK);
    shd_store_server_stop(server);
    cr_assert_eq(poll(&polled, 1, 1000), 1);
    cr_assert_eq(shd_store_check(store), SHERD_PEER);
    cr_assert(strstr(sherd_last_error(), "has gone"), "%s", sherd_last_error());
    shd_store_close(store);
}

Test(store, a_server_that_pauses_leaves_a_store_that_can_be_used_on) {
    int32_t port;
    pid_t server = rig_serve_apart(&port);
    shd_store_config config = rig_config(port);
    config.call_timeout_s = 0.3;
    shd_store *store;
    char *value, *big = calloc(1, SHD_STORE_VALUE_BYTES);
    size_t bytes;
    cr_assert_eq(shd_store_connect(&config, &store), SHERD_OK);
    cr_assert_eq(shd_store_set(store, "old", "value", 5), SHERD_OK);
    kill(server, SIGSTOP);
    cr_assert_eq(waitpid(server, NULL, WUNTRACED), server); /* it has stopped */
    cr_assert_eq(shd_store_add(store, "count", 1, NULL), SHERD_TIMEOUT);
    cr_assert_eq(shd_store_get(store, "old", 0, &value, &bytes), SHERD_TIMEOUT);
    /* Until no more fits between us, and then some. */
    for (int i = 0; i < 8; i++) {
        double start_ms = shd_clock_ms();
        cr_assert_eq(shd_store_set(store, "big", big, SHD_STORE_VALUE_BYTES), SHERD_TIMEOUT);
        cr_assert_lt(shd_clock_ms() - start_ms, 5000);
    }
    kill(server, SIGCONT);
    int64_t count = 0;
    usleep(100000);
    cr_assert_eq(shd_store_add(store, "count", 1, &count), SHERD_OK, "%s", sherd_last_error());
    cr_assert_eq(count, 2);
    cr_assert_str_eq(rig_text(store, "old"), "value");
    free(big);
    shd_store_close(store);
    rig_kill(server);
}
