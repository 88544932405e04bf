/* 64-bit hashes (XXH3) for telling things apart: plans, programs, names. Each call goes on from `hash`; start from 0. */
#ifndef SHD_BASE_HASH_H
#define SHD_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

uint64_t shd_hash_bytes(uint64_t hash, const void *data, size_t bytes);
/* The final 0 counts too, so that neighbouring texts cannot trade letters. */
uint64_t shd_hash_text(uint64_t hash, const char *text);

/* Hashes integers. Fields of structs go in one by one, since structs have padding. */
#define SHD_HASH(hash, ...) shd_hash_bytes(hash, (const int64_t[]){__VA_ARGS__}, sizeof((const int64_t[]){__VA_ARGS__}))

#endif
