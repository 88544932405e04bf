#include "io/crc32c.h"

/* Half a byte at a time: 64 bytes of table, and fast enough for a few KiB a step. */
uint32_t shd_crc32c(const void *bytes, size_t count) {
    static const uint32_t table[16] = {0x00000000, 0x105ec76f, 0x20bd8ede, 0x30e349b1, 0x417b1dbc, 0x5125dad3,
                                       0x61c69362, 0x7198540d, 0x82f63b78, 0x92a8fc17, 0xa24bb5a6, 0xb21572c9,
                                       0xc38d26c4, 0xd3d3e1ab, 0xe330a81a, 0xf36e6f75};
    const unsigned char *at = bytes;
    uint32_t crc = ~UINT32_C(0);
    for (; count > 0; count--, at++) {
        crc ^= *at;
        crc = crc >> 4 ^ table[crc & 15];
        crc = crc >> 4 ^ table[crc & 15];
    }
    return ~crc;
}
