#include "runtime/comm/store_table.h"

#include "runtime/base/hash.h"
#include "runtime/base/memory.h"

#include <string.h>

void shd_store_table_init(shd_store_table *table, int64_t max_bytes, int32_t max_count) {
    *table = (shd_store_table){.max_bytes = max_bytes, .max_count = max_count};
}

void shd_store_table_fini(shd_store_table *table) {
    for (int i = 0; i < SHD_STORE_BUCKETS; i++) {
        for (shd_store_entry *entry = table->buckets[i], *next; entry; entry = next) {
            next = entry->next;
            shd_free(entry);
        }
        table->buckets[i] = NULL;
    }
    table->count = 0;
    table->bytes = 0;
}

/* The link that holds the key's entry, or the end of its chain. */
static shd_store_entry **find_link(shd_store_table *table, const char *key, size_t key_bytes) {
    shd_store_entry **link = &table->buckets[shd_hash_bytes(0, key, key_bytes) % SHD_STORE_BUCKETS];
    while (*link && ((*link)->key_bytes != key_bytes || memcmp((*link)->bytes, key, key_bytes) != 0))
        link = &(*link)->next;
    return link;
}

const shd_store_entry *shd_store_table_find(const shd_store_table *table, const char *key, size_t key_bytes) {
    return *find_link((shd_store_table *)table, key, key_bytes);
}

bool shd_store_table_put(shd_store_table *table, const char *key, size_t key_bytes, const void *value,
                         size_t value_bytes) {
    shd_store_entry **link = find_link(table, key, key_bytes), *old = *link;
    int64_t more = (int64_t)value_bytes - (old ? (int64_t)old->value_bytes : -(int64_t)key_bytes);
    if ((!old && table->count == table->max_count) || table->bytes + more > table->max_bytes) return false;
    shd_store_entry *entry = shd_alloc(1, sizeof *entry + key_bytes + value_bytes);
    if (!entry) return false;
    entry->next = old ? old->next : NULL;
    entry->key_bytes = key_bytes;
    entry->value_bytes = value_bytes;
    memcpy(entry->bytes, key, key_bytes);
    if (value_bytes > 0) memcpy(entry->bytes + key_bytes, value, value_bytes);
    *link = entry;
    table->bytes += more;
    if (!old) table->count++;
    shd_free(old);
    return true;
}

bool shd_store_table_remove(shd_store_table *table, const char *key, size_t key_bytes) {
    shd_store_entry **link = find_link(table, key, key_bytes), *entry = *link;
    if (!entry) return false;
    *link = entry->next;
    table->count--;
    table->bytes -= (int64_t)(entry->key_bytes + entry->value_bytes);
    shd_free(entry);
    return true;
}
