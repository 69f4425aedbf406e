/* windows.h: the windows of the files of a run, by their positions (window_order.h, blend.h). */
#ifndef PEN_WINDOWS_H
#define PEN_WINDOWS_H

#include "runtime/data/token_file.h"

/* The window at a position: of the file's, read again from epoch to epoch (window_order.h). */
static inline uint64_t pen_data_window(const struct pen_data *data, uint64_t position) {
  return pen_window_at(&data->order, position, data->window_count);
}

/* A window of one file. */
struct pen_file_window {
  const struct pen_data *file;
  uint64_t index;
};

/* The window at a position of the data, in O(log files), in a blend O(files). */
struct pen_file_window pen_data_locate(const struct pen_data *data, uint64_t position);

/* Windows that one step of a profile reads. */
uint64_t pen_data_step_windows(const struct pen_plan *plan, const struct pen_profile *profile);

/* Tokens of the longest of the windows at the positions [first, first + count). */
uint64_t pen_data_longest(const struct pen_data *data, uint64_t first, uint64_t count);

/* How many targets of the windows at the positions [first, first + count) are not ignored: what
 * those windows' own counts, or the mask's, add up to, without reading tokens; of samples, whose
 * targets are read. */
uint64_t pen_data_targets(const struct pen_data *data, uint64_t first, uint64_t count);

/* Sets the shares of the losses in a step that reads these windows (plan.def, `shares`). Returns
 * whether one is not 0. */
bool pen_data_shares(const struct pen_data *data, uint64_t first, uint64_t count, double *share);

#endif
