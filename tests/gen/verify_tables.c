/* verify_tables.c: parsed signatures of ops.def; finished plans with changed ops, tensors, weights
 * or stages: each is rejected with its own message. */
#include "tests/support/broken.h"

/* ---- defects of ops and tensors ---- */

static bool wrong_output(
    struct broken_plan *p) { /* another tensor that the stage has already written, or a new one */
  struct pen_op *op = some_op(p);
  if (!op) return false;
  const struct pen_signature *signature = pen_signature_of(op->kind);
  uint32_t other = (uint32_t)draw(p->seed, p->tables->tensor_count),
           *operand = &op->operand[signature->input_count];
  const struct pen_tensor *is = &p->tables->tensors[*operand], *wanted = &p->tables->tensors[other];
  if (other == *operand || is->base == PEN_BASE_PERSISTENT || is->base == PEN_BASE_LOSS ||
      wanted->bytes != is->bytes || wanted->dtype != is->dtype ||
      wanted->base == PEN_BASE_PERSISTENT)
    return false;
  *operand = other;
  return true;
}
static bool later_input(
    struct broken_plan *p) { /* reads what only a later op of the program makes */
  const struct pen_program *program = &p->tables->programs[draw(p->seed, p->tables->program_count)];
  if (program->op_count < 2) return false;
  uint32_t early = (uint32_t)draw(p->seed, program->op_count - 1),
           late = early + 1 + (uint32_t)draw(p->seed, program->op_count - early - 1);
  struct pen_op *op = ops_of(p) + program->first_op + early,
                *later = ops_of(p) + program->first_op + late;
  uint32_t made = later->operand[pen_signature_of(later->kind)->input_count];
  for (int k = 0; k < pen_signature_of(op->kind)->input_count; k++) {
    if (op->operand[k] == PEN_NONE ||
        p->tables->tensors[made].bytes != p->tables->tensors[op->operand[k]].bytes)
      continue;
    if (p->tables->tensors[made].base != PEN_BASE_SCRATCH) continue;
    op->operand[k] = made;
    return true;
  }
  return false;
}
static bool missing_operand(struct broken_plan *p) {
  struct pen_op *op = some_op(p);
  if (!op) return false;
  const struct pen_signature *signature = pen_signature_of(op->kind);
  int k = (int)draw(p->seed, signature->operand_count);
  if (signature->operand[k].optional) return false;
  op->operand[k] = PEN_NONE;
  return true;
}
static bool extra_operand(struct broken_plan *p) {
  struct pen_op *op = some_op(p);
  if (!op || pen_signature_of(op->kind)->operand_count == PEN_OPERANDS_MAX) return false;
  op->operand[pen_signature_of(op->kind)->operand_count] = 0;
  return true;
}
static bool no_tensor(struct broken_plan *p) {
  struct pen_op *op = some_op(p);
  if (op) op->operand[0] = p->tables->tensor_count;
  return op;
}
static bool wrong_dim(struct broken_plan *p) {
  struct pen_op *op = some_op(p);
  if (op) op->dim[0]++;
  return op;
}
static bool wrong_dtype(struct broken_plan *p) {
  struct pen_op *op = some_op(p);
  if (!op || op->operand[0] == PEN_NONE) return false;
  WRITABLE(struct pen_tensor, &p->tables->tensors[op->operand[0]])->dtype ^= 1;
  return true;
}
static bool wrong_dtype_of_op(struct broken_plan *p) {
  struct pen_op *op = some_op(p);
  if (op) op->dtype = draw(p->seed, 4) ? op->dtype ^ 1 : (uint8_t)draw(p->seed, 2) + PEN_I32;
  return op;
}
static bool wrong_kind_of_op(struct broken_plan *p) {
  struct pen_op *op = some_op(p);
  if (op) op->kind = PEN_OP_COUNT;
  return op;
}
static bool small_workspace(struct broken_plan *p) {
  for (uint32_t op = 0; op < p->tables->op_count; op++)
    if (p->tables->ops[op].workspace != PEN_NONE) {
      ops_of(p)[op].workspace = draw(p->seed, 2) ? PEN_NONE : ops_of(p)[op].operand[0];
      return true;
    }
  return false;
}
static bool swapped_gradients(
    struct broken_plan *p) { /* two weights' gradients: one gets both, the other none */
  uint32_t first = PEN_NONE;
  for (uint32_t op = 0; op < p->tables->op_count; op++) {
    struct pen_op *at = ops_of(p) + op;
    if (at->kind != PEN_OP_LINEAR_DW) continue;
    if (first == PEN_NONE) first = at->operand[2];
    if (first == at->operand[2] ||
        p->tables->tensors[first].bytes != p->tables->tensors[at->operand[2]].bytes)
      continue;
    at->operand[2] = first;
    return true;
  }
  return false;
}
static bool dropped_op(struct broken_plan *p) { /* the last, which adds to a gradient */
  for (unsigned tries = 0; tries < 50; tries++) {
    struct pen_program *program =
        WRITABLE(struct pen_program, &p->tables->programs[draw(p->seed, p->tables->program_count)]);
    if (program->op_count == 0) continue;
    const struct pen_op *op = ops_of(p) + program->first_op + program->op_count - 1;
    if (!pen_signature_of(op->kind)->operand[pen_signature_of(op->kind)->input_count].accumulates)
      continue;
    program->op_count--;
    return true;
  }
  return false;
}
static bool written_weight(struct broken_plan *p) {
  for (uint32_t op = 0; op < p->tables->op_count; op++) {
    struct pen_op *at = ops_of(p) + op;
    if (at->kind != PEN_OP_LINEAR) continue;
    for (uint32_t tensor = 0; tensor < p->tables->tensor_count; tensor++)
      if (p->tables->tensors[tensor].base == PEN_BASE_PERSISTENT &&
          p->tables->tensors[tensor].bytes == p->tables->tensors[at->operand[3]].bytes &&
          tensor != at->operand[1] && !strchr(p->tables->tensors[tensor].name, '\'')) {
        at->operand[3] = tensor;
        return true;
      }
  }
  return false;
}
static bool ops_beyond(struct broken_plan *p) {
  struct pen_program *program =
      WRITABLE(struct pen_program, &p->tables->programs[draw(p->seed, p->tables->program_count)]);
  program->op_count = p->tables->op_count + 1;
  return true;
}

