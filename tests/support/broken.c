/* broken.c: changes copies of finished plans and checks that the verifier rejects each. */
#include "tests/support/broken.h"

const struct plan_shape plan_shapes[PLAN_SHAPES] = {
    {"mlp", "gpipe", 2, 1, 4, ""},
    {"mlp", "1f1b", 3, 1, 6, ""},
    {"llama", "1f1b", 2, 1, 8, "warmup = 2; /* no clip */"},
    {"qwen2", "1f1b", 2, 1, 4, "zero_bubble = true;"},
    {"mlp", "1f1b", 2, 2, 8, "/* no clip */"},
    {"llama", "zero_bubble_v", 3, 2, 6, ""},
    {"mlp", "zero_bubble_v", 4, 2, 8, "/* no clip */"},
    {"mlp", "looped_bfs", 2, 3, 4, ""},
    {"llama", "dual_pipe_v", 2, 2, 6, ""},
    {"mlp", "inference", 3, 2, 4, ""},
    {"llama", "1f1b", 3, 1, 6, "/* tied */"},
    {"llama", "1f1b", 2, 2, 4, "zero_bubble = true; /* tied */ /* no clip */"},
    {"qwen2", "zero_bubble_v", 2, 2, 4, "/* tied */"},
    {"llama", "1f1b", 2, 1, 4, "/* bf16 */"},
    {"mlp", "zero_bubble_v", 2, 2, 4, "/* bf16 */ /* no clip */"},
    {"llama", "1f1b", 2, 1, 4, "/* bf16 */ /* tied */"},
    {"llama", "zero_bubble_v", 2, 2, 4, "/* bf16 */ /* tied */"},
    {"llama", "zero_bubble_v", 2, 2, 4, "}; data_parallel = { replicas = 2;"},
    {"mlp", "1f1b", 3, 2, 6, "/* no clip */ }; data_parallel = { replicas = 3;"},
    {"llama", "zero_bubble_v", 2, 2, 4,
     "}; data_parallel = { replicas = 2; shard = \"optimizer\";"},
    {"llama", "1f1b", 2, 1, 4,
     "/* bf16 */ /* tied */ }; data_parallel = { replicas = 3; shard = \"optimizer\";"},
    {"llama", "zero_bubble_v", 2, 2, 4,
     "}; data_parallel = { replicas = 2; shard = \"weights\"; reshard = \"use\";"},
    {"llama", "1f1b", 2, 1, 4,
     "/* bf16 */ /* tied */ }; data_parallel = { replicas = 2; shard = \"weights\";"},
};
_Static_assert(sizeof plan_shapes / sizeof *plan_shapes == PLAN_SHAPES, "PLAN_SHAPES");

struct pen_plan *shape_plan(size_t which) {
  return make_plan(topology_text(plan_shapes[which].family, plan_shapes[which].schedule,
                                 plan_shapes[which].ranks, plan_shapes[which].stages,
                                 plan_shapes[which].microbatches, plan_shapes[which].more));
}

static struct broken_plan some_part(struct pen_plan *plan, uint64_t *seed) {
  struct broken_plan p = {.plan = plan, .seed = seed};
  p.profile =
      WRITABLE(struct pen_profile, &plan->profiles[draw(seed, 4) == 0 && plan->profile_count > 1]);
  p.rank = (uint32_t)draw(seed, plan->rank_count);
  p.tables = WRITABLE(struct pen_rank_program, &p.profile->ranks[p.rank]);
  p.action = WRITABLE(struct pen_action, p.tables->actions);
  return p;
}

uint32_t some_row(struct broken_plan *p, int first, int last) {
  for (unsigned tries = 0; tries < 1000; tries++) {
    uint32_t row = (uint32_t)draw(p->seed, p->tables->action_count);
    if (p->action[row].kind >= first && p->action[row].kind <= last) return row;
  }
  return PEN_NONE;
}

uint32_t find_row(const struct broken_plan *p, int kind, uint32_t stage, uint32_t microbatch) {
  for (uint32_t row = 0; row < p->tables->action_count; row++)
    if (p->action[row].kind == kind && p->action[row].stage == stage &&
        p->action[row].microbatch == microbatch)
      return row;
  return PEN_NONE;
}

struct pen_message *some_message(struct broken_plan *p) {
  if (p->profile->message_count == 0) return NULL;
  return WRITABLE(struct pen_message,
                  &p->profile->messages[draw(p->seed, p->profile->message_count)]);
}

struct pen_op *ops_of(const struct broken_plan *p) {
  return WRITABLE(struct pen_op, p->tables->ops);
}

