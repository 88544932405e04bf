/* Manifests as texts: what is printed comes back, and what makes no sense is refused, with its cause. */
#include "io/checkpoint_manifest.h"
#include "runtime/base/memory.h"
#include "runtime/base/random.h"
#include "tests/io/files.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

/* Written by hand from docs/CHECKPOINT.md, all but the seal. */
static const char sample[] =
    "{\n"
    "  \"version\": 2,\n"
    "  \"step\": 20,\n"
    "  \"time\": \"2026-01-31T12:34:56Z\",\n"
    "  \"mesh\": {\"ranks\":2,\"replicas\":3},\n"
    "  \"stage\": 3,\n"
    "  \"precision\": \"fp16\",\n"
    "  \"optimizer\": "
    "{\"name\":\"adamw\",\"updates\":17,\"state_dtype\":\"int8\",\"states\":[\"exp_avg\",\"exp_avg_sq\"]},\n"
    "  \"loss_scale\": {\"scale\":0.125,\"good_steps\":1999,\"hysteresis\":2},\n"
    "  \"bytes\": {\"raw\":3000,\"stored\":12293},\n"
    "  \"tensors\": [\n"
    "    {\"name\":\"wte\",\"shape\":[30,10],\"frozen\":false,"
    "\"parameter\":{\"dtype\":\"fp32\",\"elements\":300,\"ranges\":[[0,0,100],[1,100,200]]},"
    "\"states\":{\"exp_avg\":{\"dtype\":\"int8\",\"elements\":300,\"ranges\":[[0,0,256],[1,256,44]]},"
    "\"exp_avg_sq\":{\"dtype\":\"int8\",\"elements\":300,\"ranges\":[[0,0,300],[1,256,44]]}}},\n"
    "    {\"name\":\"é\",\"shape\":[],\"frozen\":true,"
    "\"parameter\":{\"dtype\":\"bf16\",\"elements\":1,\"ranges\":[[0,0,1],[1,0,1]]},\"states\":{}},\n"
    "    {\"name\":\"none\",\"shape\":[3,0],\"frozen\":false,"
    "\"parameter\":{\"dtype\":\"fp32\",\"elements\":0,\"ranges\":[]},\"states\":{}}\n"
    "  ],\n"
    "  \"files\": [\n"
    "    {\"name\":\"rank-00000.bin\",\"bytes\":8193,\"xxh3\":\"0123456789abcdef\"},\n"
    "    {\"name\":\"rank-00001.bin\",\"bytes\":4100,\"xxh3\":\"fedcba9876543210\"}\n"
    "  ],\n"
    "  \"note\": {\n"
    "    \"sequence\": 9007199254740993,\n"
    "    \"who\": [\n"
    "      \"é\",\n"
    "      0.5\n"
    "    ]\n"
    "  }";

/* A body with its seal; taken. */
static char *seal(const char *body) {
    size_t room = strlen(body) + 100;
    char *text = take(room);
    snprintf(text, room, "%s,\n  \"xxh3\": \"%016llx\"\n}\n", body,
             (unsigned long long)XXH3_64bits(body, strlen(body)));
    return text;
}

static sherd_status parse(const char *text, shd_keep *keep, shd_checkpoint_manifest *out) {
    return shd_manifest_parse(text, (int64_t)strlen(text), keep, out);
}

static void expect_sample(const shd_checkpoint_manifest *m) {
    cr_assert(m->step == 20 && m->update_count == 17 && m->precision == SHERD_FP16 && m->stage == 3);
    cr_assert_eq(m->time_s, 1769862896);
    cr_assert(m->world_size == 2 && m->replicas == 3);
    cr_assert(m->loss_scale.scale == 0.125 && m->loss_scale.good_steps == 1999 && m->loss_scale.hysteresis == 2);
    cr_assert_str_eq(m->optimizer, "adamw");
    cr_assert(m->state_count == 2 && m->state_dtype == SHERD_INT8);
    cr_assert_str_eq(m->state_names[1], "exp_avg_sq");
    cr_assert(m->raw_bytes == 3000 && m->stored_bytes == 12293);
    cr_assert_eq(m->tensor_count, 3);
    cr_assert_str_eq(m->tensors[1].name, "é");
    cr_assert(m->tensors[0].dim_count == 2 && m->tensors[0].shape[1] == 10 && !m->tensors[0].frozen);
    cr_assert(m->tensors[1].dim_count == 0 && m->tensors[1].frozen);
    static const int64_t elements[] = {300, 300, 0, 0, 0, 0};
    for (int i = 0; i < 6; i++) cr_assert_eq(m->state_elements[i], elements[i]);
    cr_assert(m->values[0].dtype == SHERD_FP32 && m->values[0].element_count == 300 && m->values[0].range_count == 2);
    cr_assert(m->values[0].ranges[1].rank == 1 && m->values[0].ranges[1].first == 100 &&
              m->values[0].ranges[1].count == 200);
    cr_assert(m->values[2].dtype == SHERD_INT8 && m->values[2].range_count == 2);
    cr_assert(m->values[3].dtype == SHERD_BF16 && m->values[4].element_count == 0 && m->values[6].range_count == 0);
    cr_assert(m->files[0].bytes == 8193 && m->files[1].index_hash == 0xfedcba9876543210u);
    cr_assert_str_eq(m->note, "{\"sequence\":9007199254740993,\"who\":[\"é\",0.5]}");
}

