/* What calls on a rendezvous store do, and its limits. */
#include "tests/comm/store_rig.h"

#include "runtime/base/clock.h"
#include "runtime/base/memory.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

Test(store, what_one_sets_another_gets) {
    static const size_t sizes[] = {0, 1, 17, 17 * 257, SHD_STORE_VALUE_BYTES};
    shd_store_server *server = rig_serve(NULL);
    shd_store *one = rig_join(shd_store_server_port(server)), *other = rig_join(shd_store_server_port(server));
    char *bytes = malloc(SHD_STORE_VALUE_BYTES), *value;
    for (size_t i = 0; i < SHD_STORE_VALUE_BYTES; i++) bytes[i] = (char)(i * 31 + i / 256);
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        size_t got = 99;
        cr_assert_eq(shd_store_set(one, "nccl/id", bytes, sizes[s]), SHERD_OK, "%s", sherd_last_error());
        cr_assert_eq(shd_store_get(other, "nccl/id", 0, &value, &got), SHERD_OK, "%s", sherd_last_error());
        cr_assert_eq(got, sizes[s]);
        cr_assert_eq(memcmp(value, bytes, got), 0);
        cr_assert_eq(value[got], 0);
        shd_free(value);
    }
    free(bytes);
    shd_store_close(one);
    shd_store_close(other);
    shd_store_server_stop(server);
}

static void *set_later(void *argument) {
    usleep(200000);
    return (void *)(intptr_t)shd_store_set(argument, "late", "here", 4);
}

Test(store, a_get_waits_until_somebody_sets) {
    shd_store_server *server = rig_serve(NULL);
    shd_store *one = rig_join(shd_store_server_port(server)), *other = rig_join(shd_store_server_port(server));
    pthread_t thread;
    char *value;
    size_t bytes;
    double start_ms = shd_clock_ms();
    cr_assert_eq(pthread_create(&thread, NULL, set_later, other), 0);
    cr_assert_eq(shd_store_get(one, "late", 10, &value, &bytes), SHERD_OK, "%s", sherd_last_error());
    double took_ms = shd_clock_ms() - start_ms;
    cr_assert_str_eq(value, "here");
    cr_assert(took_ms > 190 && took_ms < 5000, "%g ms", took_ms);
    void *result;
    pthread_join(thread, &result);
    cr_assert_null(result);
    shd_free(value);
    shd_store_close(one);
    shd_store_close(other);
    shd_store_server_stop(server);
}

static int add_many(int index, void *argument) {
    const shd_store_config config = rig_config(*(int32_t *)argument);
    shd_store *store;
    if (shd_store_connect(&config, &store) != SHERD_OK) return 1;
    int64_t last = 0, value = 0;
    for (int i = 0; i < 100; i++) {
        if (shd_store_add(store, "count", index + 1, &value) != SHERD_OK) return 2;
        if (value <= last) return 3;
        last = value;
    }
    shd_store_close(store);
    return 0;
}

Test(store, counters_lose_nothing_among_many) {
    shd_store_server *server = rig_serve(NULL);
    int32_t port = shd_store_server_port(server);
    cr_assert(rig_threads(32, add_many, &port));
    shd_store *store = rig_join(port);
    cr_assert_str_eq(rig_text(store, "count"), "52800"); /* 100 · (1 + … + 32) */
    shd_store_server_stats stats;
    shd_store_server_get_stats(server, &stats);
    cr_assert_eq(stats.joined, 33);
    cr_assert_eq(stats.refused, 0);
    shd_store_close(store);
    shd_store_server_stop(server);
}

Test(store, a_counter_is_a_number_of_64_bits_and_nothing_else) {
    shd_store_server *server = rig_serve(NULL);
    shd_store *store = rig_join(shd_store_server_port(server));
    int64_t value = 5;
    cr_assert_eq(shd_store_add(store, "n", INT64_MAX, &value), SHERD_OK);
    cr_assert_eq(value, INT64_MAX);
    cr_assert_eq(shd_store_add(store, "n", 1, &value), SHERD_ARGUMENT);
    cr_assert_eq(value, INT64_MAX);
    cr_assert_str_eq(rig_text(store, "n"), "9223372036854775807");
    cr_assert_eq(shd_store_add(store, "m", INT64_MIN, NULL), SHERD_OK);
    cr_assert_eq(shd_store_add(store, "m", -1, NULL), SHERD_ARGUMENT);
    static const char *const texts[] = {"", "x", "01", "+1", " 1", "1 ", "1.0", "9223372036854775808", "-0", "0x1"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        cr_assert_eq(shd_store_set(store, "t", texts[i], strlen(texts[i])), SHERD_OK);
        cr_assert_eq(shd_store_add(store, "t", 1, NULL), SHERD_ARGUMENT, "'%s'", texts[i]);
        cr_assert_str_eq(rig_text(store, "t"), texts[i]);
    }
    cr_assert_eq(shd_store_set(store, "t", "-41", 3), SHERD_OK);
    cr_assert_eq(shd_store_add(store, "t", 83, &value), SHERD_OK);
    cr_assert_eq(value, 42);
    shd_store_close(store);
    shd_store_server_stop(server);
}

typedef struct election {
    int32_t port;
    _Atomic int winners, winner;
} election;

static int stand(int index, void *argument) {
    election *vote = argument;
    const shd_store_config config = rig_config(vote->port);
    shd_store *store;
    bool swapped = false;
    if (shd_store_connect(&config, &store) != SHERD_OK) return 1;
    const char mine = (char)('a' + index);
    if (shd_store_compare_set(store, "leader", NULL, 0, &mine, 1, &swapped) != SHERD_OK) return 2;
    if (swapped) {
        vote->winners++;
        vote->winner = mine;
    }
    shd_store_close(store);
    return 0;
}

