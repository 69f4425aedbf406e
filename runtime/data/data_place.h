/* data_place.h: how far a run has read its data, so that a later one continues there with windows
 * of another length, and knows whether its file is the same. The name of a file does not matter. */
#ifndef PEN_DATA_PLACE_H
#define PEN_DATA_PLACE_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/data/token_file.h"

struct pen_data_place {
  bool known; /* false: of a version that kept the cursor alone */
  bool rows;  /* `read` counts windows: of a packed file, samples, or inputs of the model's own */
  uint64_t epoch, read;         /* the epoch, from 1; tokens, or rows, that were read of it */
  uint64_t sequence;            /* tokens of a plain file's window */
  struct pen_data_file_id file; /* bytes 0: none; of several: pen_data_identify() */
  const struct pen_data_file_id
      *files; /* [file_count]: each of several; null: one, or it was read */
  uint32_t file_count;
  bool shuffled;         /* the order of its windows */
  uint64_t shuffle_seed; /* 0 unless shuffled */
};

/* The place of a step that begins at window `cursor`. */
struct pen_data_place pen_data_place_of(const struct pen_data *data, uint64_t cursor);

/* Whether the place, which is known, is one of this data. */
bool pen_data_place_fits(const struct pen_data *data, const struct pen_data_place *place);

/* Whether its windows were read in this order. Inputs of the model's own have one alone. */
bool pen_data_place_in_order(const struct pen_data *data, const struct pen_data_place *place);

/* The cursor of the window that holds the next token, or row. *again: tokens of it that were read
 * before. With windows of another length of several files, whose ends fill no window each, it is
 * that after as many tokens. After the last full window the next epoch begins. */
uint64_t pen_data_place_cursor(const struct pen_data *data, const struct pen_data_place *place,
                               uint64_t *again);

#endif