Test(checkpoint_manifest, is_read_as_the_document_has_it_and_printed_the_same) {
    shd_keep *keep = shd_keep_create();
    shd_checkpoint_manifest manifest;
    char *text = seal(sample), *again = NULL;
    cr_assert_eq(parse(text, keep, &manifest), SHERD_OK, "%s", sherd_last_error());
    expect_sample(&manifest);
    cr_assert_eq(shd_manifest_print(&manifest, &again), SHERD_OK, "%s", sherd_last_error());
    cr_assert_str_eq(again, text);
    shd_free(again);
    shd_keep_destroy(keep);
    cr_assert_eq(shd_memory_held(SHD_MEMORY_OBJECTS), 0);
}

Test(checkpoint_manifest, ignores_what_it_does_not_know) {
    static const struct {
        const char *from, *to;
    } rows[] = {
        {"\"version\": 2", "\"version\": 2, \"later\": {\"x\": [1]}, \"requires\": []"},
        {"\"ranks\":2", "\"ranks\":2,\"hosts\":4"},
        {"\"frozen\":true", "\"frozen\":true,\"tied_to\":\"wte\""},
        {"\"bytes\":4100", "\"bytes\":4100,\"crc\":7,\"requires\":[]"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        shd_keep *keep = shd_keep_create();
        shd_checkpoint_manifest manifest;
        char changed[sizeof sample + 100], *at = strstr(sample, rows[i].from);
        snprintf(changed, sizeof changed, "%.*s%s%s", (int)(at - sample), sample, rows[i].to,
                 at + strlen(rows[i].from));
        cr_assert_eq(parse(seal(changed), keep, &manifest), SHERD_OK, "row %zu: %s", i, sherd_last_error());
        expect_sample(&manifest);
        shd_keep_destroy(keep);
    }
}

typedef struct refusal {
    const char *from, *to, *says;
} refusal;

static void check_refusals(const refusal *rows, size_t count, sherd_status status) {
    for (size_t i = 0; i < count; i++) {
        shd_keep *keep = shd_keep_create();
        shd_checkpoint_manifest manifest;
        char changed[sizeof sample + 400], *at = strstr(sample, rows[i].from);
        cr_assert_not_null(at, "row %zu", i);
        snprintf(changed, sizeof changed, "%.*s%s%s", (int)(at - sample), sample, rows[i].to,
                 at + strlen(rows[i].from));
        sherd_status got = parse(seal(changed), keep, &manifest);
        cr_expect_eq(got, status, "row %zu (%s): %d", i, rows[i].to, got);
        cr_expect(strstr(sherd_last_error(), rows[i].says), "row %zu: \"%s\"", i, sherd_last_error());
        shd_keep_destroy(keep);
    }
    cr_assert_eq(shd_memory_held(SHD_MEMORY_OBJECTS), 0);
}

Test(checkpoint_manifest, other_versions_and_what_is_required_are_refused_by_name) {
    static const refusal rows[] = {
        {"\"version\": 2", "\"version\": 1", "it is of version 1; this build reads version 2"},
        {"\"version\": 2", "\"version\": 3", "it is of version 3; this build reads version 2"},
        {"\"version\": 2", "\"version\": -7", "it is of version -7"},
        {"\"version\": 2", "\"version\": 2, \"requires\": [\"sparse\", \"x\"]", "it requires \"sparse\""},
        {"\"ranks\":2", "\"ranks\":2,\"requires\":[\"pipeline\"]", "it requires \"pipeline\""},
        {"\"updates\":17", "\"updates\":17,\"requires\":[\"ema\"]", "it requires \"ema\""},
        {"\"scale\":0.125", "\"scale\":0.125,\"requires\":[\"fp8\"]", "it requires \"fp8\""},
        {"\"raw\":3000", "\"raw\":3000,\"requires\":[\"z\"]", "it requires \"z\""},
        {"\"frozen\":true", "\"frozen\":true,\"requires\":[\"ties\"]", "it requires \"ties\""},
        {"\"elements\":1,", "\"elements\":1,\"requires\":[\"delta\"],", "it requires \"delta\""},
        {"\"dtype\":\"int8\",\"elements\":300,", "\"dtype\":\"int8\",\"elements\":300,\"requires\":[\"q\"],",
         "it requires \"q\""},
        {"\"bytes\":4100", "\"bytes\":4100,\"requires\":[\"erasure\"]", "it requires \"erasure\""},
    };
    check_refusals(rows, sizeof rows / sizeof *rows, SHERD_UNSUPPORTED);
}

Test(checkpoint_manifest, what_makes_no_sense_is_refused) {
    static const refusal rows[] = {
        {"\"version\": 2", "\"version\": \"2\"", "\"version\" must be an integer"},
        {"\"version\": 2", "\"version\": 2, \"requires\": 1", "\"requires\" must be a list"},
        {"\"version\": 2", "\"version\": 2, \"requires\": [1]", "\"requires\" must be a list of texts"},
        {"\"step\": 20", "\"step\": -20", "\"step\" must be an integer"},
        {"\"step\": 20", "\"step\": 20, \"step\": 20", "duplicate"},
        {"2026-01-31T", "2026-02-31T", "\"time\" must be as"},
        {"2026-01-31T", "2026-1-31T", "\"time\" must be as"},
        {"56Z", "56Z ", "\"time\" must be as"},
        {"56Z", "56+01:00", "\"time\" must be as"},
        {"\"mesh\": {", "\"mesh\": 1, \"x\": {", "\"mesh\" must be an object"},
        {"\"ranks\":2", "\"ranks\":0", "\"ranks\""},
        {"\"ranks\":2", "\"ranks\":2000000", "\"ranks\""},
        {"\"ranks\":2", "\"ranks\":3", "it has 2 files for 3 ranks"},
        {"\"replicas\":3", "\"replicas\":0", "\"replicas\""},
        {"\"stage\": 3", "\"stage\": 4", "\"stage\""},
        {"\"precision\": \"fp16\"", "\"precision\": \"int8\"", "\"precision\" must be fp32, bf16 or fp16"},
        {"\"optimizer\": {", "\"optimizer\": [], \"x\": {", "\"optimizer\" must be an object"},
        {"\"name\":\"adamw\"", "\"name\":null", "\"name\" must be a text"},
        {"\"updates\":17", "\"updates\":21", "\"updates\""},
        {"\"state_dtype\":\"int8\"", "\"state_dtype\":\"bf16\"", "\"state_dtype\" must be fp32 or int8"},
        {"\"state_dtype\":\"int8\"", "\"state_dtype\":\"fp32\"", "tensor wte: exp_avg: it is of int8"},
        {"[\"exp_avg\",\"exp_avg_sq\"]", "[\"exp_avg\",\"exp_avg\"]", "no state can be called exp_avg"},
        {"[\"exp_avg\",\"exp_avg_sq\"]", "[\"exp_avg\",\"parameter\"]", "no state can be called parameter"},
        {"[\"exp_avg\",\"exp_avg_sq\"]", "[\"exp_avg\",1]", "\"states\" must be a list of texts"},
        {"[\"exp_avg\",\"exp_avg_sq\"]", "[\"exp_avg\"]", "tensor wte: it has a state that the optimizer has not"},
        {"[\"exp_avg\",\"exp_avg_sq\"]", "[\"1\",\"2\",\"3\",\"4\",\"5\",\"6\",\"7\",\"8\",\"9\"]", "too many states"},
        {"0.125", "0", "\"scale\" must be a positive number"},
        {"0.125", "-1", "\"scale\" must be a positive number"},
        {"0.125", "\"1\"", "\"scale\" must be a positive number"},
        {"1999", "-1", "\"good_steps\""},
        {"\"hysteresis\":2", "\"hysteresis\":0", "\"hysteresis\""},
        {"\"raw\":3000", "\"raw\":-1", "\"raw\""},
        {"\"stored\":12293", "\"stored\":12294", "\"stored\" must be an integer from 12293 to 12293"},
        {"\"tensors\": [", "\"tensors\": 1, \"x\": [", "\"tensors\" must be a list"},
        {"\"name\":\"é\"", "\"name\":\"wte\"", "it has two tensors called wte"},
        {"[30,10]", "[30,10,1,1,1]", "tensor wte: it has more than 4 dimensions"},
        {"[30,10]", "[30,-10]", "tensor wte: its shape makes no sense"},
        {"[30,10]", "[4611686018427387904,4]", "its shape makes no sense"},
        {"[30,10]", "[2305843009213693952]", "its shape makes no sense"},
        {"[30,10]", "[30,\"10\"]", "its shape makes no sense"},
        {"[30,10]", "[30,11]", "tensor wte: parameter: \"elements\" must be an integer from 330"},
        {"\"frozen\":true", "\"frozen\":1", "\"frozen\" must be true or false"},
        {"\"parameter\":{\"dtype\":\"fp32\"", "\"parameter\":{\"dtype\":\"int8\"",
         "\"dtype\" must be fp32, bf16 or fp16"},
        {"\"parameter\":{\"dtype\":\"fp32\"", "\"parameter\":1,\"x\":{\"dtype\":\"fp32\"",
         "\"parameter\" must be an object"},
        {"[[0,0,100],[1,100,200]]", "[[0,0,100],[1,101,199]]", "parameter: elements 100 to 101 are in no file"},
        {"[[0,0,100],[1,100,200]]", "[[0,0,100],[1,100,199]]", "elements 299 to 300 are in no file"},
        {"[[0,0,100],[1,100,200]]", "[]", "elements 0 to 300 are in no file"},
        {"[[0,0,100],[1,100,200]]", "[[1,100,200],[0,0,100]]", "ranges are not in order"},
        {"[[0,0,100],[1,100,200]]", "[[0,0,100],[0,0,100],[1,100,200]]", "ranges are not in order"},
        {"[[0,0,100],[1,100,200]]", "[[0,0,100],[1,100,201]]", "201 elements from 100 on are not in its 300"},
        {"[[0,0,100],[1,100,200]]", "[[0,0,100],[1,100,9223372036854775807]]", "are not in its 300"},
        {"[[0,0,100],[1,100,200]]", "[[0,-1,101],[1,100,200]]", "are not in its 300"},
        {"[[0,0,100],[1,100,200]]", "[[0,0,0],[1,0,300]]", "are not in its 300"},
        {"[[0,0,100],[1,100,200]]", "[[2,0,300]]", "there is no rank 2"},
        {"[[0,0,100],[1,100,200]]", "[[-1,0,300]]", "there is no rank -1"},
        {"[[0,0,100],[1,100,200]]", "[[4294967296,0,300]]", "there is no rank 4294967296"},
        {"[[0,0,100],[1,100,200]]", "[[0,0,300,1]]", "a range must be"},
        {"[[0,0,100],[1,100,200]]", "[[0,0,\"300\"]]", "a range must be"},
        {"[[0,0,100],[1,100,200]]", "[300]", "a range must be"},
        {"[[0,0,256],[1,256,44]]", "[[0,0,300],[1,255,45]]", "are no whole blocks of codes"},
        {"[[0,0,256],[1,256,44]]", "[[0,0,255],[1,0,300]]", "are no whole blocks of codes"},
        {"\"exp_avg\":{\"dtype\":\"int8\",\"elements\":300", "\"exp_avg\":{\"dtype\":\"int8\",\"elements\":0",
         "exp_avg: \"elements\""},
        {"\"exp_avg\":{\"dtype\":\"int8\"", "\"other\":{\"dtype\":\"int8\"", "a state that the optimizer has not"},
        {"\"exp_avg\":{\"dtype\":\"int8\"", "\"exp_avg\":1,\"other\":{\"dtype\":\"int8\"", "it must be an object"},
        {"\"states\":{}", "\"states\":[]", "\"states\" must be an object"},
        {"rank-00001.bin", "../../etc/pass", "the file of rank 1 is called"},
        {"\"bytes\":4100", "\"bytes\":-4100", "\"bytes\""},
        {"\"bytes\":4100", "\"bytes\":9223372036854775807", "too large"},
        {"\"fedcba9876543210\"", "\"FEDCBA9876543210\"", "\"xxh3\" must be 16 hexadecimal digits"},
        {"\"files\": [", "\"files\": {}, \"x\": [", "\"files\" must be a list"},
        {"\"note\": {", "\"note\": 1, \"x\": {", "\"note\" must be an object"},
        {"{", "[", "JSON"},
    };
    check_refusals(rows, sizeof rows / sizeof *rows, SHERD_DATA);
}

Test(checkpoint_manifest, every_bit_and_every_cut_is_noticed) {
    char *good = seal(sample);
    size_t bytes = strlen(good);
    shd_keep *keep = shd_keep_create();
    shd_checkpoint_manifest manifest;
    for (size_t bit = 0; bit < 8 * bytes; bit++) {
        good[bit / 8] ^= (char)(1 << bit % 8);
        cr_assert_eq(shd_manifest_parse(good, (int64_t)bytes, keep, &manifest), SHERD_DATA, "bit %zu", bit);
        good[bit / 8] ^= (char)(1 << bit % 8);
    }
    for (size_t cut = 0; cut < bytes; cut++)
        cr_assert_eq(shd_manifest_parse(good, (int64_t)cut, keep, &manifest), SHERD_DATA, "%zu bytes", cut);
    char *longer = take(bytes + 2);
    snprintf(longer, bytes + 2, "%s\n", good);
    cr_assert_eq(parse(longer, keep, &manifest), SHERD_DATA);
    cr_assert_eq(parse(good, keep, &manifest), SHERD_OK);
    shd_keep_destroy(keep);
}

/* What the loader checks is the reader's own work, not the seal's: nothing in a sealed text makes it crash, or come
 * back otherwise. */
Test(checkpoint_manifest, sealed_nonsense_is_refused_or_comes_back_the_same) {
    int refused = 0;
    for (uint64_t round = 0; round < 20000; round++) {
        char changed[sizeof sample];
        memcpy(changed, sample, sizeof sample);
        void *mark = mark_taken();
        for (uint64_t hit = 0; hit <= round % 3; hit++) {
            uint32_t r[4];
            shd_philox(17, round, hit, r);
            changed[r[0] % (sizeof sample - 1)] = "0123456789-[]{},:\"\\e. "[r[1] % 22];
        }
        shd_keep *keep = shd_keep_create();
        shd_checkpoint_manifest manifest, second;
        sherd_status status = parse(seal(changed), keep, &manifest);
        if (status == SHERD_OK) {
            char *text = NULL, *again = NULL;
            cr_assert_eq(shd_manifest_print(&manifest, &text), SHERD_OK, "round %llu", (unsigned long long)round);
            cr_assert_eq(parse(text, keep, &second), SHERD_OK);
            cr_assert_eq(shd_manifest_print(&second, &again), SHERD_OK);
            cr_assert_str_eq(text, again);
            shd_free(text);
            shd_free(again);
        } else {
            cr_assert(status == SHERD_DATA || status == SHERD_UNSUPPORTED);
            refused++;
        }
        shd_keep_destroy(keep);
        release_taken(mark);
    }
    cr_assert(refused > 10000 && refused < 20000, "%d", refused);
    cr_assert_eq(shd_memory_held(SHD_MEMORY_OBJECTS), 0);
}

Test(checkpoint_manifest, ranges_that_leave_elements_out_are_found) {
    static const struct {
        shd_checkpoint_range ranges[3];
        int64_t count, elements, first, missing;
    } rows[] = {
        {{{0}}, 0, 0, 0, 0},
        {{{0}}, 0, 5, 0, 5},
        {{{.first = 0, .count = 5}}, 1, 5, 0, 0},
        {{{.first = 1, .count = 4}}, 1, 5, 0, 1},
        {{{.first = 0, .count = 4}}, 1, 5, 4, 1},
        {{{.first = 0, .count = 2}, {.first = 3, .count = 2}}, 2, 5, 2, 1},
        {{{.first = 0, .count = 5}, {.first = 1, .count = 1}, {.first = 5, .count = 1}}, 3, 6, 0, 0},
        {{{.first = 0, .count = 3}, {.first = 1, .count = 1}, {.first = 4, .count = 1}}, 3, 6, 3, 1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        shd_checkpoint_range gap = {0};
        bool gaps = shd_ranges_gap(rows[i].ranges, rows[i].count, rows[i].elements, &gap);
        cr_expect(gaps == (rows[i].missing > 0) && gap.first == (gaps ? rows[i].first : 0) &&
                      gap.count == rows[i].missing,
                  "row %zu: %lld %lld", i, (long long)gap.first, (long long)gap.count);
    }
}
