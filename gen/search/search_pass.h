/* search_pass.h: schedule = "search": searches for an order until its layout keeps within the
 * memory limit. */
#ifndef PEN_SEARCH_PASS_H
#define PEN_SEARCH_PASS_H

#include "gen/search/search.h"
#include "gen/timing/cost_model.h"

struct pen_search_input {
  const struct pen_topology *topology;
  const struct pen_partition *partition;
  const struct pen_training *training;
  struct pen_graph *const *own;  /* [stage] the graphs of training */
  struct pen_graph *const *eval; /* [stage] */
  const struct pen_cost_model *cost;
  struct pen_search_effort effort;
  const struct pen_search *known; /* an order that keeps within the limit; NULL: none */
};

/* `search->order` is the order found; topology and partition are the input's with its placement. */
struct pen_search_result {
  const struct pen_search *search;
  const struct pen_topology *topology;
  const struct pen_partition *partition;
};

/* Fails (78) when no order keeps within the limit; where one is known it is the result then. */
struct pen_search_result pen_search_pass(const struct pen_search_input *input);

#endif
