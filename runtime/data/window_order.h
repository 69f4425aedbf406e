/* window_order.h: which window of its data a run reads at each position of its cursor: in the order
 * of the file, or shuffled (train --shuffle).
 *
 * A position p of n windows is place p % n of epoch p / n. Shuffled, the place goes through a keyed
 * permutation of the numbers below n, another one for each epoch: a Feistel network of eight rounds
 * (Luby and Rackoff 1988) on the numbers below the least power of four that is not below n. A
 * number from n on is permuted again until it is below n (cycle walking: Black and Rogaway 2002),
 * on average at most four times in all. The round function is Philox4x32-10 (Salmon et al. 2011),
 * the generator of the initial weights, on (half, round, epoch), under the key of the seed.
 *
 * Windows that stay together, as those of pairs, are one number.
 *
 * So the order depends on seed, epoch and n alone. It needs no table, which would be as long as the
 * data, and no state: any rank finds the window of any position in the same time, and a cursor says
 * all of where a run is. A permutation reads each window once an epoch. A linear one (a p + b mod
 * n) would do so too, but keeps windows at equal distances; four rounds suffice for large n, more
 * even out small ones. */
#ifndef PEN_WINDOW_ORDER_H
#define PEN_WINDOW_ORDER_H

#include <stdbool.h>
#include <stdint.h>

struct pen_window_order {
  bool shuffled; /* false: the order of the file, and no seed */
  uint64_t seed;
  uint32_t key[2];
  uint32_t group; /* consecutive windows that stay together, of which there is a multiple; 0: 1 */
};

/* The order of `--shuffle` with that seed; in a blend each file has its own: `file` is its index.
 */
struct pen_window_order pen_window_order_shuffled(uint64_t seed, uint32_t file);

/* The window at a position, of `window_count` > 0 windows. */
uint64_t pen_window_at(const struct pen_window_order *order, uint64_t position,
                       uint64_t window_count);

#endif
