/* device_error.h: errors of an asynchronous device and of its transport, while steps run. */
#ifndef PEN_DEVICE_ERROR_H
#define PEN_DEVICE_ERROR_H

#include "runtime/device/device.h"

/* Ends this rank when the device or the transport has failed, as a lost rank (docs/contracts.md
 * section 10): what failed, after which action. Returns where another rank was declared lost
 * meanwhile. */
void pen_device_poll_error(struct pen_vm *vm);

/* The same; false when the run was aborted. */
bool pen_device_is_well(struct pen_vm *vm);

#endif
