/* attention_dx_wide_bf16.c: ATTENTION_DX with pairs of bf16, compiled for the baseline instruction
 * set: tests the code for CPUs with AVX512_BF16 on any CPU. */
#pragma GCC diagnostic ignored "-Wpsabi"
#define PEN_ISA wide
#define PEN_STORED_BF16
#define PEN_VECTOR_BYTES 64
#define TILE_PAIRS
#include "kernels/cpu/vector/attention_dx.c"