struct pen_op *some_op(struct broken_plan *p) {
  const struct pen_program *program = &p->tables->programs[draw(p->seed, p->tables->program_count)];
  return program->op_count ? ops_of(p) + program->first_op + draw(p->seed, program->op_count)
                           : NULL;
}

void set_base(struct broken_plan *p, uint32_t row, int base, uint64_t offset) {
  struct pen_frame *frames = pen_new(p->tables->frame_count + 1, sizeof *frames);
  memcpy(frames, p->tables->frames, p->tables->frame_count * sizeof *frames);
  frames[p->tables->frame_count] = frames[p->action[row].frame];
  frames[p->tables->frame_count].base[base] = offset;
  p->tables->frames = frames;
  p->action[row].frame = p->tables->frame_count++;
}

uint64_t base_of(const struct broken_plan *p, uint32_t row, int base) {
  return p->tables->frames[p->action[row].frame].base[base];
}

void set_all_bases(struct broken_plan *p, uint32_t stage, uint32_t microbatch, int base,
                   uint64_t offset) {
  for (int kind = PEN_F; kind <= PEN_W; kind++) {
    uint32_t row = find_row(p, kind, stage, microbatch);
    if (row != PEN_NONE) set_base(p, row, base, offset);
  }
}

bool uses_base(const struct broken_plan *p, uint32_t row, int base) {
  const struct pen_program *program = &p->tables->programs[p->action[row].program];
  for (uint32_t op = program->first_op; op < program->first_op + program->op_count; op++)
    for (int k = 0; k < PEN_OPERANDS_MAX; k++) {
      uint32_t tensor = p->tables->ops[op].operand[k];
      if (tensor != PEN_NONE && p->tables->tensors[tensor].base == base) return true;
    }
  return false;
}
/* ---- the runner ---- */

void *shared_memory(size_t bytes) {
  void *shared = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  assert_true(shared != MAP_FAILED);
  return shared;
}

bool in_child(void) {
  pid_t child = fork();
  assert_true(child >= 0);
  return child == 0;
}

int await_child(void) {
  int status = -1;
  assert_true(wait(&status) > 0);
  return status;
}
/* The result of a defect. */
struct verdict {
  uint64_t seed;
  bool applied, accepted;
  struct pen_problem problem;
};

static void break_plan(const struct defect *defect, struct pen_plan *plan,
                       struct verdict *verdict) {
  struct broken_plan part = some_part(plan, &verdict->seed);
  verdict->applied = defect->apply(&part);
  verdict->accepted = verdict->applied && pen_verify(plan, &verdict->problem);
}

static bool says_one_of(const char *reason, const char *const words[REASONS_MAX]) {
  for (size_t n = 0; n < REASONS_MAX && words[n]; n++)
    if (strstr(reason, words[n])) return true;
  return false;
}

void reject_all(const struct defect *defects, size_t count, uint64_t seed) {
  const char *given = getenv("PEN_BREAK_ROUNDS");
  unsigned total = 0, rounds = given ? (unsigned)strtoul(given, NULL, 10) : 4;
  struct verdict *verdict = shared_memory(sizeof *verdict);
  struct pen_plan *plan[PLAN_SHAPES];
  for (size_t shape = 0; shape < PLAN_SHAPES; shape++) plan[shape] = shape_plan(shape);
  for (size_t which = 0; which < count; which++) {
    unsigned applied = 0;
    for (unsigned round = 0; round < rounds * PLAN_SHAPES; round++) {
      *verdict = (struct verdict){.seed = seed, .problem = {.rank = PEN_NONE, .action = PEN_NONE}};
      if (in_child()) {
        break_plan(&defects[which], plan[round % PLAN_SHAPES], verdict);
        _exit(0);
      }
      int status = await_child();
      bool right = !verdict->applied || (!verdict->accepted && says_one_of(verdict->problem.reason,
                                                                           defects[which].reasons));
      if (status != 0 || !right)
        fail_msg("%s, seed %lu, %s %s: %s, status %#x", defects[which].name, (unsigned long)seed,
                 plan_shapes[round % PLAN_SHAPES].family, plan_shapes[round % PLAN_SHAPES].schedule,
                 verdict->accepted ? "accepted" : verdict->problem.reason, (unsigned)status);
      applied += verdict->applied;
      seed = verdict->seed;
    }
    if (applied == 0) fail_msg("%s was never applied", defects[which].name);
    total += applied;
  }
  pen_free_all();
  print_message("# %u defects of %u kinds rejected\n", total, (unsigned)count);
}
