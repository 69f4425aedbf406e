/* flip_bits.c: flips one bit a rank in each step that is audited, and checks that the audit finds
 * it. It is linked into a binary with
 * -Wl,--wrap=pen_audit_call,--wrap=pen_audit_update_run,--wrap=pen_audit_weights_pass_tied,--wrap=pen_audit_report.
 *
 *   FLIP_FILE   where each flip, and then its result, is appended as a line:
 *                 flip PLACE RANK ACTION TENSOR ELEMENT
 *                 found|missed|misnamed PLACE RANK ACTION TENSOR TENSOR-NAMED
 *   FLIP_PLACE  the only place, by name [a random one for each flip]
 *   FLIP_TENSOR a part of the name of the only tensors, for the first four places [all]
 *   FLIP_RANK   the only rank that is audited with a flip, and the first finding ends the run
 *               [all; findings are counted, and the run continues] */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/check.h"
#include "runtime/comm/action_text.h"
#include "runtime/exec/audit.h"
#include "runtime/exec/audit_draw.h"
#include "runtime/exec/audit_report.h"
#include "runtime/exec/operands.h"
#include "runtime/exec/collectives.h"

/* Where a bit is flipped, after it was written. */
enum flip_place {
  WEIGHT,      /* before the action reads it */
  ACTIVATION,  /* the same, saved by an earlier action, or gathered */
  ACCUMULATOR, /* the same, before the action adds to it */
  RECEIVED,    /* the same, passed on by another stage: where it arrived */
  SENT,        /* passed on by another stage, before it leaves its rank */
  WITHIN,      /* made in the action, before another op of it reads it */
  OUTPUT,      /* made by an op of the action */
  DRAWN_PLACES,
  INDEX = DRAWN_PLACES, /* as ACTIVATION, of indices: else left alone, a wrong one may end a rank */
  MOMENT,  /* what UPDATE reads, and how often it has; this and the next also in each step */
  UPDATED, /* what UPDATE writes */
  TIED,    /* a weight for a head on another rank, before it leaves; with FLIP_PLACE alone */
  PLACES
};
static const char *const names[PLACES] = {"weight", "activation", "accumulator", "received",
                                          "sent",   "within",     "output",      "index",
                                          "moment", "updated",    "tied"};

void __real_pen_audit_call(struct pen_vm *vm, const struct pen_action *action);
void __wrap_pen_audit_call(struct pen_vm *vm, const struct pen_action *action);
void __real_pen_audit_update_run(const struct pen_audit_update *update, struct pen_vm *vm,
                                 const struct pen_adamw_tensor *updated);
void __wrap_pen_audit_update_run(const struct pen_audit_update *update, struct pen_vm *vm,
                                 const struct pen_adamw_tensor *updated);
void __real_pen_audit_weights_pass_tied(const struct pen_vm *vm);
void __wrap_pen_audit_weights_pass_tied(const struct pen_vm *vm);
void __real_pen_audit_report(const struct pen_endpoint *endpoint,
                             const struct pen_audit_finding *finding);
void __wrap_pen_audit_report(const struct pen_endpoint *endpoint,
                             const struct pen_audit_finding *finding);

/* ---- numbers ---- */

static uint64_t state;

/* SplitMix64 (Steele, Lea and Flood 2014). */
static uint32_t below(uint64_t count) {
  uint64_t x = state += 0x9e3779b97f4a7c15u;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return (uint32_t)(((x ^ x >> 31) >> 32) * count >> 32);
}

static void seed_for(uint64_t step, uint32_t global) { state = step << 32 | global; }

static const char *setting(const char *name) {
  const char *value = getenv(name);
  return value != NULL && value[0] != '\0' ? value : NULL;
}

static bool is_flipped(uint32_t global) {
  const char *only = setting("FLIP_RANK");
  return only == NULL || (uint32_t)atoi(only) == global;
}

static void put_line(const char *line, size_t bytes) {
  int file = open(getenv("FLIP_FILE"), O_WRONLY | O_APPEND);
  pen_check(file >= 0 && write(file, line, bytes) == (ssize_t)bytes, "FLIP_FILE");
  close(file);
}

