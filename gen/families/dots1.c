/* dots1.c: dots.llm1 (Huo et al. 2025), with the names of Hugging Face's Dots1ForCausalLM: Qwen3's
 * attention, and the experts of DeepSeek-V3 (2024): sigmoid scores, a bias of the choice, groups,
 * experts that all tokens have, and first layers without experts. */
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
      .bias = "mlp.gate.e_score_correction_bias",
      .shared_gate = "mlp.shared_experts.gate_proj",
      .shared_up = "mlp.shared_experts.up_proj",
      .shared_down = "mlp.shared_experts.down_proj",
  };
  return pen_moe_block(graph, n, x, &names);
}

const struct pen_family pen_family_dots1 =
    PEN_MOE_FAMILY("dots1", "mlp", attention_block, experts_block);
