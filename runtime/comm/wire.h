/* What ranks say to each other while they meet, and how: single messages over sequenced-packet sockets, with
 * descriptors. */
#ifndef SHD_COMM_WIRE_H
#define SHD_COMM_WIRE_H

#include "runtime/comm/backend.h"

#include <sys/socket.h>
#include <sys/un.h>

enum { SHD_WIRE_PROTOCOL = 2, SHD_WIRE_MAX_FDS = 3 + 2 * SHD_COMM_MAX_RANKS };
#define SHD_WIRE_MAGIC UINT64_C(0x6472656873dd0001)

/* From a rank to rank 0. With it, unless there is a cause: its life line, then its exported memory if exported_bytes >
 * 0. */
typedef struct shd_hello {
    uint64_t magic;
    int32_t protocol, rank, world_size, unit_count;
    uint64_t fingerprint;
    int64_t exported_bytes, host_bytes;
    char cause[SHD_COMM_CAUSE_BYTES / 2]; /* why this rank cannot take part; "" when it can */
} shd_hello;

/* From rank 0. With OK: control, host if host_bytes > 0, records if it says so, every rank's life line, every rank's
 * exported memory if exported_bytes > 0. */
typedef struct shd_answer {
    uint64_t magic;
    int32_t protocol, status, has_records, reserved;
    char text[SHD_COMM_CAUSE_BYTES];
} shd_answer;

/* The abstract address of `rendezvous` for this user; long names end in a hash. */
socklen_t shd_wire_address(const char *rendezvous, struct sockaddr_un *out);

/* True when the process at the other end belongs to this user. */
bool shd_wire_is_own_user(int socket);

/* Sends one message; false when the other end is gone or does not take it. Never blocks. */
bool shd_wire_send(int socket, const void *message, size_t bytes, const int *fds, int32_t fd_count);

typedef enum shd_wire_result {
    SHD_WIRE_GOT,
    SHD_WIRE_NOTHING, /* no message yet */
    SHD_WIRE_CLOSED,
    SHD_WIRE_GARBAGE /* another size, or descriptors were lost */
} shd_wire_result;

/* Takes one message of exactly `bytes`, and its descriptors (at most SHD_WIRE_MAX_FDS, close-on-exec); they are the
 * caller's on GOT only. Never blocks. */
shd_wire_result shd_wire_receive(int socket, void *message, size_t bytes, int *fds, int32_t *fd_count);

void shd_wire_close(int *fds, int32_t fd_count);

#endif
