/* find_device.h: the device that a plan was made for, among those that this binary was linked with.
 */
#ifndef PEN_FIND_DEVICE_H
#define PEN_FIND_DEVICE_H

#include "kernels/device.h"

/* `kind`: enum pen_device_kind. Null when the binary was linked without it. */
const struct pen_device *pen_device_find(int kind);

#endif