Test(store, the_first_of_many_decides) {
    shd_store_server *server = rig_serve(NULL);
    election vote = {.port = shd_store_server_port(server)};
    cr_assert(rig_threads(16, stand, &vote));
    cr_assert_eq(vote.winners, 1);
    shd_store *store = rig_join(vote.port);
    cr_assert_eq(rig_text(store, "leader")[0], (char)vote.winner);
    bool swapped = true;
    cr_assert_eq(shd_store_compare_set(store, "leader", "?", 1, "no", 2, &swapped), SHERD_OK);
    cr_assert_not(swapped);
    cr_assert_eq(shd_store_compare_set(store, "leader", rig_text(store, "leader"), 1, "", 0, &swapped), SHERD_OK);
    cr_assert(swapped);
    cr_assert_eq(shd_store_compare_set(store, "leader", "", 0, "new", 3, &swapped), SHERD_OK);
    cr_assert(swapped);
    cr_assert_str_eq(rig_text(store, "leader"), "new");
    cr_assert_eq(shd_store_compare_set(store, "nobody", "", 0, "new", 3, &swapped), SHERD_OK);
    cr_assert_not(swapped, "what is not there is not empty");
    shd_store_close(store);
    shd_store_server_stop(server);
}

Test(store, what_is_deleted_is_not_there) {
    shd_store_server *server = rig_serve(NULL);
    shd_store *store = rig_join(shd_store_server_port(server));
    char *value;
    size_t bytes;
    bool existed = true;
    cr_assert_eq(shd_store_delete(store, "k", &existed), SHERD_OK);
    cr_assert_not(existed);
    cr_assert_eq(shd_store_set(store, "k", "v", 1), SHERD_OK);
    cr_assert_eq(shd_store_delete(store, "k", &existed), SHERD_OK);
    cr_assert(existed);
    cr_assert_eq(shd_store_get(store, "k", 0, &value, &bytes), SHERD_TIMEOUT);
    cr_assert(strstr(sherd_last_error(), "'k'"), "%s", sherd_last_error());
    shd_store_server_stats stats;
    shd_store_server_get_stats(server, &stats);
    cr_assert_eq(stats.keys, 0);
    cr_assert_eq(stats.bytes, 0);
    shd_store_close(store);
    shd_store_server_stop(server);
}

Test(store, keys_and_values_have_limits) {
    shd_store_server *server = rig_serve(NULL);
    shd_store *store = rig_join(shd_store_server_port(server));
    char key[SHD_STORE_KEY_BYTES + 2], *big = calloc(1, SHD_STORE_VALUE_BYTES + 1);
    bool swapped;
    memset(key, 'k', sizeof key);
    key[SHD_STORE_KEY_BYTES] = 0;
    cr_assert_eq(shd_store_set(store, key, "v", 1), SHERD_OK);
    cr_assert_str_eq(rig_text(store, key), "v");
    key[SHD_STORE_KEY_BYTES] = 'k';
    key[SHD_STORE_KEY_BYTES + 1] = 0;
    cr_assert_eq(shd_store_set(store, key, "v", 1), SHERD_ARGUMENT);
    cr_assert_eq(shd_store_set(store, "", "v", 1), SHERD_ARGUMENT);
    cr_assert_eq(shd_store_set(store, "k", big, SHD_STORE_VALUE_BYTES + 1), SHERD_ARGUMENT);
    cr_assert_eq(shd_store_compare_set(store, "k", big, SHD_STORE_VALUE_BYTES + 1, "", 0, &swapped), SHERD_ARGUMENT);
    cr_assert_eq(shd_store_compare_set(store, "k", NULL, 0, big, SHD_STORE_VALUE_BYTES, &swapped), SHERD_OK);
    cr_assert_eq(shd_store_compare_set(store, "k", big, SHD_STORE_VALUE_BYTES, big, SHD_STORE_VALUE_BYTES, &swapped),
                 SHERD_OK);
    cr_assert(swapped, "the largest request there is");
    free(big);
    shd_store_close(store);
    shd_store_server_stop(server);
}

Test(store, a_full_server_says_so_and_goes_on) {
    shd_store_server *server = rig_serve(&(shd_store_server_config){.max_keys = 3, .max_bytes = 30});
    shd_store *store = rig_join(shd_store_server_port(server));
    bool swapped;
    cr_assert_eq(shd_store_set(store, "a", "0123456789", 10), SHERD_OK);
    cr_assert_eq(shd_store_set(store, "b", "01234567890123456", 17), SHERD_OK);
    cr_assert_eq(shd_store_set(store, "c", "0", 1), SHERD_MEMORY, "31 bytes of 30");
    cr_assert_eq(shd_store_set(store, "c", "", 0), SHERD_OK, "30 of 30");
    cr_assert_eq(shd_store_set(store, "a", "01234567890", 11), SHERD_MEMORY);
    cr_assert_str_eq(rig_text(store, "a"), "0123456789");
    cr_assert_eq(shd_store_set(store, "a", "", 0), SHERD_OK);
    cr_assert_eq(shd_store_set(store, "d", "", 0), SHERD_MEMORY, "a fourth key");
    cr_assert_eq(shd_store_add(store, "d", 1, NULL), SHERD_MEMORY);
    cr_assert_eq(shd_store_compare_set(store, "d", NULL, 0, "", 0, &swapped), SHERD_MEMORY);
    cr_assert_eq(shd_store_delete(store, "c", NULL), SHERD_OK);
    cr_assert_eq(shd_store_add(store, "d", 1, NULL), SHERD_OK);
    shd_store_close(store);
    shd_store_server_stop(server);
}
