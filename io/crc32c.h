/* CRC-32C (Castagnoli, reflected polynomial 0x82f63b78, RFC 3720 appendix B.4): what records of TensorBoard carry. */
#ifndef SHD_IO_CRC32C_H
#define SHD_IO_CRC32C_H

#include <stddef.h>
#include <stdint.h>

uint32_t shd_crc32c(const void *bytes, size_t count);

#endif
