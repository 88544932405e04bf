/* A TCP port for rank 0 to listen on, which nobody else is given meanwhile.
 *
 * It is free, and stays so until a rank binds it: it lies outside the range from which the kernel gives ports to those
 * who do not ask for one, and an abstract Unix socket named after it tells other launchers of this host (of this network
 * namespace, as ports are) that it is taken. */
#ifndef SHD_LAUNCH_PORT_H
#define SHD_LAUNCH_PORT_H

#include <sherd/status.h>

typedef struct shd_port {
    int number; /* 0: none */
    int claim;  /* descriptor of the socket that stands for it; closed on exec */
} shd_port;

#define SHD_PORT_INIT                                                                                                  \
    { .number = 0, .claim = -1 }

/* Finds one. Fails: IO. */
sherd_status shd_port_find(shd_port *port);
/* Whether `number` could be listened on now, by this process, on every interface. */
sherd_status shd_port_check(int number);
/* Lets others have it. Accepts SHD_PORT_INIT. */
void shd_port_release(shd_port *port);

#endif
