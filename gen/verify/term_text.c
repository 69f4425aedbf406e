/* term_text.c: values of a stage's terms in words (see term_text.h). */
#include "gen/verify/term_text.h"

#include <string.h>

#include "gen/base/arena.h"
#include "gen/model/op_signature.h"
#include "runtime/plan/plan.h"

const char *pen_term_text(const struct pen_plan *plan, const struct pen_terms *terms,
                          uint32_t value) {
  if (!value) return "nothing";
  const struct pen_term *term = &terms->term[pen_term_of_value(value)];
  switch (term->kind) {
    case PEN_TERM_WEIGHT: return plan->weights[term->dim[0]].name;
    case PEN_TERM_INPUT: return "the stage's input";
    case PEN_TERM_OUTPUT_GRADIENT: return "the gradient of the stage's output";
    default: break;
  }
  const struct pen_signature *signature = pen_signature_of((int)term->kind);
  return pen_text("%s of %s", signature->operand[pen_operand_of_value(value)].name,
                  signature->kind);
}

const char *pen_term_difference(const struct pen_plan *plan, const struct pen_terms *terms,
                                uint32_t wanted, uint32_t found) {
  const char *where = "it";
  while (wanted && found) {
    const struct pen_term *w = &terms->term[pen_term_of_value(wanted)],
                          *f = &terms->term[pen_term_of_value(found)];
    if (w->kind != f->kind || pen_operand_of_value(wanted) != pen_operand_of_value(found)) break;
    if (w->kind >= PEN_OP_COUNT) break;
    const struct pen_signature *signature = pen_signature_of((int)w->kind);
    if (w->dtype != f->dtype || memcmp(w->dim, f->dim, sizeof w->dim) != 0 ||
        memcmp(w->real, f->real, sizeof w->real) != 0)
      return pen_text("%s is %s with other numbers", where, signature->kind);
    int k = 0;
    while (k < signature->input_count && w->input[k] == f->input[k]) k++;
    if (k == signature->input_count) break; /* equal */
    where = pen_text("%s of %s", signature->operand[k].name, signature->kind);
    wanted = w->input[k];
    found = f->input[k];
  }
  return pen_text("%s is %s, not %s", where, pen_term_text(plan, terms, found),
                  pen_term_text(plan, terms, wanted));
}
