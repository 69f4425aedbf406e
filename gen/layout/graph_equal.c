/* graph_equal.c: stages whose layout is the same. */
#include "gen/layout/graph_equal.h"
#include <string.h>
#include "gen/layout/buffer_intervals.h"

static bool lists_alike(const struct pen_op_list *a, const struct pen_op_list *b) {
  if (a->count != b->count) return false;
  for (size_t i = 0; i < a->count; i++)
    if (a->op[i].kind != b->op[i].kind || a->op[i].workspace != b->op[i].workspace ||
        memcmp(a->op[i].operand, b->op[i].operand, sizeof a->op[i].operand))
      return false;
  return true;
}

bool pen_graphs_equal(const struct pen_partition *partition, const struct pen_graph *a,
                      const struct pen_graph *b) {
  if (a->value_count != b->value_count || a->input != b->input || a->output != b->output ||
      a->training != b->training ||
      pen_comes_by_message(partition, a, false) != pen_comes_by_message(partition, b, false) ||
      pen_comes_by_message(partition, a, true) != pen_comes_by_message(partition, b, true) ||
      a->output_gradient != b->output_gradient || a->input_gradient != b->input_gradient)
    return false;
  for (size_t v = 0; v < a->value_count; v++) {
    const struct pen_value *x = &a->value[v], *y = &b->value[v];
    bool parts = v == 0 || !strcmp(x->prefix, x[-1].prefix) == !strcmp(y->prefix, y[-1].prefix);
    parts = parts && x->block - pen_first_block(a) == y->block - pen_first_block(b);
    if (x->bytes != y->bytes || x->base != y->base || x->storage != y->storage ||
        x->within != y->within || x->role != y->role || !parts)
      return false;
  }
  for (size_t p = 0; p < PEN_PROGRAMS; p++)
    if (!lists_alike(&a->program[p], &b->program[p])) return false;
  return true;
}
