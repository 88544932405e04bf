/* The keys and values of a rendezvous store, bounded in number and bytes. Threads: the server's only. */
#ifndef SHD_COMM_STORE_TABLE_H
#define SHD_COMM_STORE_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SHD_STORE_BUCKETS = 4096 };

typedef struct shd_store_entry {
    struct shd_store_entry *next;
    size_t key_bytes, value_bytes;
    char bytes[]; /* the key, then the value */
} shd_store_entry;

typedef struct shd_store_table {
    shd_store_entry *buckets[SHD_STORE_BUCKETS];
    int64_t bytes, max_bytes; /* of keys and values */
    int32_t count, max_count;
} shd_store_table;

void shd_store_table_init(shd_store_table *table, int64_t max_bytes, int32_t max_count);
void shd_store_table_fini(shd_store_table *table);

/* NULL when the key is not there. Borrowed until the table changes. */
const shd_store_entry *shd_store_table_find(const shd_store_table *table, const char *key, size_t key_bytes);
static inline const char *shd_store_entry_value(const shd_store_entry *entry) {
    return entry->bytes + entry->key_bytes;
}

/* False when there is no room; the table is then as before. The value may lie in the table. */
bool shd_store_table_put(shd_store_table *table, const char *key, size_t key_bytes, const void *value,
                         size_t value_bytes);
/* Whether it was there. */
bool shd_store_table_remove(shd_store_table *table, const char *key, size_t key_bytes);

#endif
