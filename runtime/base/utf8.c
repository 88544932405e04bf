#include "runtime/base/utf8.h"

int shd_utf8_read(const char *text, size_t left, uint32_t *code) {
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    const unsigned char *bytes = (const unsigned char *)text;
    unsigned char first = bytes[0];
    int count = first < 0x80 ? 1 : first < 0xc0 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : first < 0xf8 ? 4 : 0;
    if (count == 0 || (size_t)count > left) return 0;
    uint32_t number = count == 1 ? first : first & (0x7fu >> count);
    for (int i = 1; i < count; i++) {
        if ((bytes[i] & 0xc0) != 0x80) return 0;
        number = number << 6 | (bytes[i] & 0x3fu);
    }
    if (number < least[count] || number > 0x10ffff || (number >= 0xd800 && number <= 0xdfff)) return 0;
    *code = number;
    return count;
}

bool shd_utf8_shows(uint32_t code) {
    return code >= 0x20 && (code < 0x7f || code > 0x9f) && code != 0x2028 && code != 0x2029 && code != 0xfeff &&
           code != 0xfffe && code != 0xffff;
}
