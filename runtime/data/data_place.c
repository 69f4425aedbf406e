/* data_place.c: how far a run has read its data (see data_place.h). */
#include "runtime/data/data_place.h"

#include <string.h>

/* Whether the data are counted by rows: samples are, and windows if a file is packed. */
static bool has_rows(const struct pen_data *data) {
  bool packed = data->packed.header != NULL || data->named != NULL;
  for (uint32_t f = 0; f < data->file_count; f++) {
    packed = packed || data->files[f].packed.header != NULL;
  }
  return packed;
}

struct pen_data_place pen_data_place_of(const struct pen_data *data, uint64_t cursor) {
  const bool rows = data->tokens == NULL || has_rows(data);
  const uint64_t windows = data->tokens == NULL ? 0 : data->window_count;
  const uint64_t window = windows == 0 ? cursor : cursor % windows;
  return (struct pen_data_place){
      .known = true,
      .rows = rows,
      .epoch = 1 + (windows == 0 ? 0 : cursor / windows),
      .read = rows ? window : window * data->sequence,
      .sequence = rows ? 0 : data->sequence,
      .file = data->file,
      .files = data->ids,
      .file_count = data->file_count,
      .shuffled = data->order.shuffled,
      .shuffle_seed = data->order.seed,
  };
}

bool pen_data_place_fits(const struct pen_data *data, const struct pen_data_place *place) {
  const struct pen_data_place own = pen_data_place_of(data, 0);
  return own.rows == place->rows && own.file.bytes == place->file.bytes &&
         memcmp(own.file.checksum, place->file.checksum, sizeof own.file.checksum) == 0;
}

bool pen_data_place_in_order(const struct pen_data *data, const struct pen_data_place *place) {
  return data->order.shuffled == place->shuffled && data->order.seed == place->shuffle_seed;
}

uint64_t pen_data_place_cursor(const struct pen_data *data, const struct pen_data_place *place,
                               uint64_t *again) {
  *again = 0;
  if (data->tokens == NULL) {
    return place->read;
  }
  const uint64_t length = place->rows ? 1 : data->sequence, window = place->read / length;
  const uint64_t before = (place->epoch - 1) * data->window_count;
  if (window >= data->window_count) {
    return before + data->window_count;
  }
  *again = place->read % length;
  return before + window;
}
