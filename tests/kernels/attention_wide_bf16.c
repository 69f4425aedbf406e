/* kernels_attention_wide_bf16.c: ATTENTION by pairs of bf16, made of what the compiler's least
 * instruction set has: the logic that a CPU with AVX512_BF16 runs, where there is none. */
#pragma GCC diagnostic ignored "-Wpsabi"
#define PEN_ISA wide
#define PEN_STORED_BF16
#define PEN_VECTOR_BYTES 64
#define TILE_PAIRS
#include "kernels/cpu/vector/attention.c"
