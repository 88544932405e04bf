/* The types in which numbers are stored. */
#ifndef SHERD_DTYPE_H
#define SHERD_DTYPE_H

#ifdef __cplusplus
extern "C" {
#endif

/* FP32 is IEEE 754 binary32, FP16 binary16 (a 5 bit exponent, up to 65504), BF16 the upper half of a binary32. INT8, for
 * optimizer states alone, is blocks of 256 values: a code of 8 bits for each, and the block's scale in FP32. */
typedef enum sherd_dtype { SHERD_FP32, SHERD_BF16, SHERD_FP16, SHERD_INT8 } sherd_dtype;

#ifdef __cplusplus
}
#endif
#endif
