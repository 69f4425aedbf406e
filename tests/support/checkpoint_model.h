/* checkpoint_model.h: what tests of files and checkpoints share: a small model over any number of
 * ranks, reproducible values, a working folder, and a check of how pen_fail() ends a process. This
 * file computes the headers and offsets of files, not the runtime. */
#ifndef PEN_CHECKPOINT_MODEL_H
#define PEN_CHECKPOINT_MODEL_H

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/base/check.h"
#include "runtime/storage/checkpoint_save.h"
#include "runtime/storage/checkpoint_tensors.h"
#include "runtime/storage/loading.h"
#include "runtime/plan/plan.h"

enum { MODEL_WEIGHTS = 6, MODEL_RANKS_MAX = 4, MODEL_HEADER_BYTES = 4096 };

struct checkpoint_model {
  struct pen_plan plan;
  struct pen_weight weights[MODEL_WEIGHTS];
  struct pen_rank_memory memory[MODEL_RANKS_MAX];
  char model_header[MODEL_HEADER_BYTES], optimizer_header[MODEL_HEADER_BYTES];
};

/* Makes the weight the whole of a tensor of its name: sets the columns of splits. */
void model_whole(struct pen_weight *weight);

/* Sets the headers and the file offsets of the weights. */
void model_files(struct checkpoint_model *model);

/* The model over `ranks` ranks. `turn` rotates the weights among them: another topology of the same
 * model. */
void model_make(struct checkpoint_model *model, uint32_t ranks, uint32_t turn);

/* Element `index` of a part of a weight in state `state`: finite, and unique. */
float model_value(uint64_t state, uint32_t weight, int part, uint64_t index);

/* Fills an arena on the CPU as a process of that rank does, by function(to, argument). */
#define MODEL_LOAD(plan, rank, arena, function, argument)                                    \
  do {                                                                                       \
    const struct pen_loading to = pen_loading_open((plan), (rank), &pen_cpu, NULL, (arena)); \
    function(&to, (argument));                                                               \
    pen_loading_close(&to);                                                                  \
  } while (0)

/* An arena of the rank, every byte 0xee. The caller frees it. */
unsigned char *model_arena(const struct checkpoint_model *model, uint32_t rank);

/* Writes the values of state `state` into the rank's arena. */
void model_fill(const struct checkpoint_model *model, uint32_t rank, unsigned char *arena,
                uint64_t state);

/* The number of bytes in which an arena differs from one filled by model_fill(), receive region and
 * gradients included. */
uint64_t model_differences(const struct checkpoint_model *model, uint32_t rank,
                           const unsigned char *arena, uint64_t state);

/* The three parts of a save. A failure ends the process. */
void model_begin(const char *dir, const struct pen_plan *plan, uint64_t step);

void model_write(const struct pen_plan *plan, uint32_t rank, const unsigned char *arena,
                 const char *dir, uint64_t step, unsigned char (*digests)[PEN_DIGEST_BYTES]);

void model_finish(const struct pen_plan *plan, const char *dir, uint64_t step, uint64_t cursor,
                  unsigned char (*digests)[PEN_DIGEST_BYTES]);

/* A save of state `values` as the ranks of a run make it, here one after the other. */
void model_save(const struct checkpoint_model *from, const char *dir, uint64_t step,
                uint64_t cursor, uint64_t values);

/* The working folder of a test. */
extern char model_folder[PATH_MAX];

/* Create and enter a working folder; leave and remove it. For cmocka. */
int model_setup(void **state);

/* model_make() over three ranks, and model_setup(). */
int model_setup_made(struct checkpoint_model *model);

int model_teardown(void **state);

extern char said[4096]; /* what the last model_run() wrote on standard error */

/* Runs work(argument) in a child; returns its exit status, or 128 + the signal that ended it. */
int model_run(void (*work)(void *), void *argument);

/* work(argument) must end with that status and one line that contains all given texts; the list
 * ends with NULL. */
void model_refused(int status, void (*work)(void *), void *argument, ...);

void file_write(const char *path, const void *bytes, size_t count);

/* The caller frees it. */
unsigned char *file_read(const char *path, size_t *count);

/* Both files must hold the same bytes. */
void file_same(const char *path, const char *other);

#endif