static bool runs_too_much_again(
    struct broken_plan *p) { /* more of F than the program has ops, or any in what is no backward */
  struct pen_program *program =
      WRITABLE(struct pen_program, &p->tables->programs[draw(p->seed, p->tables->program_count)]);
  program->recompute_op_count =
      program->kind == PEN_I || program->kind == PEN_B ? program->op_count + 1 : 1;
  return true;
}

/* ---- defects of stages and weights ---- */

static bool shared_weight(struct broken_plan *p) {
  uint32_t index = (uint32_t)draw(p->seed, p->plan->weight_count);
  struct pen_weight *weight = WRITABLE(struct pen_weight, &p->plan->weights[index]);
  weight->exp_avg_offset = weight->exp_avg_sq_offset;
  return weight->exp_avg_offset != UINT64_MAX; /* without training there are no moments */
}
static bool moved_weight(struct broken_plan *p) {
  struct pen_weight *weight =
      WRITABLE(struct pen_weight, &p->plan->weights[draw(p->seed, p->plan->weight_count)]);
  weight->value_offset += 64;
  return true;
}
/* Some weight that has a bf16 copy; null: none. */
static struct pen_weight *copied_weight(struct broken_plan *p) {
  struct pen_weight *weight =
      WRITABLE(struct pen_weight, &p->plan->weights[draw(p->seed, p->plan->weight_count)]);
  return weight->bf16_offset == UINT64_MAX ? NULL : weight;
}
static bool moved_copy(struct broken_plan *p) {
  struct pen_weight *weight = copied_weight(p);
  if (weight) weight->bf16_offset += 64;
  return weight;
}
static bool copy_on_weight(struct broken_plan *p) {
  struct pen_weight *weight = copied_weight(p);
  if (weight) weight->bf16_offset = weight->value_offset;
  return weight;
}
static bool swapped_copies(struct broken_plan *p) {
  struct pen_weight *weight = copied_weight(p), *other = copied_weight(p);
  if (!weight || !other || weight == other || weight->rank != other->rank) return false;
  uint64_t offset = weight->bf16_offset;
  weight->bf16_offset = other->bf16_offset;
  other->bf16_offset = offset;
  return true;
}
static bool wrong_stage(struct broken_plan *p) {
  struct pen_stage *stage =
      WRITABLE(struct pen_stage, &p->profile->stages[1 + draw(p->seed, p->plan->stage_count - 1)]);
  stage->input = (stage->input + 1) % p->profile->ranks[stage->rank].tensor_count;
  return true;
}
static bool no_constant(struct broken_plan *p) {
  if (p->tables->start_op_count == 0) return false;
  p->tables->start_op_count = 0;
  return true;
}

