/* saving.c: what a rank saves (see saving.h). */
#include "runtime/rank/saving.h"

#include "runtime/device/stream_state.h"

struct pen_update_counts pen_rank_updates(const struct pen_rank *rank) {
  struct pen_update_counts updates = rank->run->updates;
  const uint64_t *most = &rank->vm->adamw->updates;
  if (rank->stream_state != NULL) {
    const unsigned char *at = (const unsigned char *)most;
    most = (const uint64_t *)pen_stream_read(rank->stream_state,
                                             (uint64_t)(at - rank->endpoint.arena), sizeof *most);
  }
  updates.most = *most;
  return updates;
}

struct pen_saving pen_rank_saving(const struct pen_rank *rank, const char *directory,
                                  struct pen_arena_view *view) {
  static const struct pen_folder_id none;
  const struct pen_run *run = rank->run;
  *view = (struct pen_arena_view){.look = pen_stream_read, .context = rank->stream_state};
  return (struct pen_saving){.directory = directory,
                             .state = {.step = rank->vm->optimizer_step,
                                       .cursor = rank->cursor,
                                       .place = pen_data_place_of(&run->data, rank->cursor),
                                       .updates = pen_rank_updates(rank)},
                             .locked = &none,
                             .log = run->log_descriptor,
                             .kept = &run->kept,
                             .view = rank->stream_state == NULL ? NULL : view};
}
