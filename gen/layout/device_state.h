/* device_state.h: the device control block of an arena, and the staged inputs. */
#ifndef PEN_DEVICE_STATE_H
#define PEN_DEVICE_STATE_H

#include "gen/layout/internal.h"

/* Places the device control block of a rank's arena at `at`, with the rank's staged inputs, and
 * counts its pinned memory; returns the end of the block. `l` is [profile_count]. */
uint64_t pen_device_control_place(const struct pen_layout_state *l, size_t profile_count,
                                  uint32_t rank, uint64_t at, struct pen_staged_inputs *inputs);

/* On the CPU: places the shard staging at `at`, if peers send shards; returns its end. */
uint64_t pen_shard_staging_place(const struct pen_layout_state *l, size_t profile_count,
                                 uint32_t rank, uint64_t at);

#endif