/* ---- the flip ---- */

static struct {
  struct pen_vm *vm;
  enum flip_place place;
  const struct pen_tensor *tensor;
  unsigned char *byte;
  uint8_t bit;
  bool found, named;
  char first_found[128]; /* the tensor */
  /* WITHIN and OUTPUT: */
  uint32_t op, operand;
  pen_kernel *kernel;
} flip;

static void do_flip(struct pen_vm *vm, const struct pen_action *action, uint32_t global,
                    const struct pen_tensor *tensor, unsigned char *at) {
  char line[256], name[64];
  const uint32_t byte = below(tensor->bytes);
  flip.tensor = tensor;
  flip.byte = at + byte;
  flip.bit = (uint8_t)(1u << below(8));
  *flip.byte ^= flip.bit;
  int bytes = snprintf(line, sizeof line, "flip %s %u %s %s %u\n", names[flip.place], global,
                       pen_action_name(name, sizeof name, action), tensor->name,
                       byte / pen_dtype_bytes(tensor->dtype));
  (void)vm;
  put_line(line, (size_t)bytes);
}

static void run_flipped(const struct pen_call *call) {
  struct pen_vm *vm = flip.vm;
  const bool apart = call != &vm->ops[flip.op].call;
  const struct pen_tensor *tensor =
      &vm->program->tensors[vm->program->ops[flip.op].operand[flip.operand]];
  if (flip.place == WITHIN && apart) {
    do_flip(vm, vm->audit->action, vm->endpoint->global, tensor, call->operand[flip.operand]);
  } else if (flip.place == WITHIN) {
    *flip.byte ^= flip.bit;
  }
  flip.kernel(call);
  if (flip.place == OUTPUT && !apart) {
    do_flip(vm, vm->audit->action, vm->endpoint->global, tensor, call->operand[flip.operand]);
  }
}

/* Chooses an input, or output, of an op of the action; false: tries found none. */
static bool arm(struct pen_vm *vm, const struct pen_program *program) {
  for (int tries = 0; tries < 1000; tries++) {
    flip.op = program->first_op + below(program->op_count);
    const struct pen_op *op = &vm->program->ops[flip.op];
    const struct pen_operand_count count = pen_operands_of(op->kind);
    flip.operand =
        flip.place == OUTPUT ? count.inputs + below(count.all - count.inputs) : below(count.inputs);
    const uint32_t tensor = op->operand[flip.operand];
    if (!pen_is_runtime_op(op->kind) && tensor != PEN_NONE &&
        vm->program->tensors[tensor].dtype != PEN_I32 && flip.operand < count.all &&
        (flip.place == OUTPUT ||
         (flip.operand < count.inputs && (vm->audit->use[tensor] & PEN_AUDIT_WRITES) != 0))) {
      flip.kernel = vm->ops[flip.op].run;
      vm->ops[flip.op].run = run_flipped;
      return true;
    }
  }
  return false;
}

/* ---- where ---- */

static bool is_passed_on(const struct pen_stage *stage, uint32_t tensor) {
  return tensor == stage->input || tensor == stage->output_gradient;
}

static bool fits(const struct pen_vm *vm, uint32_t tensor) {
  const struct pen_audit_state *audit = vm->audit;
  const char *name = setting("FLIP_TENSOR");
  if (name != NULL && strstr(vm->program->tensors[tensor].name, name) == NULL) return false;
  const bool index = vm->program->tensors[tensor].dtype == PEN_I32,
             reads = (audit->use[tensor] & PEN_AUDIT_READS) != 0 && index == (flip.place == INDEX),
             adds = (audit->use[tensor] & PEN_AUDIT_ACCUMULATES) != 0,
             weight = audit->weight[tensor] != PEN_NONE,
             passed = is_passed_on(&vm->profile->stages[audit->action->stage], tensor);
  switch (flip.place) {
    case WEIGHT: return reads && weight;
    case INDEX:
    case ACTIVATION: return reads && !weight && !passed;
    case RECEIVED: return reads && passed;
    case ACCUMULATOR: return adds && vm->program->tensors[tensor].base == PEN_BASE_PERSISTENT;
    default: return false;
  }
}

