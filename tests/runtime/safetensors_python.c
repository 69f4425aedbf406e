/* safetensors_python.c: our files, opened by the safetensors package of Python, and its files
 * opened by us. */
#include "tests/support/checkpoint_model.h"

#include "runtime/storage/checkpoint_tensors.h"
#include "runtime/storage/initial_weights.h"

static struct checkpoint_model model;
static unsigned char digests[PEN_CHECKPOINT_TENSORS * MODEL_WEIGHTS][PEN_DIGEST_BYTES];

/* Runs a Python script that sees numpy, safetensors and the package's own errors; true if it ends
 * well. */
static bool python(const char *script) {
  file_write("script.py", script, strlen(script));
  return system("python3 script.py") == 0;
}

/* Each tensor of a save has the name, shape and bytes of our raw dump. */
static void opened_by_python(void **state) {
  (void)state;
  model_begin("dir", &model.plan, 1);
  for (uint32_t rank = 0; rank < model.plan.rank_count; rank++) {
    unsigned char *arena = model_arena(&model, rank);
    model_fill(&model, rank, arena, 1);
    model_write(&model.plan, rank, arena, "dir", 1, digests);
    for (uint32_t i = 0; i < MODEL_WEIGHTS; i++) {
      const struct pen_weight *weight = &model.weights[i];
      uint64_t offsets[PEN_CHECKPOINT_TENSORS] = {weight->value_offset, weight->exp_avg_offset,
                                                  weight->exp_avg_sq_offset};
      for (int part = 0; part < PEN_CHECKPOINT_TENSORS && weight->rank == rank; part++) {
        char name[PEN_STORED_NAME_BYTES];
        if (offsets[part] != UINT64_MAX) {
          file_write(pen_checkpoint_tensor_name(name, weight, 0, (enum pen_checkpoint_tensor)part),
                     arena + offsets[part], 4 * weight->count);
        }
      }
    }
    free(arena);
  }
  model_finish(&model.plan, "dir", 1, 1, digests);
  assert_true(
      python("from safetensors.numpy import load_file\n"
             "import numpy\n"
             "count = 0\n"
             "for path in 'model', 'optimizer':\n"
             "  for name, x in load_file(f'dir/latest/{path}.safetensors').items():\n"
             "    assert x.dtype == numpy.float32, name\n"
             "    assert x.tobytes() == open(name, 'rb').read(), name\n"
             "    count += 1\n"
             "    if name == 'model.layers.0.mlp.up_proj.weight': assert x.shape == (301, 257)\n"
             "assert count == 16, count\n"));
}

static void initial_file_by_python(void **state) {
  (void)state;
  pen_weights_write(&model.plan, "start.safetensors", 5);
  assert_true(
      python("from safetensors import safe_open\n"
             "with safe_open('start.safetensors', framework='numpy') as f:\n"
             "  assert len(f.keys()) == 6\n"
             "  assert (f.get_tensor('model.layers.0.input_layernorm.weight') == 1).all()\n"
             "  assert (f.get_tensor('model.norm.bias') == 0).all()\n"));
}

/* The package chooses its own order, by dtype and name. */
static void written_by_python(void **state) {
  (void)state;
  assert_true(python(
      "import numpy, re\n"
      "from safetensors.numpy import save_file, load_file\n"
      "tensors = load_file('start.safetensors')\n"
      "tensors['lm_head.weight'] = (tensors['lm_head.weight'] * 0 + 0.3).astype(numpy.float16)\n"
      "save_file(tensors, 'theirs.safetensors', metadata={'format': 'pt'})\n"));
  for (uint32_t rank = 0; rank < model.plan.rank_count; rank++) {
    unsigned char *ours = model_arena(&model, rank), *theirs = model_arena(&model, rank);
    MODEL_LOAD(&model.plan, rank, ours, pen_weights_initial, 5);
    MODEL_LOAD(&model.plan, rank, theirs, pen_weights_load, "theirs.safetensors");
    const struct pen_weight *head = &model.weights[5];
    for (uint64_t j = 0; j < head->count && head->rank == rank; j++) {
      ((float *)(ours + head->value_offset))[j] = 0x1.334p-2f; /* 0.3 in half precision */
    }
    assert_memory_equal(ours, theirs, model.memory[rank].arena_bytes);
    free(ours);
    free(theirs);
  }
}

int main(void) {
  if (system("python3 -c 'import numpy, safetensors.numpy' 2>/dev/null") != 0) {
    puts("1..0 # SKIP python3 has no safetensors (or no numpy)");
    return 0;
  }
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(opened_by_python),
      cmocka_unit_test(initial_file_by_python),
      cmocka_unit_test(written_by_python),
  };
  model_make(&model, 3, 1);
  return cmocka_run_group_tests_name("safetensors_python", tests, model_setup, model_teardown);
}