static const struct defect defects[] = {
    {"wrong output",
     wrong_output,
     {"a second time", "nothing has written", "nothing in this program", "hold",
      "in the same bytes", "by message", "overlaps it", "overwritten", "outside the"}},
    {"input made later", later_input, {"nothing in this program has written", "overlaps it"}},
    {"missing operand", missing_operand, {"is missing"}},
    {"extra operand", extra_operand, {"more operands than its signature"}},
    {"no such tensor", no_tensor, {"is tensor"}},
    {"wrong dim", wrong_dim, {"bytes, but"}},
    {"wrong dtype",
     wrong_dtype,
     {"is i32, but", "is f32, but", "is f64, but", "is bf16, but", "bytes of"}},
    {"op of another dtype",
     wrong_dtype_of_op,
     {"is f32, but", "is bf16, but", "it cannot be of dtype"}},
    {"no such op", wrong_kind_of_op, {"there is no kind"}},
    {"small workspace", small_workspace, {"its workspace has fewer"}},
    {"gradient added to another", swapped_gradients, {"twice for microbatch", "lacks microbatch"}},
    {"gradient not added", dropped_op, {"lacks microbatch"}},
    {"weight written", written_weight, {"which only UPDATE may", "is bf16, but"}},
    {"ops beyond the table", ops_beyond, {"beyond the table"}},
    {"runs too much again", runs_too_much_again, {"it cannot recompute"}},
    {"weights overlap", shared_weight, {"overlaps"}},
    {"weight moved",
     moved_weight,
     {"no weight, gradient or constant", "overlaps", "the head reads"}},
    {"copy moved",
     moved_copy,
     {"no weight, gradient or constant", "overlaps", "the head reads", "is at the address of",
      "outside"}},
    {"copy on its weight",
     copy_on_weight,
     {"no weight, gradient or constant", "overlaps", "the head reads"}},
    {"copies swapped",
     swapped_copies,
     {"is at the address of the copy", "overlaps", "the head reads"}},
    {"wrong stage tensor", wrong_stage, {"counts from", "bytes of"}},
    {"no constant", no_constant, {"no weight, gradient or constant"}},
};

static void defects_are_rejected(void **state) {
  (void)state;
  reject_all(defects, sizeof defects / sizeof defects[0], 16180339);
}

static void signatures_parse(void **state) {
  (void)state;
  struct pen_signature signature;
  for (int kind = 0; kind < PEN_OP_COUNT; kind++)
    assert_true(pen_signature_of(kind)->operand_count > 0 || pen_signature_of(kind)->is_runtime);
  const struct pen_signature *dx = pen_signature_of(PEN_OP_LINEAR_DX);
  int64_t dim[PEN_DIMS_MAX] = {2, 3, 5};
  assert_int_equal(pen_signature_operand(dx, "dx"), 3);
  assert_int_equal(dx->operand[3].alias, 2);
  assert_true(dx->operand[2].optional && dx->operand[3].output && !dx->operand[2].output);
  assert_int_equal(pen_operand_bytes(&dx->operand[1], PEN_F32, dim), 3 * 5 * 4);
  assert_true(pen_signature_flops(dx, dim) == 2.0 * 2 * 3 * 5);
  int64_t huge[PEN_DIMS_MAX] = {INT64_MAX, INT64_MAX, INT64_MAX};
  assert_true(pen_operand_bytes(&dx->operand[1], PEN_F32, huge) == UINT64_MAX);
  assert_true(pen_signature_of(PEN_OP_LINEAR_DW)->operand[2].accumulates);
  assert_int_equal(pen_signature_of(PEN_OP_CROSS_ENTROPY)->operand[3].dtype, PEN_F64);
  static const char *const bad[] = {"x[rows] y[rows]",        "x -> y[rows]",
                                    "x[row] -> y[rows]",      "x[rows] -> x[rows]",
                                    "x[rows]:f31 -> y[rows]", "x[rows] -> y[rows]@z",
                                    "x[rows]@y -> y[rows]",   "x[rows -> y[rows]",
                                    "x[rows]? -> y[rows]",    "x[rows]"};
  for (size_t index = 0; index < sizeof bad / sizeof bad[0]; index++)
    if (!pen_signature_parse(&signature, "rows", "", bad[index]))
      fail_msg("\"%s\" parses", bad[index]);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(signatures_parse),
      cmocka_unit_test(defects_are_rejected),
  };
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  pen_free_all();
  return failed != 0;
}
