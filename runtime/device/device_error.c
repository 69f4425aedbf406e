/* device_error.c: errors of an asynchronous device and of its transport (see device_error.h). */
#include "runtime/device/device_error.h"

#include <string.h>
#include <time.h>

#include "runtime/base/check.h"
#include "runtime/comm/failure_text.h"

enum { REPORT_PAUSES = 100 }; /* of 10 ms, in which the watchdog may report who is lost */

static bool is_aborted(const struct pen_vm *vm) {
  return atomic_load_explicit(&vm->endpoint->shared->control->abort_status, memory_order_relaxed) !=
         0;
}

/* The watchdog, which sees a process die, knows better than a rank whose connection broke: waits
 * for its report. */
static bool others_reported(const struct pen_vm *vm) {
  const struct timespec pause = {.tv_nsec = 10 * 1000 * 1000};
  for (int i = 0; i < REPORT_PAUSES && !is_aborted(vm); i++) {
    nanosleep(&pause, NULL);
  }
  return is_aborted(vm);
}

void pen_device_poll_error(struct pen_vm *vm) {
  const char *why = vm->device->error();
  const uint32_t self = vm->endpoint->global;
  uint32_t lost = self;
  if (why == NULL) {
    why = vm->transport->ops->error(vm->transport, &lost);
  }
  if (why == NULL || (pen_process_count(vm->plan) > 1 && others_reported(vm))) {
    return;
  }
  char line[PEN_FAILURE_LINE_BYTES];
  const struct pen_shared *shared = vm->endpoint->shared;
  pen_failure_line(line, sizeof line, vm->plan, shared, lost, why,
                   lost == self ? pen_failure_waiter(vm->plan, shared, lost) : self);
  pen_fail(PEN_EXIT_LOST, "%s", line + strlen("penstock: "));
}

bool pen_device_is_well(struct pen_vm *vm) {
  if (is_aborted(vm)) {
    return false;
  }
  pen_device_poll_error(vm);
  return true;
}
