/* device.h: the device that a plan was made for, among those that this binary was linked with. */
#ifndef PEN_DEVICE_H
#define PEN_DEVICE_H

#include "kernels/kernels.h"

/* The device of that name; null when the binary was linked without it. */
const struct pen_device *pen_device_find(const char *name);

#endif
