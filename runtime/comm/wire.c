#include "runtime/comm/wire.h"

#include "runtime/base/hash.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

socklen_t shd_wire_address(const char *rendezvous, struct sockaddr_un *out) {
    *out = (struct sockaddr_un){.sun_family = AF_UNIX};
    /* sun_path[0] stays 0: an abstract name, which vanishes with its holder. */
    size_t room = sizeof out->sun_path - 1;
    int length = snprintf(out->sun_path + 1, room, "sherd-%u-%s", (unsigned)geteuid(), rendezvous);
    if ((size_t)length >= room)
        length = snprintf(out->sun_path + 1, room, "sherd-%u-%.60s-%016llx", (unsigned)geteuid(), rendezvous,
                          (unsigned long long)shd_hash_text(0, rendezvous));
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
}

bool shd_wire_is_own_user(int socket) {
    struct ucred other;
    socklen_t bytes = sizeof other;
    return !getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &other, &bytes) && other.uid == geteuid();
}

/* Aligned room for the descriptors of one message. */
union fd_room {
    struct cmsghdr header;
    unsigned char bytes[CMSG_SPACE(SHD_WIRE_MAX_FDS * sizeof(int))];
};

bool shd_wire_send(int socket, const void *message, size_t bytes, const int *fds, int32_t fd_count) {
    union fd_room room = {0};
    struct iovec part = {.iov_base = (void *)(uintptr_t)message, .iov_len = bytes};
    struct msghdr packet = {.msg_iov = &part, .msg_iovlen = 1};
    if (fd_count > 0) {
        size_t fd_bytes = (size_t)fd_count * sizeof(int);
        packet.msg_control = &room;
        packet.msg_controllen = CMSG_SPACE(fd_bytes);
        room.header =
            (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(fd_bytes)};
        memcpy(CMSG_DATA(&room.header), fds, fd_bytes);
    }
    ssize_t sent;
    do sent = sendmsg(socket, &packet, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (sent < 0 && errno == EINTR);
    return sent == (ssize_t)bytes;
}

/* Collects the descriptors of a received message; they are open in this process whether wanted or not. */
static int32_t take_fds(struct msghdr *packet, int *fds) {
    int32_t count = 0;
    for (struct cmsghdr *header = CMSG_FIRSTHDR(packet); header; header = CMSG_NXTHDR(packet, header)) {
        if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
        size_t fd_bytes = header->cmsg_len - CMSG_LEN(0);
        memcpy(fds + count, CMSG_DATA(header), fd_bytes);
        count += (int32_t)(fd_bytes / sizeof(int));
    }
    return count;
}

shd_wire_result shd_wire_receive(int socket, void *message, size_t bytes, int *fds, int32_t *fd_count) {
    union fd_room room;
    struct iovec part = {.iov_base = message, .iov_len = bytes};
    struct msghdr packet = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &room, .msg_controllen = sizeof room};
    ssize_t got;
    do got = recvmsg(socket, &packet, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    while (got < 0 && errno == EINTR);
    if (got < 0) return errno == EAGAIN || errno == EWOULDBLOCK ? SHD_WIRE_NOTHING : SHD_WIRE_CLOSED;
    *fd_count = take_fds(&packet, fds);
    if (got == (ssize_t)bytes && !(packet.msg_flags & (MSG_TRUNC | MSG_CTRUNC))) return SHD_WIRE_GOT;
    shd_wire_close(fds, *fd_count);
    return got == 0 ? SHD_WIRE_CLOSED : SHD_WIRE_GARBAGE;
}

void shd_wire_close(int *fds, int32_t fd_count) {
    for (int32_t i = 0; i < fd_count; i++) {
        if (fds[i] >= 0) close(fds[i]);
        fds[i] = -1;
    }
}
