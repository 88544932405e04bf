/* Types of the numbers in array files, little-endian. */
#ifndef SHD_IO_ARRAY_TYPE_H
#define SHD_IO_ARRAY_TYPE_H

/* X(NAME, C type of the bits, NumPy's code, name in a safetensors header): those that can be read. */
#define SHD_ARRAY_TYPE_MAP(X)                                                                                          \
    X(BOOL, uint8_t, "|b1", "BOOL")                                                                                    \
    X(U8, uint8_t, "|u1", "U8")                                                                                        \
    X(I8, int8_t, "|i1", "I8")                                                                                         \
    X(U16, uint16_t, "<u2", "U16")                                                                                     \
    X(I16, int16_t, "<i2", "I16")                                                                                      \
    X(U32, uint32_t, "<u4", "U32")                                                                                     \
    X(I32, int32_t, "<i4", "I32")                                                                                      \
    X(U64, uint64_t, "<u8", "U64")                                                                                     \
    X(I64, int64_t, "<i8", "I64")                                                                                      \
    X(F16, uint16_t, "<f2", "F16")                                                                                     \
    X(BF16, uint16_t, "", "BF16")                                                                                      \
    X(F32, float, "<f4", "F32")                                                                                        \
    X(F64, double, "<f8", "F64")
typedef enum shd_array_type {
#define SHD_ARRAY_TYPE_ENUM(name, bits, npy, safetensors) SHD_ARRAY_##name,
    SHD_ARRAY_TYPE_MAP(SHD_ARRAY_TYPE_ENUM)
#undef SHD_ARRAY_TYPE_ENUM
        SHD_ARRAY_TYPES
} shd_array_type;

enum { SHD_ARRAY_DIMS = 8 };

#endif
