/* other_layers.c: reads a buffer between the passes of a measured plan (see other_layers.h). */
#include "runtime/observe/other_layers.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "kernels/ops.h"
#include "runtime/base/check.h"

enum { CACHE_LINE = 64 };
static const uint64_t default_cache_bytes = 32 << 20; /* where the system does not say */

/* Of the weights, and of the activations of one microbatch. */
static uint64_t pass_bytes(const struct pen_plan *plan) {
  uint64_t elements = 0;
  for (uint32_t w = 0; w < plan->weight_count; w++) {
    elements += plan->weights[w].count;
  }
  return elements * pen_dtype_bytes(plan->dtype) +
         plan->memory[0].activation_bytes / plan->profiles[0].microbatch_count;
}

static uint64_t cache_bytes(void) {
  const long bytes = sysconf(_SC_LEVEL3_CACHE_SIZE);
  return bytes > 0 ? (uint64_t)bytes : default_cache_bytes;
}

void pen_other_layers_open(struct pen_other_layers *others, const struct pen_plan *measured,
                           uint32_t layers, uint32_t processes) {
  const uint64_t count = layers > measured->layers ? layers - measured->layers : 0,
                 used = count * pass_bytes(measured) / processes, most = cache_bytes() / processes;
  *others = (struct pen_other_layers){.last_stage = measured->stage_count - 1};
  if (used > 0 && pen_device_row(measured->device)->on_host) {
    others->bytes = used < most ? used : most;
    others->memory =
        mmap(NULL, others->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    pen_check(others->memory != MAP_FAILED, "no memory to fill the caches");
    memset(others->memory, 1, others->bytes); /* else all pages are one */
  }
}

void pen_other_layers_read(const struct pen_other_layers *others, const struct pen_action *action) {
  const bool cold = action->microbatch % 4 < 2; /* of both kinds of backward one */
  const bool forward = action->kind == PEN_F && action->stage == 0,
             backward = (action->kind == PEN_I || action->kind == PEN_B) &&
                        action->stage == others->last_stage;
  if (cold && (forward || backward)) {
    for (uint64_t at = 0; at < others->bytes; at += CACHE_LINE) {
      *(volatile unsigned char *)&others->memory[at];
    }
  }
}
