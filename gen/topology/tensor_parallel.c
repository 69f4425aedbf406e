/* tensor_parallel.c: resolves the settings of the group tensor_parallel. */
#include "gen/topology/tensor_parallel.h"

#include "gen/topology/family_table.h"
#include "gen/topology/message.h"

void pen_tensor_parallel_set_defaults(struct pen_topology *t) {
  if (!t->has_tensor_parallel_splits) t->tensor_parallel_splits = t->tensor_parallel_ranks;
}

/* The setting that the number of splits comes from. */
static const char *splits_setting(const struct pen_topology *t) {
  return t->has_tensor_parallel_splits ? "tensor_parallel.splits" : "tensor_parallel.ranks";
}

/* Each split has as many heads, columns of the feed-forward and tokens of a sequence as any other.
 */
static void check_divides(const struct pen_topology *t) {
  const int64_t splits = t->tensor_parallel_splits;
  const char *setting = splits_setting(t);
  const struct {
    const char *setting;
    int64_t number;
  } divided[] = {{"model.heads", t->model_heads},
                 {"model.kv_heads", t->model_kv_heads},
                 {"model.ffn", t->model_ffn},
                 {"model.sequence", t->model_sequence}};
  for (size_t i = 0; i < sizeof divided / sizeof *divided; i++)
    if (divided[i].number > 0 && divided[i].number % splits) /* experts need no model.ffn */
      pen_topology_fail(t, setting, "a divisor of %s = %lld", divided[i].setting,
                        (long long)divided[i].number);
  for (size_t i = 0; i < t->shapes_sequence.count; i++)
    if (t->shapes_sequence.value[i] % splits)
      pen_topology_fail(t, setting, "a divisor of shapes.sequence = %lld",
                        (long long)t->shapes_sequence.value[i]);
  if ((splits - 1) * ((t->model_vocab + splits - 1) / splits) >= t->model_vocab)
    pen_topology_fail(t, setting, "so few that each split has tokens of model.vocab = %lld",
                      (long long)t->model_vocab);
}

/* Each split has ops and tensors of its own, of which the generator has tables. */
enum { SPLITS_MAX = 16384 };

static void check_splits(const struct pen_topology *t) {
  const long long layers = t->model_layers;
  if (t->tensor_parallel_splits > 1 && t->tensor_parallel_splits * layers > SPLITS_MAX)
    pen_topology_fail(t, splits_setting(t), "at most %d splits of layers; x model.layers = %lld",
                      SPLITS_MAX, layers);
}

void pen_tensor_parallel_validate(const struct pen_topology *t) {
  const int64_t ranks = t->tensor_parallel_ranks, splits = t->tensor_parallel_splits;
  if (ranks & (ranks - 1)) pen_topology_fail(t, "tensor_parallel.ranks", "a power of two");
  if (splits & (splits - 1) || splits < ranks)
    pen_topology_fail(t, "tensor_parallel.splits",
                      "a power of two, at least tensor_parallel.ranks = %lld", (long long)ranks);
  if (splits > 1 && !pen_family_row_of(t->model_family)->splits)
    pen_topology_fail(t, ranks > 1 ? "tensor_parallel.ranks" : "tensor_parallel.splits",
                      "1, with the family %s",
                      pen_enum_text(pen_enum_family_kind, (int)t->model_family));
  if (splits > 1) check_divides(t);
  check_splits(t);
}

/* Tensor ranks write into each other's memory: those of a rank are on one host. */
void pen_tensor_parallel_check_mapping(const struct pen_topology *t) {
  const int64_t ranks = t->tensor_parallel_ranks, count = pen_topology_process_count(t);
  const struct pen_integers *mapping = &t->cluster_mapping;
  if (t->cluster_ranks_per_host % ranks)
    pen_topology_fail(t, "tensor_parallel.ranks", "a divisor of cluster.ranks_per_host = %lld",
                      (long long)t->cluster_ranks_per_host);
  if (ranks == 1 || t->cluster_hosts.count < 2) return;
  if (mapping->choice != PEN_UNSET && mapping->choice != PEN_MAPPING_BLOCK)
    pen_topology_fail(
        t, "cluster.mapping",
        "\"block\" or a list, with tensor_parallel.ranks above 1: the tensor ranks of "
        "a rank are on one host");
  const struct pen_group_sizes sizes = pen_topology_sizes(t);
  for (uint32_t r = 0; mapping->choice == PEN_UNSET && r < count; r++) {
    const uint32_t first = pen_group_process(&sizes, r, PEN_TENSOR, 0);
    if (mapping->value[r] != mapping->value[first])
      pen_topology_fail(t, "cluster.mapping",
                        "a list that has all %lld tensor ranks of a rank on one host, not ranks "
                        "%u and %u on two",
                        (long long)ranks, first, r);
  }
}