/* Flips a bit of a tensor that fits; false: there is none. */
static bool flip_before(struct pen_vm *vm, const struct pen_action *action) {
  uint32_t count = 0, left;
  for (uint32_t t = 0; t < vm->program->tensor_count; t++) count += fits(vm, t);
  if (count == 0) return false;
  left = below(count);
  for (uint32_t t = 0; t < vm->program->tensor_count; t++)
    if (fits(vm, t) && left-- == 0) {
      const struct pen_tensor *tensor = &vm->program->tensors[t];
      do_flip(vm, action, vm->endpoint->global, tensor,
              vm->arena + vm->program->frames[action->frame].base[tensor->base] + tensor->offset);
      return true;
    }
  return false;
}

/* Whether a program reads a tensor. */
static bool reads(const struct pen_rank_program *tables, const struct pen_action *action,
                  uint32_t tensor) {
  const struct pen_program *program = &tables->programs[action->program];
  for (uint32_t i = program->first_op; i < program->first_op + program->op_count; i++)
    for (uint32_t k = 0; k < pen_operands_of(tables->ops[i].kind).inputs; k++)
      if (tensor != PEN_NONE && tables->ops[i].operand[k] == tensor) return true;
  return false;
}

/* The place for a rank in a step, the same for all ranks; of SENT, which way it comes. */
static enum flip_place place_of(const struct pen_vm *vm, uint32_t rank, bool *backward) {
  const uint32_t global = pen_endpoint_process(vm->endpoint, PEN_PIPELINE, rank);
  const struct pen_audit_draw draw = {vm->audit->audit->seed, vm->optimizer_step, global};
  const struct pen_action *action = pen_audit_draw_action(vm->profile, vm->plan, &draw);
  const struct pen_stage *stage = &vm->profile->stages[action->stage];
  const struct pen_rank_program *tables = &vm->profile->ranks[rank];
  const bool input = reads(tables, action, stage->input),
             gradient = reads(tables, action, stage->output_gradient);
  seed_for(vm->optimizer_step, global);
  enum flip_place place = (enum flip_place)below(DRAWN_PLACES);
  for (int p = 0; p < PLACES && setting("FLIP_PLACE") != NULL; p++)
    if (strcmp(names[p], getenv("FLIP_PLACE")) == 0) place = (enum flip_place)p;
  *backward = gradient && (!input || below(2) == 0);
  return place == SENT && !input && !gradient ? OUTPUT : place;
}

/* ---- the calls ---- */

void __wrap_pen_audit_report(const struct pen_endpoint *endpoint,
                             const struct pen_audit_finding *finding) {
  if (setting("FLIP_RANK") != NULL) __real_pen_audit_report(endpoint, finding);
  if (flip.tensor == NULL) { /* SENT, by another rank or stage */
    flip.named = flip.named || (!flip.found && finding->computed == NULL);
  } else if (!flip.found) {
    flip.named = strcmp(finding->tensor->name, flip.tensor->name) == 0;
  }
  if (!flip.found) snprintf(flip.first_found, sizeof flip.first_found, "%s", finding->tensor->name);
  flip.found = true;
}

static void put_result(const struct pen_vm *vm, const struct pen_action *action) {
  char line[384], name[64];
  const char *result = !flip.found ? "missed" : flip.named ? "found" : "misnamed";
  int bytes =
      snprintf(line, sizeof line, "%s %s %u %s %s %s\n", result, names[flip.place],
               vm->endpoint->global, pen_action_name(name, sizeof name, action),
               flip.tensor == NULL ? "-" : flip.tensor->name, flip.found ? flip.first_found : "-");
  put_line(line, (size_t)bytes);
}

/* What persists must not stay wrong; nor what the action passes on, which another rank may audit.
 */
static void undo(const struct pen_vm *vm, const struct pen_action *action) {
  const struct pen_stage *stage = &vm->profile->stages[action->stage];
  const uint32_t index =
      flip.tensor == NULL ? PEN_NONE : (uint32_t)(flip.tensor - vm->program->tensors);
  if (flip.tensor != NULL && (flip.tensor->base == PEN_BASE_PERSISTENT || index == stage->output ||
                              index == stage->input_gradient))
    *flip.byte ^= flip.bit;
}

