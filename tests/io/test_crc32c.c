#include "io/crc32c.h"

#include <criterion/criterion.h>
#include <string.h>

/* Bit by bit, as RFC 3720 defines it. */
static uint32_t slow(const unsigned char *bytes, size_t count) {
    uint32_t crc = 0xffffffffu;
    for (size_t i = 0; i < count; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++) crc = crc & 1 ? crc >> 1 ^ 0x82f63b78u : crc >> 1;
    }
    return ~crc;
}

/* Appendix B.4. */
Test(crc32c, has_the_values_of_the_rfc) {
    unsigned char bytes[32];
    memset(bytes, 0, sizeof bytes);
    cr_assert_eq(shd_crc32c(bytes, 32), 0x8a9136aau);
    memset(bytes, 0xff, sizeof bytes);
    cr_assert_eq(shd_crc32c(bytes, 32), 0x62a8ab43u);
    for (int i = 0; i < 32; i++) bytes[i] = (unsigned char)i;
    cr_assert_eq(shd_crc32c(bytes, 32), 0x46dd794eu);
    for (int i = 0; i < 32; i++) bytes[i] = (unsigned char)(31 - i);
    cr_assert_eq(shd_crc32c(bytes, 32), 0x113fdb5cu);
    cr_assert_eq(shd_crc32c("123456789", 9), 0xe3069283u);
    cr_assert_eq(shd_crc32c("", 0), 0u);
}

Test(crc32c, is_that_of_the_definition_for_every_length) {
    unsigned char bytes[300];
    uint32_t state = 1;
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (unsigned char)((state = state * 1664525u + 1013904223u) >> 24);
    for (size_t count = 0; count <= sizeof bytes; count++) cr_assert_eq(shd_crc32c(bytes, count), slow(bytes, count));
}
