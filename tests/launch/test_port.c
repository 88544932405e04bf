#include "runtime/launch/port.h"

#include <sherd/status.h>

#include <criterion/criterion.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

TestSuite(port, .timeout = 60);

/* A socket that listens on `number` of the loopback interface, or -1; 0: any. */
static int listen_on(int number) {
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)number), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || (!bind(fd, (struct sockaddr *)&address, sizeof address) && !listen(fd, 1))) return fd;
    close(fd);
    return -1;
}

Test(port, two_hundred_are_all_different_and_all_can_be_listened_on) {
    enum { COUNT = 200 };
    shd_port ports[COUNT];
    static unsigned char seen[65536];
    int low = 0, high = 0;
    FILE *range = fopen("/proc/sys/net/ipv4/ip_local_port_range", "r");
    bool known = range && fscanf(range, "%d %d", &low, &high) == 2 && low > 12000;
    if (range) fclose(range);
    for (int i = 0; i < COUNT; i++) {
        cr_assert_eq(shd_port_find(&ports[i]), SHERD_OK, "%s", sherd_last_error());
        int number = ports[i].number;
        cr_assert(number >= 1024 && number <= 65535);
        cr_assert_not(seen[number], "port %d twice", number);
        cr_assert(!known || number < low || number > high, "port %d is one that the kernel gives out", number);
        seen[number] = 1;
    }
    for (int i = 0; i < COUNT; i += 20) {
        int fd = listen_on(ports[i].number);
        cr_assert_geq(fd, 0);
        close(fd);
    }
    for (int i = 0; i < COUNT; i++) shd_port_release(&ports[i]);
}

Test(port, one_that_is_in_use_is_refused_by_number) {
    struct sockaddr_in address;
    socklen_t length = sizeof address;
    int fd = listen_on(0);
    char number[16];
    cr_assert_eq(getsockname(fd, (struct sockaddr *)&address, &length), 0);
    cr_assert_eq(shd_port_check(ntohs(address.sin_port)), SHERD_IO);
    snprintf(number, sizeof number, "%d", ntohs(address.sin_port));
    cr_assert(strstr(sherd_last_error(), number));
    close(fd);
    cr_assert_eq(shd_port_check(ntohs(address.sin_port)), SHERD_OK, "%s", sherd_last_error());
}
