/* list_schedule.h: list scheduling: a whole order from a few parameters. */
#ifndef PEN_LIST_SCHEDULE_H
#define PEN_LIST_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

#include "gen/search/problem.h"

/* How a list schedule decides. */
struct pen_search_rule {
  double flight, slope; /* rank r has at most floor(flight - slope * r) forwards of its stages
                           without their I, but one of each */
  double patience;      /* a rank rather runs W than wait longer than this share of the W */
  bool backward_first;  /* I before F when both are there */
  bool deep_first;      /* of several stages the last rather than the first */
  bool whole; /* every backward that may be whole is; else only those that have no room for I and W
               */
};

struct pen_search_builder *pen_search_builder(const struct pen_search_problem *search);

/* Fills list [rank][count] with cells. False: the limit leaves no way. */
bool pen_search_build(struct pen_search_builder *builder, const struct pen_search_rule *rule,
                      uint32_t *list);

#endif
