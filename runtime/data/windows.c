/* windows.c: finds windows and counts what they have (see windows.h). */
#include "runtime/data/windows.h"

#include "runtime/data/target_mask.h"

/* Of a list that is no blend. */
static struct pen_file_window locate_in_list(const struct pen_data *data, uint64_t window) {
  uint32_t first = 0, past = data->file_count;
  while (past - first > 1) {
    const uint32_t middle = first + (past - first) / 2;
    if (data->first_window[middle] <= window) {
      first = middle;
    } else {
      past = middle;
    }
  }
  return (struct pen_file_window){&data->files[first], window - data->first_window[first]};
}

struct pen_file_window pen_data_locate(const struct pen_data *data, uint64_t position) {
  if (data->blend.nodes != NULL) {
    uint64_t own;
    const struct pen_data *file = &data->files[pen_blend_file(&data->blend, position, &own)];
    return (struct pen_file_window){file, pen_data_window(file, own)};
  }
  const uint64_t window = pen_data_window(data, position);
  return data->file_count > 0 ? locate_in_list(data, window)
                              : (struct pen_file_window){data, window};
}

uint64_t pen_data_step_windows(const struct pen_plan *plan, const struct pen_profile *profile) {
  return (uint64_t)pen_group_size(plan, PEN_DATA) * profile->microbatch_count * plan->microbatch;
}

/* Tokens of a window's row that is filled: those of a packed file's window may be fewer. */
static uint64_t window_length(struct pen_file_window window) {
  const struct pen_data *file = window.file;
  return file->packed.header == NULL ? file->sequence : file->packed.windows[window.index].length;
}

uint64_t pen_data_longest(const struct pen_data *data, uint64_t first, uint64_t count) {
  if (data->file_count == 0 && data->packed.header == NULL) {
    return data->sequence;
  }
  uint64_t longest = 0;
  for (uint64_t w = 0; w < count; w++) {
    uint64_t length = window_length(pen_data_locate(data, first + w));
    longest = length > longest ? length : longest;
  }
  return longest;
}

/* How many targets of a window count. */
static uint64_t window_targets(struct pen_file_window window) {
  const struct pen_data *data = window.file;
  if (data->named != NULL) {
    return data->named_targets == NULL ? 0
                                       : pen_named_count_targets(data->named_targets, window.index);
  }
  if (data->packed.header != NULL) {
    return data->packed.windows[window.index].target_count;
  }
  uint64_t first = window.index * data->sequence + 1, left = data->token_count - first;
  return pen_target_mask_count(data->mask, first, left < data->sequence ? left : data->sequence);
}

uint64_t pen_data_targets(const struct pen_data *data, uint64_t first, uint64_t count) {
  if (data->file_count == 0 && data->packed.header == NULL && data->mask == NULL &&
      data->named == NULL && !data->to_end) {
    return count * data->sequence;
  }
  const uint64_t past =
      data->to_end && first + count > data->window_count ? data->window_count : first + count;
  uint64_t targets = 0;
  for (uint64_t w = first; w < past; w++) {
    targets += window_targets(pen_data_locate(data, w));
  }
  return targets;
}

/* What a share is over, of the samples of a step. */
static double share_over(const struct pen_data *data, const struct pen_share *share, uint64_t first,
                         uint64_t count) {
  double sum = 0.0;
  if (share->over == PEN_SHARE_SAMPLES) {
    return (double)count;
  }
  if (data->named == NULL) { /* a token file, or blocks are measured, without data */
    return (double)pen_data_targets(data, first, count);
  }
  for (uint64_t w = first; w < first + count; w++) {
    const struct pen_file_window window = pen_data_locate(data, w);
    const struct pen_named_input *named = &window.file->named[share->input - 1];
    sum += share->over == PEN_SHARE_SUM ? pen_named_sum(named, window.index)
                                        : (double)pen_named_count_targets(named, window.index);
  }
  return sum;
}

bool pen_data_shares(const struct pen_data *data, uint64_t first, uint64_t count, double *share) {
  bool any = false;
  for (uint32_t s = 0; s < data->share_count; s++) {
    const struct pen_share *of = &data->shares[s];
    const double over = share_over(data, of, first, count);
    const double divisor = of->least > 0.0 && over < of->least ? of->least : over;
    const bool is_zero = divisor >= 0.0 && divisor <= 0.0;
    share[s] = is_zero ? 0.0 : of->factor / divisor;
    any = any || !is_zero;
  }
  return any;
}
