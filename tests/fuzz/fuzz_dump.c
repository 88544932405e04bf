/* The reader of ranks' dumps, and what is concluded from them. Input: a dump. */
#include "runtime/base/memory.h"
#include "runtime/watch/judgement.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

/* The same dump from several ranks: they have issued the same. */
static void judge(const shd_rank_dump *dump) {
    enum { RANKS = 3 };
    shd_rank_dump ranks[RANKS];
    shd_judgement found;
    for (int32_t r = 0; r < RANKS; r++) {
        ranks[r] = *dump;
        ranks[r].rank = r;
    }
    const shd_dumps dumps = {.world_size = RANKS, .there = RANKS, .ranks = ranks};
    shd_judgement_make(&dumps, &found);
    fuzz_check(found.kind != SHD_JUDGED_MISMATCH && found.kind != SHD_JUDGED_STRAGGLER);
    fuzz_check(found.rank >= -1 && found.rank < RANKS && *found.text && memchr(found.text, 0, sizeof found.text));
    fuzz_check(memchr(found.what, 0, sizeof found.what));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    shd_rank_dump dump;
    int32_t world_size = 0;
    sherd_status status = shd_dump_parse((const char *)data, bytes, "dump", &world_size, &dump);
    if (status != SHERD_OK) {
        fuzz_check_refusal(status, SHERD_DATA);
        fuzz_check_released();
        return 0;
    }
    fuzz_check(dump.there && dump.rank >= 0 && dump.rank < world_size && world_size <= SHD_DUMPS_MAX_RANKS);
    fuzz_check(memchr(dump.where, 0, sizeof dump.where) && memchr(dump.alarm, 0, sizeof dump.alarm));
    fuzz_check(dump.frame_count >= 0 && dump.frame_count <= SHD_DUMPS_FRAMES);
    judge(&dump);
    fuzz_note_accepted();
    shd_free(dump.events);
    fuzz_check_released();
    return 0;
}