static void call_audited(struct pen_vm *vm, const struct pen_action *action) {
  const struct pen_program *program = &vm->program->programs[action->program];
  bool backward, armed = false;
  const enum flip_place place = place_of(vm, vm->rank, &backward);
  memset(&flip, 0, sizeof flip);
  flip.vm = vm;
  flip.place = place;
  if (place != SENT && place != WITHIN && place != OUTPUT && !flip_before(vm, action))
    flip.place = OUTPUT;
  if (flip.place == WITHIN || flip.place == OUTPUT) {
    armed = arm(vm, program);
    if (!armed) flip.place = OUTPUT;
    armed = armed || arm(vm, program);
    pen_check(armed, "no operand to flip");
  }
  __real_pen_audit_call(vm, action);
  if (armed) vm->ops[flip.op].run = flip.kernel;
  put_result(vm, action);
  undo(vm, action);
}

/* Flips what an action has made for a reader on the rank of the next (previous) stage. */
static void flip_sent(struct pen_vm *vm, const struct pen_action *action, bool backward) {
  const struct pen_stage *stage = &vm->profile->stages[action->stage];
  const uint32_t index = backward ? stage->input_gradient : stage->output;
  const bool makes =
      backward ? action->kind == PEN_B || action->kind == PEN_I : action->kind == PEN_F;
  bool reader_backward;
  if (!makes || vm->audit->passed[backward][action->stage] != action->microbatch) return;
  const uint32_t rank = stage[backward ? -1 : 1].rank,
                 global = pen_endpoint_process(vm->endpoint, PEN_PIPELINE, rank);
  if (!is_flipped(global) || place_of(vm, rank, &reader_backward) != SENT ||
      reader_backward != backward)
    return;
  const struct pen_tensor *tensor = &vm->program->tensors[index];
  flip.place = SENT;
  do_flip(vm, action, global, tensor,
          vm->arena + vm->program->frames[action->frame].base[tensor->base] + tensor->offset);
}

/* ---- a tied weight ---- */

void __wrap_pen_audit_weights_pass_tied(const struct pen_vm *vm) {
  __real_pen_audit_weights_pass_tied(vm);
  const struct pen_tie *tie = vm->plan->ties;
  const char *only = setting("FLIP_PLACE");
  if (vm->plan->tie_count == 0 || only == NULL || strcmp(only, names[TIED]) != 0) return;
  const struct pen_weight *weight = &vm->plan->weights[tie->weight];
  const uint32_t reader = pen_endpoint_process(vm->endpoint, PEN_PIPELINE, tie->rank);
  if (weight->rank != vm->rank || !is_flipped(reader)) return;
  const struct pen_tensor tensor = {.name = weight->name,
                                    .dtype = tie->dtype,
                                    .bytes = weight->count * pen_dtype_bytes(tie->dtype)};
  seed_for(vm->optimizer_step, reader);
  flip.place = TIED;
  do_flip((struct pen_vm *)vm, vm->action, reader, &tensor,
          vm->arena + (tie->dtype == PEN_BF16 ? weight->bf16_offset : weight->value_offset));
}

/* ---- UPDATE ---- */

/* Whether FLIP_PLACE is none of F, B, I and W. */
static bool is_of_update(void) {
  const char *only = setting("FLIP_PLACE");
  return only != NULL && (strcmp(only, names[MOMENT]) == 0 || strcmp(only, names[UPDATED]) == 0 ||
                          strcmp(only, names[TIED]) == 0);
}

static struct {
  const struct pen_device *device;
  unsigned char *own; /* the step's own array; the audit's is elsewhere */
  uint64_t own_bytes;
} update_flip;

