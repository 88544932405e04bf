#include "runtime/launch/port.h"

#include "runtime/base/status.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { LOWEST = 10000, HIGHEST = 65535, TRIES = 400 };

/* What the kernel gives out by itself: [low, high]. */
static void read_given_range(int *low, int *high) {
    *low = 32768;
    *high = 60999;
    FILE *file = fopen("/proc/sys/net/ipv4/ip_local_port_range", "re");
    int first, last;
    if (!file) return;
    if (fscanf(file, "%d %d", &first, &last) == 2) {
        *low = first;
        *high = last;
    }
    fclose(file);
}

/* 0, or why nobody can listen on it. As servers do, with SO_REUSEADDR: the connections of a server that has just ended
 * are in nobody's way. */
static int try_bind(int family, int number) {
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0), yes = 1, cause = 0;
    if (fd < 0) return errno;
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons((uint16_t)number)};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)number)};
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (family == AF_INET6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &yes, sizeof yes);
    const void *address = family == AF_INET ? (const void *)&v4 : &v6;
    socklen_t length = family == AF_INET ? sizeof v4 : sizeof v6;
    /* Listening, because two may bind one port with SO_REUSEADDR until one of them listens. */
    if (bind(fd, address, length) < 0 || listen(fd, 1) < 0) cause = errno;
    close(fd);
    return cause;
}

/* A host may lack one of the families, not both. */
static int find_obstacle(int number) {
    int v4 = try_bind(AF_INET, number), v6 = try_bind(AF_INET6, number);
    bool lacks_v6 = v6 == EAFNOSUPPORT || v6 == EADDRNOTAVAIL, lacks_v4 = v4 == EAFNOSUPPORT || v4 == EADDRNOTAVAIL;
    if (v4 && !(lacks_v4 && !v6)) return v4;
    return v6 && !(lacks_v6 && !v4) ? v6 : 0;
}

sherd_status shd_port_check(int number) {
    int cause = find_obstacle(number);
    if (!cause) return SHERD_OK;
    return shd_fail(SHERD_IO, "port %d cannot be used: %s", number, strerror(cause));
}

static int claim(int number) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int length = snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "sherd-port-%d", number);
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return -1;
    if (!bind(fd, (struct sockaddr *)&address,
              (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length)))
        return fd;
    int cause = errno;
    close(fd);
    errno = cause;
    return -1;
}

sherd_status shd_port_find(shd_port *port) {
    int low, high, cause = EADDRINUSE;
    read_given_range(&low, &high);
    int given = high - low + 1, count = HIGHEST - LOWEST + 1 - given;
    /* Where the kernel gives out nearly all there are, chance must do. */
    bool apart = low >= LOWEST && high <= HIGHEST && count >= TRIES;
    for (int i = 0; i < TRIES; i++) {
        uint32_t drawn;
        if (getrandom(&drawn, sizeof drawn, 0) != (ssize_t)sizeof drawn)
            return shd_fail(SHERD_IO, "no random number for a port: %s", strerror(errno));
        int number = LOWEST + (int)(drawn % (uint32_t)(apart ? count : HIGHEST - LOWEST + 1));
        if (apart && number >= low) number += given;
        int fd = claim(number);
        if (fd < 0) {
            cause = errno;
            continue;
        }
        cause = find_obstacle(number);
        if (!cause) {
            *port = (shd_port){.number = number, .claim = fd};
            return SHERD_OK;
        }
        close(fd);
    }
    return shd_fail(SHERD_IO, "no free port for rank 0: %s", strerror(cause));
}

void shd_port_release(shd_port *port) {
    if (port->claim >= 0) close(port->claim);
    *port = (shd_port)SHD_PORT_INIT;
}
