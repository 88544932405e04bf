#include "runtime/session/state_codes.h"

#include "optim/codebook.h"
#include "optim/optimizer.h"
#include "runtime/base/memory.h"
#include "runtime/base/status.h"
#include "runtime/session/slices.h"

#include <assert.h>
#include <string.h>

struct shd_state_codes {
    const char *optimizer;
    shd_codebook plain, root; /* of second moments, and of all others */
};

sherd_status shd_state_codes_create(const char *optimizer, shd_state_codes **out) {
    shd_state_codes *codes = shd_alloc(1, sizeof *codes);
    if (!codes) return shd_fail(SHERD_MEMORY, "no memory for the codes of optimizer states");
    codes->optimizer = optimizer;
    shd_codebook_init(&codes->plain, false);
    shd_codebook_init(&codes->root, true);
    *out = codes;
    return SHERD_OK;
}

void shd_state_codes_destroy(shd_state_codes *codes) { shd_free(codes); }

/* Whether the optimizer takes the root of the state. */
static bool is_root(const char *optimizer, const char *state) {
    for (int kind = SHERD_ADAMW; kind <= SHERD_MUON; kind++) {
        const sherd_optimizer described = {.kind = (sherd_optimizer_kind)kind, .momentum = 0.5};
        if (strcmp(shd_optimizer_name(&described), optimizer) != 0) continue;
        for (int32_t s = 0; s < shd_optimizer_state_count(&described); s++)
            if (strcmp(shd_optimizer_state_name(&described, s), state) == 0)
                return shd_optimizer_state_is_root(&described, s);
    }
    return false;
}

static sherd_status convert(void *user, const char *state, sherd_dtype from_dtype, const void *from,
                            sherd_dtype to_dtype, int64_t count, void *to) {
    const shd_state_codes *codes = user;
    const shd_codebook *book = is_root(codes->optimizer, state) ? &codes->root : &codes->plain;
    assert((from_dtype == SHERD_INT8) != (to_dtype == SHERD_INT8));
    (void)from_dtype;
    if (to_dtype == SHERD_INT8)
        shd_codes_encode(book, from, count, to);
    else
        shd_codes_decode(book, from, count, to);
    return SHERD_OK;
}

shd_reader_convert shd_state_codes_converter(shd_state_codes *codes) {
    return (shd_reader_convert){.run = convert, .user = codes};
}