/* AdamW, of which the step's own first run leaves a flipped bit. */
static void adamw_flipped(const struct pen_adamw_tensor *updated, size_t tensor_count,
                          const struct pen_adamw *settings, void *stream) {
  unsigned char *const arrays[] = {
      (unsigned char *)updated->parameter, (unsigned char *)updated->exp_avg,
      (unsigned char *)updated->exp_avg_sq, (unsigned char *)updated->gradient};
  if (flip.place == MOMENT && flip.bit != 0) {
    *flip.byte ^= flip.bit; /* it was compared: the weight must not become wrong */
    flip.bit = 0;
  }
  update_flip.device->adamw_step(updated, tensor_count, settings, stream);
  const bool own =
      arrays[0] >= update_flip.own && arrays[0] < update_flip.own + update_flip.own_bytes;
  if (flip.place == UPDATED && own && flip.bit == 0) {
    static struct pen_tensor run;
    static char name[256];
    const uint32_t which = below(4);
    static const char *const endings[] = {"", ".exp_avg", ".exp_avg_sq", ".grad"};
    snprintf(name, sizeof name, "%s%s", flip.tensor->name, endings[which]);
    run = (struct pen_tensor){
        .name = name, .dtype = PEN_F32, .bytes = updated->count * sizeof(float)};
    do_flip(flip.vm, flip.vm->action, flip.vm->endpoint->global, &run, arrays[which]);
  }
}

static void flip_moment(struct pen_vm *vm, const struct pen_adamw_tensor *updated) {
  static struct pen_tensor tensor;
  static char name[256];
  enum { COUNT = 3 };
  const uint32_t which = below(COUNT + 1);
  unsigned char *const at[] = {
      (unsigned char *)updated->parameter, (unsigned char *)updated->exp_avg,
      (unsigned char *)updated->exp_avg_sq, (unsigned char *)&vm->adamw->updates};
  static const char *const endings[] = {"", ".exp_avg", ".exp_avg_sq", ".updates"};
  snprintf(name, sizeof name, "%s%s", flip.tensor->name, endings[which]);
  tensor = (struct pen_tensor){
      .name = name,
      .dtype = which == COUNT ? PEN_I32 : PEN_F32,
      .bytes = which == COUNT ? sizeof vm->adamw->updates : updated->count * sizeof(float)};
  do_flip(vm, vm->action, vm->endpoint->global, &tensor, at[which]);
}

void __wrap_pen_audit_update_run(const struct pen_audit_update *update, struct pen_vm *vm,
                                 const struct pen_adamw_tensor *updated) {
  const uint32_t global = vm->endpoint->global;
  const char *only = setting("FLIP_PLACE");
  if (!is_flipped(global) ||
      (only != NULL && (!is_of_update() || strcmp(only, names[TIED]) == 0)) ||
      updated->count == 0) {
    __real_pen_audit_update_run(update, vm, updated);
    return;
  }
  const struct pen_tensor weight = {.name = vm->plan->weights[update->weight].name};
  struct pen_device device = *vm->device;
  device.adamw_step = adamw_flipped;
  memset(&flip, 0, sizeof flip);
  seed_for(vm->optimizer_step, ~global);
  flip.vm = vm;
  flip.tensor = &weight;
  flip.place = below(2) == 0 ? MOMENT : UPDATED;
  if (only != NULL) flip.place = strcmp(only, names[MOMENT]) == 0 ? MOMENT : UPDATED;
  update_flip.device = vm->device;
  update_flip.own = (unsigned char *)updated->parameter;
  update_flip.own_bytes = updated->count * sizeof(float);
  if (flip.place == MOMENT) flip_moment(vm, updated);
  vm->device = &device;
  __real_pen_audit_update_run(update, vm, updated);
  vm->device = update_flip.device;
  put_result(vm, vm->action);
  *flip.byte ^= flip.bit;
}

/* ---- F, B, I, W ---- */

void __wrap_pen_audit_call(struct pen_vm *vm, const struct pen_action *action) {
  if (vm->audit->action == NULL) {
    __real_pen_audit_call(vm, action);
    return;
  }
  if (action == vm->audit->action && is_flipped(vm->endpoint->global) && !is_of_update())
    call_audited(vm, action);
  else
    __real_pen_audit_call(vm, action);
  flip_sent(vm, action, false);
  flip_sent(vm, action, true);
}
