/* A device for tests of what is enqueued by a host: its memory is the host's, and its streams run what they were given
 * late, a little at a time and in a random order among them. */
#ifndef TESTS_COMM_SLOW_DEVICE_H
#define TESTS_COMM_SLOW_DEVICE_H

#include "runtime/device/device.h"

extern const shd_device_ops slow_device_ops;

#endif
