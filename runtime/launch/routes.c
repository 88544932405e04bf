#include "runtime/launch/routes.h"

#include "runtime/base/memory.h"
#include "runtime/base/status.h"

#include <stdlib.h>
#include <string.h>

/* The number at *at, which has digits and nothing else; -1: there is none, or one above `high`. */
static int64_t read_number(const char **at, int64_t high) {
    size_t digits = strspn(*at, "0123456789");
    int64_t value = digits > 0 && digits < 10 ? strtoll(*at, NULL, 10) : -1;
    *at += digits;
    return value <= high ? value : -1;
}

static sherd_status refuse_streams(const char *option, const char *text, int32_t rank_count) {
    return shd_fail(SHERD_ARGUMENT,
                    "%s %.40s: 0 (none), 1 (stdout), 2 (stderr) or 3 (both) is needed, or such numbers for local ranks "
                    "(0 to %d), as 0:1,1:3",
                    option, text, rank_count - 1);
}

/* Bit 0: stdout, bit 1: stderr. */
static sherd_status read_streams(const char *option, const char *text, int32_t rank_count, unsigned char *streams) {
    if (!text) return SHERD_OK;
    const char *at = text;
    if (!strchr(text, ':')) {
        int64_t all = read_number(&at, 3);
        if (all < 0 || *at) return refuse_streams(option, text, rank_count);
        memset(streams, (int)all, (size_t)rank_count);
        return SHERD_OK;
    }
    for (;; at++) {
        int64_t rank = read_number(&at, rank_count - 1);
        if (rank < 0 || *at++ != ':') return refuse_streams(option, text, rank_count);
        int64_t value = read_number(&at, 3);
        if (value < 0 || (*at && *at != ',')) return refuse_streams(option, text, rank_count);
        streams[rank] = (unsigned char)value;
        if (!*at) return SHERD_OK;
    }
}

/* Every rank passes where there is no filter. */
static sherd_status read_filter(const char *text, int32_t rank_count, unsigned char *passes) {
    memset(passes, !text, (size_t)rank_count);
    if (!text) return SHERD_OK;
    for (const char *at = text;; at++) {
        int64_t rank = read_number(&at, rank_count - 1);
        if (rank < 0 || (*at && *at != ','))
            return shd_fail(SHERD_ARGUMENT, "--local-ranks-filter %.40s: local ranks (0 to %d) are needed, as 0,3",
                            text, rank_count - 1);
        passes[rank] = 1;
        if (!*at) return SHERD_OK;
    }
}

/* As torchrun: what is teed is filed too; of ranks that do not pass nothing is shown, redirected or not. */
static shd_route make_route(bool redirected, bool teed, bool passes) {
    return (shd_route){.taken = redirected || teed || !passes, .filed = redirected || teed, .shown = teed && passes};
}

sherd_status shd_routes_init(shd_routes *routes, int32_t rank_count, const char *redirects, const char *tee,
                             const char *filter) {
    size_t count = (size_t)rank_count;
    unsigned char *texts = shd_alloc(3, count);
    shd_route(*ranks)[SHD_STREAMS] = shd_alloc(count, sizeof *ranks);
    sherd_status status = texts && ranks ? SHERD_OK : shd_fail(SHERD_MEMORY, "no memory for %d ranks", rank_count);
    if (status == SHERD_OK) status = read_streams("--redirects", redirects, rank_count, texts);
    if (status == SHERD_OK) status = read_streams("--tee", tee, rank_count, texts + count);
    if (status == SHERD_OK) status = read_filter(filter, rank_count, texts + 2 * count);
    for (size_t rank = 0; status == SHERD_OK && rank < count; rank++)
        for (int stream = 0; stream < SHD_STREAMS; stream++)
            ranks[rank][stream] =
                make_route(texts[rank] >> stream & 1, texts[count + rank] >> stream & 1, texts[2 * count + rank]);
    shd_free(texts);
    if (status != SHERD_OK) {
        shd_free(ranks);
        return status;
    }
    *routes = (shd_routes){.rank_count = rank_count, .ranks = ranks};
    return SHERD_OK;
}

sherd_status shd_routes_init_all(shd_routes *routes, int32_t rank_count) {
    return shd_routes_init(routes, rank_count, NULL, "3", NULL);
}

void shd_routes_fini(shd_routes *routes) {
    shd_free(routes->ranks);
    *routes = (shd_routes){0};
}

bool shd_routes_take(const shd_routes *routes) {
    for (int32_t rank = 0; rank < routes->rank_count; rank++)
        for (int stream = 0; stream < SHD_STREAMS; stream++)
            if (routes->ranks[rank][stream].taken) return true;
    return false;
}

bool shd_routes_file(const shd_routes *routes) {
    for (int32_t rank = 0; rank < routes->rank_count; rank++)
        for (int stream = 0; stream < SHD_STREAMS; stream++)
            if (routes->ranks[rank][stream].filed) return true;
    return false;
}
