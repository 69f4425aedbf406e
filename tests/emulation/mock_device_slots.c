/* mock_device_slots.c: what tensor ranks store into each other's slots, and what their kernels read
 * there (see mock_device.h).
 *
 * The tensor ranks of a rank run one list of actions, so the order of exchanges in the list says
 * what a slot holds: after exchange n has begun, the bytes of the last exchange up to n that writes
 * there. A kernel that finds bytes of an earlier one (or step) reads too soon; of a later one, they
 * were written too soon. Both are found word by word, from the addresses that the recorder saw, not
 * from the semaphores that are to prevent it. */
#include <stdlib.h>

#include "tests/emulation/mock_device.h"

enum { WORD_BYTES = 2 }; /* a bf16 */

struct slots {
  uint32_t exchanges; /* of a step */
  struct tensor_rank {
    size_t words;
    uint32_t *holds;   /* [exchanges + 1][words]: the exchange that wrote the word last; 0: none */
    uint64_t *written; /* [words]: step * (exchanges + 1) + exchange; UINT64_MAX: under way */
  } * tensor_ranks;    /* [processes] */
};

static size_t first_word(const struct slot_range *range) { return range->first / WORD_BYTES; }
static size_t past_word(const struct slot_range *range) {
  return (range->first + range->bytes) / WORD_BYTES;
}

/* What all processes store in a step, by exchange; then, what is not written again stays. */
static void find_contents(struct slots *slots, const struct script *scripts) {
  for (uint32_t p = 0; p < pen_process_count(&pen_plan); p++) {
    for (uint32_t i = 0; i < scripts[p].count; i++) {
      const struct slot_range *range = &scripts[p].issue[i].slots;
      const struct tensor_rank *to = &slots->tensor_ranks[range->process];
      for (size_t w = first_word(range);
           scripts[p].issue[i].call == STORE && range->exchange != PEN_NONE && w < past_word(range);
           w++) {
        to->holds[range->exchange * to->words + w] = range->exchange;
      }
    }
  }
  for (uint32_t p = 0; p < pen_process_count(&pen_plan); p++) {
    const struct tensor_rank *tensor_rank = &slots->tensor_ranks[p];
    for (size_t i = tensor_rank->words; i < (slots->exchanges + 1) * tensor_rank->words; i++) {
      tensor_rank->holds[i] = tensor_rank->holds[i] == 0
                                  ? tensor_rank->holds[i - tensor_rank->words]
                                  : tensor_rank->holds[i];
    }
  }
}

struct slots *mock_device_slots_open(const struct script *scripts) {
  struct slots *slots = mock_device_array(1, sizeof *slots);
  slots->tensor_ranks =
      mock_device_array(pen_process_count(&pen_plan), sizeof *slots->tensor_ranks);
  for (uint32_t p = 0; p < pen_process_count(&pen_plan); p++) {
    slots->exchanges =
        scripts[p].exchange_count > slots->exchanges ? scripts[p].exchange_count : slots->exchanges;
  }
  for (uint32_t p = 0; p < pen_process_count(&pen_plan); p++) {
    struct tensor_rank *tensor_rank = &slots->tensor_ranks[p];
    tensor_rank->words = pen_plan.memory[pen_table_rank(&pen_plan, p)].exchange_bytes / WORD_BYTES;
    tensor_rank->holds =
        mock_device_array((slots->exchanges + 1) * tensor_rank->words, sizeof *tensor_rank->holds);
    tensor_rank->written = mock_device_array(tensor_rank->words, sizeof *tensor_rank->written);
  }
  find_contents(slots, scripts);
  return slots;
}

void mock_device_slots_close(struct slots *slots) {
  for (uint32_t p = 0; p < pen_process_count(&pen_plan); p++) {
    free(slots->tensor_ranks[p].holds), free(slots->tensor_ranks[p].written);
  }
  free(slots->tensor_ranks), free(slots);
}

void mock_device_store(struct slots *slots, const struct slot_range *range, uint64_t step) {
  const struct tensor_rank *to = &slots->tensor_ranks[range->process];
  for (size_t w = first_word(range); w < past_word(range); w++) {
    to->written[w] =
        range->exchange == PEN_NONE ? UINT64_MAX : step * (slots->exchanges + 1) + range->exchange;
  }
}

bool mock_device_load(const struct slots *slots, const struct slot_range *range, uint64_t step) {
  const struct tensor_rank *own = &slots->tensor_ranks[range->process];
  bool right = true;
  for (size_t w = first_word(range); w < past_word(range) && right; w++) {
    const uint32_t held = own->holds[range->exchange * own->words + w];
    right = held != 0 && own->written[w] == step * (slots->exchanges + 1) + held;
  }
  return right;
}
