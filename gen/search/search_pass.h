/* search_pass.h: schedule = "search": searches for an order until its layout keeps within the
 * memory limit. */
#ifndef PEN_SEARCH_PASS_H
#define PEN_SEARCH_PASS_H

#include "gen/layout/draft.h"
#include "gen/search/search.h"

struct pen_search_input {
  const struct pen_draft *draft;
  struct pen_search_effort effort;
  const struct pen_search *known; /* an order that keeps within the limit; NULL: none */
};

struct pen_search_result {
  const struct pen_search *search;
  struct pen_placed_order order; /* the order found */
};

/* Fails (78) when no order keeps within the limit; where one is known it is the result then. */
struct pen_search_result pen_search_pass(const struct pen_search_input *input);

#endif
