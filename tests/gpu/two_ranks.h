/* two_ranks.h: tests of device_ops of which each runs two ranks in one process. */
#ifndef PEN_TESTS_GPU_TWO_RANKS_H
#define PEN_TESTS_GPU_TWO_RANKS_H

/* The steps end within the patience and have the right values: with a send stream beside the
 * compute stream and a progress counter for each, as PEN_GRAPH=marked; with one stream and no
 * counter, as PEN_GRAPH=serial. */
void two_ranks_in_one_process_marked(void **state);
void two_ranks_in_one_process_serial(void **state);
/* An order of actions that deadlocks is noticed, and the ranks are released. */
void two_ranks_that_wait_for_each_other(void **state);

#endif
