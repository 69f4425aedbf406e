/* qwen3_moe.c: Qwen3 (Yang et al. 2025) with mixtures of experts, with the names of Hugging Face's
 * Qwen3MoeForCausalLM: Qwen3's attention; its files have a tensor an expert. */
#include "gen/families/moe.h"

static uint32_t attention_block(struct pen_graph *graph, uint32_t n, uint32_t x) {
  return pen_rotary_attention(graph, n, x, PEN_ROTARY_HEAD_NORMS);
}

static uint32_t experts_block(struct pen_graph *graph, uint32_t n, uint32_t x) {
  static const struct pen_moe_names names = {
      .router = "mlp.gate",
      .gate = "mlp.experts.*.gate_proj",
      .up = "mlp.experts.*.up_proj",
      .down = "mlp.experts.*.down_proj",
  };
  return pen_moe_block(graph, n, x, &names);
}

const struct pen_family pen_family_qwen3_moe =
    PEN_MOE_FAMILY("qwen3_moe", "mlp", attention_block, experts_block);
