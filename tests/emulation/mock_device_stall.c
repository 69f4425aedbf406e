/* mock_device_stall.c: a device that stops at any call, and for whom the ranks then publish that
 * they wait (see mock_device.h). The runtime's own code decides that (runtime/device/progress.c),
 * from the words as the replay left them. */
#include <stdio.h>

#include "runtime/comm/failure_text.h"
#include "runtime/device/progress.h"
#include "tests/emulation/mock_device.h"

enum { STEPS = 3, RANKS_MAX = 64 };

static char wrong[200];

static uint32_t draw(uint64_t *seed, uint32_t below) {
  *seed ^= *seed << 13, *seed ^= *seed >> 7, *seed ^= *seed << 17;
  return (uint32_t)(*seed >> 33) % below;
}

static uint32_t says(const struct script *script) {
  return atomic_load(&script->vm->endpoint->self->waits_for);
}

/* What all ranks publish: first for the others to read, then twice again with what the others have
 * published. With `wrongly`, as if what an action sends were sent when the action is done. */
static void tell(const struct script *scripts, const struct standing *standing, bool wrongly) {
  for (uint32_t p = 0; p < 3 * pen_process_count(&pen_plan); p++) {
    const uint32_t r = p % pen_process_count(&pen_plan);
    struct pen_vm *vm = scripts[r].vm;
    vm->stream_state->actions_done = standing[r].step * vm->program->action_count;
    atomic_store(&vm->endpoint->self->published.count, (uint32_t)standing[r].step);
    pen_progress_publish(vm, (struct pen_progress_counters){
                                 standing[r].rows, wrongly ? standing[r].rows : standing[r].left});
  }
}

/* Where the chain of waits from a rank ends. */
static uint32_t last_waited_for(const struct script *scripts, uint32_t rank) {
  struct pen_awaited at = {.rank = rank};
  for (uint32_t hops = 0; hops <= 2 * pen_process_count(&pen_plan) &&
                          pen_failure_follow(scripts[rank].vm->endpoint->shared, &at);
       hops++) {
  }
  return at.rank;
}

/* Whether that rank is the one that stopped, or another tensor rank or peer of it in the same
 * action: within an action nothing says which of these the others wait for. */
static bool is_right(const struct standing *standing, uint32_t found, uint32_t stopped) {
  return found == stopped ||
         (pen_table_rank(&pen_plan, found) == pen_table_rank(&pen_plan, stopped) &&
          standing[found].step == standing[stopped].step &&
          standing[found].rows == standing[stopped].rows);
}

static void check(const struct script *scripts, const struct standing *standing,
                  const struct pace *pace, bool wrongly) {
  const struct standing *stopped = &standing[pace->stopped_rank];
  tell(scripts, standing, wrongly);
  for (uint32_t r = 0;
       r < pen_process_count(&pen_plan) && stopped->step < STEPS && wrong[0] == '\0'; r++) {
    const uint32_t found = last_waited_for(scripts, r);
    if (standing[r].step < STEPS && !is_right(standing, found, pace->stopped_rank)) {
      snprintf(wrong, sizeof wrong,
               "rank %u stops on stream %d in step %u, %u rows done, %u left: rank %u, in step %u, "
               "%u rows done, %u left, waits for %d, "
               "and %u is found",
               pace->stopped_rank, (int)pace->stopped_stream, (unsigned)stopped->step,
               stopped->rows, stopped->left, r, (unsigned)standing[r].step, standing[r].rows,
               standing[r].left, (int)says(&scripts[r]) - 1, found);
    }
  }
}

const char *mock_device_stall(const struct script *scripts, uint32_t times, bool wrongly) {
  struct standing standing[RANKS_MAX];
  uint64_t seed = 88172645463325252u, calls = 0;
  for (uint32_t p = 0; p < pen_process_count(&pen_plan); p++) {
    calls += scripts[p].count;
  }
  wrong[0] = '\0';
  for (uint32_t i = 0; i < times && wrong[0] == '\0'; i++) {
    struct pace pace = {.slow_rank = PEN_NONE, .seed = seed, .standing = standing};
    pace.stop_behind = 1 + draw(&seed, (uint32_t)(STEPS * calls));
    pace.stopped_rank = draw(&seed, pen_process_count(&pen_plan));
    const uint32_t stream = draw(&seed, 2 * scripts[pace.stopped_rank].stream_count);
    pace.stopped_stream = stream < scripts[pace.stopped_rank].stream_count ? stream : PEN_NONE;
    mock_device_play(scripts, NULL, BUFFERED, pace, STEPS);
    check(scripts, standing, &pace, wrongly);
  }
  return wrong[0] == '\0' ? NULL : wrong;
}
