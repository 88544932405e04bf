#include "runtime/launch/routes.h"

#include <criterion/criterion.h>
#include <sherd/status.h>
#include <string.h>

/* A letter a stream: i inherited, f filed, t filed and shown, n nowhere; "io" for each rank. */
static const char *drawn(int32_t ranks, const char *redirects, const char *tee, const char *filter) {
    static char text[64];
    shd_routes routes = {0};
    cr_assert_eq(shd_routes_init(&routes, ranks, redirects, tee, filter), SHERD_OK, "%s", sherd_last_error());
    size_t used = 0;
    for (int32_t rank = 0; rank < ranks; rank++) {
        if (rank) text[used++] = ' ';
        for (int stream = 0; stream < SHD_STREAMS; stream++) {
            const shd_route *route = &routes.ranks[rank][stream];
            text[used++] = !route->taken ? 'i' : route->shown ? 't' : route->filed ? 'f' : 'n';
            cr_assert(!route->shown || route->filed);
        }
    }
    text[used] = 0;
    shd_routes_fini(&routes);
    return text;
}

Test(routes, are_those_of_torchrun) {
    cr_assert_str_eq(drawn(2, NULL, NULL, NULL), "ii ii");
    cr_assert_str_eq(drawn(2, "0", "0", NULL), "ii ii");
    cr_assert_str_eq(drawn(2, "1", NULL, NULL), "fi fi");
    cr_assert_str_eq(drawn(2, "2", NULL, NULL), "if if");
    cr_assert_str_eq(drawn(2, "3", NULL, NULL), "ff ff");
    cr_assert_str_eq(drawn(2, NULL, "3", NULL), "tt tt");
    cr_assert_str_eq(drawn(2, "3", "1", NULL), "tf tf", "what is teed is redirected too");
    cr_assert_str_eq(drawn(3, "0:1,2:3", NULL, NULL), "fi ii ff", "ranks that are not named have none");
    cr_assert_str_eq(drawn(3, "3", "1:2", NULL), "ff ft ff");
}

Test(routes, of_ranks_that_do_not_pass_the_filter_show_nothing) {
    cr_assert_str_eq(drawn(3, NULL, NULL, "1"), "nn ii nn");
    cr_assert_str_eq(drawn(3, NULL, "3", "0,2"), "tt ff tt");
    cr_assert_str_eq(drawn(2, "1", NULL, "0"), "fi fn");
}

Test(routes, that_are_no_numbers_of_streams_are_refused) {
    static const char *const bad[] = {"",   "4",    "-1",  "x",       "1,2",   "0:",           "0:4",
                                      ":1", "0:1,", "2:1", "0:1;1:2", "0:1:2", "99999999999:1"};
    shd_routes routes = {0};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        cr_assert_eq(shd_routes_init(&routes, 2, bad[i], NULL, NULL), SHERD_ARGUMENT, "%s", bad[i]);
        cr_assert(strstr(sherd_last_error(), "--redirects"), "%s", sherd_last_error());
        cr_assert_eq(shd_routes_init(&routes, 2, NULL, bad[i], NULL), SHERD_ARGUMENT, "%s", bad[i]);
        cr_assert(strstr(sherd_last_error(), "--tee"));
    }
    static const char *const filters[] = {"", "2", "0,", "a", "0:1"};
    for (size_t i = 0; i < sizeof filters / sizeof *filters; i++)
        cr_assert_eq(shd_routes_init(&routes, 2, NULL, NULL, filters[i]), SHERD_ARGUMENT, "%s", filters[i]);
}
