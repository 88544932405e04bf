/* TCP addresses of a rendezvous store: names to addresses, addresses to text, sockets that listen. */
#ifndef SHD_COMM_STORE_ADDRESS_H
#define SHD_COMM_STORE_ADDRESS_H

#include "runtime/comm/store.h"

#include <sys/socket.h>

typedef struct shd_store_address {
    struct sockaddr_storage at;
    socklen_t bytes;
} shd_store_address;

/* The addresses of `host` (an address, also in brackets; a name; NULL: 127.0.0.1; for a server also "*"), each once.
 * Takes as long as the resolver does. Returns NULL or what is wrong, a constant text; `count` ≥ 1 on success. */
const char *shd_store_resolve(const char *host, int32_t port, bool for_server, shd_store_address *addresses,
                              int32_t capacity, int32_t *count);

/* "127.0.0.1:29400", "[::1]:29400". */
void shd_store_address_text(const shd_store_address *address, char text[SHD_STORE_ADDRESS_BYTES]);
int32_t shd_store_address_port(const shd_store_address *address);
/* A hash of the machine, without its port. */
uint64_t shd_store_address_hash(const shd_store_address *address);
/* Whether only this machine can reach it. */
bool shd_store_address_is_loopback(const shd_store_address *address);

/* Sends at once, and notices within half a minute that the other machine or the network has gone. */
void shd_store_tune(int socket);

/* Listens on every address of `host` that this machine has, with one port for all. `addresses` and `sockets` have
 * room for SHD_STORE_LISTENERS; the caller closes the sockets. Fails: COMM (busy port, named; no address of this
 * machine). */
sherd_status shd_store_listen(const char *host, int32_t port, shd_store_address *addresses, int *sockets,
                              int32_t *count);

#endif
