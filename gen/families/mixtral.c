/* mixtral.c: Mixtral (Jiang et al. 2024), with the names of Hugging Face's MixtralForCausalLM:
 * Mistral's attention, and experts in every layer, whose files have a tensor an expert. */
#include "gen/families/moe.h"

static uint32_t attention_block(struct pen_graph *graph, uint32_t n, uint32_t x) {
  return pen_rotary_attention(graph, n, x, PEN_ROTARY_WINDOW);
}

static uint32_t experts_block(struct pen_graph *graph, uint32_t n, uint32_t x) {
  static const struct pen_moe_names names = {
      .router = "block_sparse_moe.gate",
      .gate = "block_sparse_moe.experts.*.w1",
      .up = "block_sparse_moe.experts.*.w3",
      .down = "block_sparse_moe.experts.*.w2",
  };
  return pen_moe_block(graph, n, x, &names);
}

const struct pen_family pen_family_mixtral =
    PEN_MOE_FAMILY("mixtral", "block_sparse_moe", attention_block, experts_block);
