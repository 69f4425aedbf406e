/* list_schedule.h: list scheduling: builds a complete order from a few parameters. */
#ifndef PEN_LIST_SCHEDULE_H
#define PEN_LIST_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

#include "gen/search/problem.h"

/* The parameters of a list schedule. */
struct pen_search_rule {
  double flight, slope; /* rank r has at most floor(flight - slope * r) forwards without their I,
                           but at least one */
  double patience;      /* a rank runs W rather than wait longer than this fraction of its cost */
  bool backward_first;  /* I before F if both can start */
  bool deep_first;      /* the last rather than the first of several stages */
  bool whole; /* use B for every backward that may be whole, not only if there is no memory for I
                 and W */
  const double *flights; /* [rank] the most forwards without their I, instead of `flight` and
                            `slope`; NULL: none */
  const double *delay;   /* [F, I][stage] counts as if the action started that much later, where the
                            actions of a rank are compared; NULL: 0 */
};

struct pen_search_builder *pen_search_builder(const struct pen_search_problem *search);

/* Fills list [rank][count] with cells. False: no order within the limit. */
bool pen_search_build(struct pen_search_builder *builder, const struct pen_search_rule *rule,
                      uint32_t *list);

/* The work of one build and of timing its order, in actions timed. */
uint64_t pen_search_build_work(const struct pen_search_problem *search);

#endif
