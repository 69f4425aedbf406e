/* mock_device_recording.h: what the device and the NCCL that record calls share. */
#ifndef PEN_MOCK_DEVICE_RECORDING_H
#define PEN_MOCK_DEVICE_RECORDING_H

#include <stdio.h>
#include <stdlib.h>

#include "runtime/comm/nccl_api.h"
#include "runtime/exec/exec.h"
#include "tests/emulation/mock_device.h"

#define must(condition, ...) \
  ((condition) ? (void)0 : (printf("Bail out! " __VA_ARGS__), puts(""), exit(1)))

enum { RANKS_MAX = 64, SPLITS_MAX = 64, RECEIVES_MAX = 4096 };

extern struct recording {
  struct script *scripts;
  uint32_t rank; /* that makes the calls */
  const struct pen_vm *vm;
  bool keeps;  /* in a capture: a step's calls are recorded */
  bool stores; /* an exchange has begun, whose own part is stored */
  unsigned char *arenas[RANKS_MAX];
  struct {
    uint32_t replica;
    const void *at;
  } came[RECEIVES_MAX]; /* what the last group has received of peers */
  uint32_t came_count;
} recording;

static inline const struct pen_rank_memory *memory_of(uint32_t process) {
  return &pen_plan.memory[pen_table_rank(&pen_plan, process)];
}

/* Adds a call to the script of the rank, if it is recorded. */
void mock_device_issue(enum call call, const void *stream, const void *object, uint32_t value,
                       uint32_t message);
/* STORE or LOAD, of slots at that address. */
void mock_device_issue_slots(enum call call, const unsigned char *at, size_t bytes,
                             uint32_t exchange, void *stream);

/* Counts a copy from one process to another, if it is recorded. */
void mock_device_copied(uint32_t from, uint32_t to, uint64_t bytes);

/* An NCCL that has sends, and one that has puts, too. */
extern const struct pen_nccl_calls mock_device_nccl[2];
/* Before and after all ranks have made their communicators, for the first profile. The latter fails
 * the test if they do not match. */
void mock_device_nccl_begin(void), mock_device_nccl_check(void);

#endif
