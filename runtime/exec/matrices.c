/* matrices.c: what UPDATE does first with the matrices of Muon (see matrices.h).
 *
 * All processes add momentum to what they have of each matrix, in place of the gradients. Where the
 * splits of a matrix are on several tensor ranks it has an owner among them: for one matrix of each
 * owner at a time, an exchange brings the splits to the workspace of the owner, which
 * orthogonalizes them there, and another brings each back, in place of the gradient. What is left
 * of the update is done element by element.
 *
 * A stack is a matrix after the other. An exchange ends when all that others write has come. So an
 * owner has the splits before it computes, and no split of the next matrix comes before all have
 * what it has made of this one. The first splits may come as soon as another tensor rank updates:
 * so the workspace is used for whole matrices after the last exchange. */
#include "runtime/exec/matrices.h"

#include "runtime/base/check.h"
#include "runtime/exec/collectives.h"
#include "runtime/exec/weight_arrays.h"
#include "runtime/plan/puts.h"

/* The first of the puts by which a matrix comes to this process; null: none does. */
static const struct pen_put *find_own(const struct pen_vm *vm, const struct pen_collective *row) {
  const struct pen_put *puts = vm->program->puts + row->first_put;
  for (uint32_t i = 0; i < row->put_count; i++) {
    if (puts[i].owner == pen_vm_member(vm, PEN_TENSOR) + 1 &&
        pen_updated_shard(vm, puts[i].weight).count > 0) {
      return &puts[i];
    }
  }
  return NULL;
}

/* Of the splits those of one tensor rank after the other are listed. The workspace follows them. */
static struct pen_shared_matrix list_splits(const struct pen_vm *vm, const struct pen_put *put) {
  const uint32_t splits = vm->plan->weights[put->weight].split_count,
                 local = pen_local_split_count(vm->plan, splits);
  struct pen_adamw_tensor *list = pen_allocate(splits, sizeof *list, "%u splits", splits);
  for (uint32_t k = 0; k < splits; k++) {
    const uint64_t place = put[k % local].to + k / local * put->to_member;
    list[k] = pen_updated_tensor(vm, put->weight + k);
    list[k].gradient = (float *)(vm->arena + place);
    list[k].workspace = vm->arena + put->to + splits / local * put->to_member;
  }
  return (struct pen_shared_matrix){list, splits};
}

void pen_list_matrices(struct pen_vm *vm) {
  const uint32_t count = vm->program->exchange_count / 2;
  struct pen_shared_matrix *list = pen_allocate(count + 1u, sizeof *list, "%u matrices", count);
  for (uint32_t i = 0; i < count; i++) {
    const struct pen_put *put =
        find_own(vm, &vm->program->collectives[vm->program->first_exchange + 2 * i]);
    list[i] = put == NULL ? (struct pen_shared_matrix){NULL, 0} : list_splits(vm, put);
  }
  vm->matrices = list;
}

/* Each matrix of a stack by itself. */
static void orthogonalize_stack(const struct pen_vm *vm, const struct pen_adamw_tensor *stack) {
  const uint32_t tensors = pen_tensor_count(&vm->plan->weights[stack->weight]);
  struct pen_adamw_tensor one = *stack;
  one.count /= tensors;
  one.rows /= tensors;
  for (uint32_t n = 0; n < tensors; n++) {
    vm->device->muon_orthogonalize(&one, 1, vm->adamw, vm->streams.compute);
    one.gradient += one.count;
  }
}

/* How many of the list of updates are tensors of Muon, which come first. */
static size_t count_matrices(const struct pen_vm *vm) {
  size_t count = 0;
  while (count < vm->weight_count && vm->updates[count].optimizer == PEN_OPTIMIZER_MUON) {
    count++;
  }
  return count;
}

/* Those that this process has whole; the splits of a matrix follow each other. */
static void orthogonalize_own(const struct pen_vm *vm, size_t count) {
  const struct pen_adamw_tensor *tensor = vm->updates, *past = tensor + count;
  while (tensor < past) {
    const size_t pieces = vm->program->exchange_count > 0 && tensor->pieces > 1
                              ? 0 /* tensor ranks exchange them */
                              : tensor->pieces;
    if (pieces == 1 && tensor->count > 0) { /* else another data rank has all of it */
      orthogonalize_stack(vm, tensor);
    } else if (pieces > 1 && tensor->count > 0) {
      vm->device->muon_orthogonalize(tensor, pieces, vm->adamw, vm->streams.compute);
    }
    tensor += pieces > 0 ? pieces : 1;
  }
}

bool pen_orthogonalize_matrices(struct pen_vm *vm) {
  const struct pen_rank_program *program = vm->program;
  const size_t count = count_matrices(vm);
  bool going = true;
  if (count > 0) {
    vm->device->muon_momentum(vm->updates, count, vm->adamw, vm->streams.compute);
  }
  for (uint32_t i = 0; i < program->exchange_count && going; i += 2) {
    const struct pen_shared_matrix *own = &vm->matrices[i / 2];
    going = pen_run_exchange(vm, program->first_exchange + i);
    if (going && own->split_count > 0) {
      vm->device->muon_orthogonalize(own->split, own->split_count, vm->adamw, vm->streams.compute);
    }
    going = going && pen_run_exchange(vm, program->first_exchange + i + 1);
  }
  if (going) {
    orthogonalize_own(vm, count);
  }
  return going;
}
